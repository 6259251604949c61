package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpbridge/clients/provider"
)

// A soak is a mixed load, friends and enemies, after which the server must hold what it
// held before: goroutines, file descriptors, and, within a tolerance, memory.

// soakArgs make the server let go of what is unused within seconds.
var soakArgs = []string{
	"--debug-listen", "127.0.0.1:0", "--log-level", "info", "--idle", "2s", "--resume-grace", "1s", "--park", "2s",
	"--max-sessions", "64", "--task-after", "1s", "--task-life", "10s", "--ping", "2s",
}

const (
	soakBridges = 16
	soakClients = 24 // at work at once
)

// held is what a server at rest holds.
type held struct{ goroutines, files, heap int }

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MiB of heap", h.goroutines, h.files, float64(h.heap)/(1<<20))
}

// Tolerances: a connection that the kernel has not yet ended, a timer that is about to
// run; pools and maps that have grown to what the load needs.
const (
	mayDiffer = 3        // goroutines and descriptors
	mayGrow   = 12 << 20 // bytes of heap
)

// over tells what has grown from before to h, or nil.
func (h held) over(before held) error {
	var grown []error
	for _, c := range []struct {
		what             string
		was, is, allowed int
	}{
		{"goroutines", before.goroutines, h.goroutines, mayDiffer},
		{"descriptors", before.files, h.files, mayDiffer},
		{"bytes of heap", before.heap, h.heap, mayGrow},
	} {
		if c.is > c.was+c.allowed {
			grown = append(grown, fmt.Errorf("%d %s were %d at the start: at most %d more are no leak", c.is, c.what, c.was, c.allowed))
		}
	}
	return errors.Join(grown...)
}

// soak loads the server for d, beside a warm-up of a tenth of it, and lets the enemies
// attack one after the other.
func soak(ctx context.Context, t *target, enemies []enemy, d time.Duration, out io.Writer) error {
	m := &mix{t: t, enemies: enemies, done: map[string]int{}}
	if err := m.load(ctx, d/10); err != nil {
		return err
	}
	before, err := t.rest(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "after the warm-up: %v\n", before)
	if err := m.load(ctx, d); err != nil {
		return err
	}
	after, err := t.rest(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "after %v of load: %v\n", d, after)
	for _, what := range slices.Sorted(maps.Keys(m.done)) {
		fmt.Fprintf(out, "  %8d %s\n", m.done[what], what)
	}
	if err := after.over(before); err != nil {
		return fmt.Errorf("%w\n%s", err, t.profile(ctx, "goroutine?debug=1"))
	}
	return nil
}

// rest waits until the server holds no less than a moment before, and says what.
func (t *target) rest(ctx context.Context) (held, error) {
	t.http.CloseIdleConnections()
	var last held
	for same := 0; same < 5; {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
		now, err := t.holds(ctx)
		if err != nil {
			return now, err
		}
		if now.goroutines < last.goroutines || now.files < last.files || last.goroutines == 0 {
			same, last = 0, now
		} else {
			same++
			last.heap = min(last.heap, now.heap)
		}
	}
	return last, nil
}

// holds asks the server, whose garbage is collected first.
func (t *target) holds(ctx context.Context) (h held, err error) {
	if _, err := fmt.Sscanf(t.profile(ctx, "goroutine?debug=1"), "goroutine profile: total %d", &h.goroutines); err != nil {
		return h, fmt.Errorf("the profile of goroutines: %w", err)
	}
	heap := t.profile(ctx, "heap?gc=1&debug=1")
	_, text, _ := strings.Cut(heap, "\n# HeapAlloc = ")
	text, _, _ = strings.Cut(text, "\n")
	if h.heap, err = strconv.Atoi(text); err != nil {
		return h, fmt.Errorf("the profile of the heap: %w", err)
	}
	files, err := os.ReadDir("/proc/" + strconv.Itoa(t.cmd.Process.Pid) + "/fd")
	h.files = len(files)
	return h, err
}

func (t *target) profile(ctx context.Context, name string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.debug+"/debug/pprof/"+name, nil)
	if err != nil {
		return err.Error()
	}
	r.Close = true
	resp, err := t.http.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// mix is the load.
type mix struct {
	t       *target
	enemies []enemy

	mu     sync.Mutex
	done   map[string]int
	failed error
}

func (m *mix) note(what string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed = errors.Join(m.failed, fmt.Errorf("%s: %w", what, err))
	}
	m.done[what]++
}

// load lets everybody work for d.
func (m *mix) load(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(d)
	more := func() bool { return time.Now().Before(end) && ctx.Err() == nil && !m.broken() }
	// Providers stay until nobody waits for one.
	working, rest := context.WithCancel(ctx)
	var offering, wg sync.WaitGroup
	for n := range soakBridges {
		offering.Go(func() {
			for working.Err() == nil {
				m.provide(working, fmt.Sprintf("soak-%d", n))
			}
		})
	}
	flows := []struct {
		name string
		do   func(ctx context.Context, bridge string) error
	}{
		{"stateless calls", m.stateless},
		{"sessions", m.session},
		{"sessions that are left open", m.abandon},
		{"calls of 2026-07-28", m.modern},
		{"calls of 2026-07-28 that are cancelled", m.cancel},
		{"listens", m.listen},
		{"HTTP+SSE streams", m.sse},
		{"calls that time out", m.timeout},
		{"requests that are wrong", m.wrong},
		{"calls that become tasks", m.task},
	}
	for range soakClients {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: patience}
			defer client.CloseIdleConnections()
			for more() {
				f := flows[rand.IntN(len(flows))]
				flow := context.WithValue(ctx, clientKey{}, client)
				m.note(f.name, f.do(flow, fmt.Sprintf("soak-%d", rand.IntN(soakBridges))))
			}
		})
	}
	wg.Go(func() {
		for more() {
			e := m.enemies[rand.IntN(len(m.enemies))]
			got, err := e.attack(ctx, m.t, func(int) bool { return false })
			for text := range got {
				if !e.deserved(text) {
					err = errors.Join(err, fmt.Errorf("%s: an offender got %.300q", e.name, text))
				}
			}
			m.note("attacks", err)
		}
	})
	wg.Wait()
	rest()
	offering.Wait()
	return m.failed
}

func (m *mix) broken() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed != nil
}

// provide is a provider that comes, stays a while, and goes, in order or not.
func (m *mix) provide(ctx context.Context, bridge string) {
	ctx, leave := context.WithTimeout(ctx, time.Duration(500+rand.IntN(4000))*time.Millisecond)
	defer leave()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	p, err := provider.New(provider.Config{
		URL: "ws://" + m.t.address + "/b/" + bridge + "/provider", Provider: fmt.Sprintf("p%d", rand.IntN(3)),
		HTTP: &http.Client{Transport: transport}, Log: slog.New(slog.DiscardHandler),
		Tools: []provider.Tool{
			{
				Name: "echo", Description: fmt.Sprintf("Version %d.", rand.IntN(5)), InputSchema: json.RawMessage(`{"type":"object"}`),
				Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
					return provider.Text(string(call.Arguments)), nil
				},
			},
			{
				Name: "slow", Description: "Takes its time.", InputSchema: json.RawMessage(`{"type":"object"}`),
				Handle: func(ctx context.Context, call *provider.Call) (provider.Result, error) {
					for n := range 10 {
						call.Progress(float64(n), 10, "")
						select {
						case <-time.After(100 * time.Millisecond):
						case <-ctx.Done():
							return provider.Result{}, context.Cause(ctx)
						}
					}
					return provider.Text("done"), nil
				},
			},
		},
	})
	if err == nil {
		err = p.Run(ctx)
	}
	m.note("connections of providers", err)
}
