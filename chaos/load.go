package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpbridge/clients/provider"
)

// serving is a server on its own address that is ready, for modes without a checker.
func serving(ctx context.Context, binary, dir string) (*Server, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(NewHistory(io.Discard), binary, address, filepath.Join(dir, "data"), filepath.Join(dir, "server.log"), "--open", "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// counter is a tool that knows how often it ran for each name.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
}

func newCounter() *counter { return &counter{runs: map[string]int{}} }

// tool answers the argument "name" of a call.
func (c *counter) tool(name string) provider.Tool {
	return provider.Tool{
		Name: name, Description: "Says the name again.", InputSchema: json.RawMessage(`{"type":"object"}`),
		Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
			var in struct{ Name string }
			if err := call.Bind(&in); err != nil {
				return provider.Result{}, err
			}
			c.mu.Lock()
			c.runs[in.Name]++
			c.mu.Unlock()
			return provider.Text("ran " + in.Name), nil
		},
	}
}

// again is how many calls ran more than once.
func (c *counter) again() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, times := range c.runs {
		if times > 1 {
			n++
		}
	}
	return n
}

// dropped is a connection of a provider, which can be dropped.
type dropped struct {
	mu   sync.Mutex
	conn net.Conn
}

func (d *dropped) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = c
	return c, err
}

// drop ends the connection without a word.
func (d *dropped) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// provide runs a provider until ctx ends; registered is called each time that its tools
// are acknowledged.
func (d *dropped) provide(ctx context.Context, address, bridge, name string, tool provider.Tool, registered func()) error {
	transport := &http.Transport{DialContext: d.dial}
	defer transport.CloseIdleConnections()
	p, err := provider.New(provider.Config{
		URL: "ws://" + address + "/b/" + bridge + "/provider", Provider: name, Tools: []provider.Tool{tool},
		HTTP: &http.Client{Transport: transport}, Log: slog.New(slog.DiscardHandler),
		Registered: func(provider.Registration) { registered() },
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// caller makes calls as a client that comes again when it is told to, or when its
// connection is refused: for then the call was not taken.
type caller struct {
	address string
	http    *http.Client
}

func newCaller(address string) *caller {
	return &caller{address: address, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: time.Minute,
	}}
}

// A client waits longer each time, as the SDKs do, so that those that wait are no storm.
const (
	firstBackOff = 100 * time.Millisecond
	lastBackOff  = time.Second
)

// call calls a tool with a name until it is taken, and returns how often it had to come
// again.
func (c *caller) call(ctx context.Context, bridge, tool, name string) (retries int, err error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"name":"` + name + `"}}}`
	for wait := firstBackOff; ; retries++ {
		again, err := c.try(ctx, bridge, body, `"ran `+name+`"`)
		if !again {
			return retries, err
		}
		if !sleep(ctx, wait/2+rand.N(wait)) {
			return retries, context.Cause(ctx)
		}
		wait = min(2*wait, lastBackOff)
	}
}

func (c *caller) try(ctx context.Context, bridge, body, want string) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/b/"+bridge+"/mcp", strings.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	// The transport keeps to itself that the connection was closed with a 408, which says
	// that the request was not taken (RFC 9110, section 15.5.9).
	if errors.Is(err, syscall.ECONNREFUSED) || err != nil && strings.Contains(err.Error(), "server closed idle connection") {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == http.StatusTooManyRequests:
		if resp.Header.Get("Retry-After") == "" {
			return false, fmt.Errorf("%d without Retry-After", resp.StatusCode)
		}
		return true, nil
	case resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want):
		return false, fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return false, nil
}

// meter is what calls took, counted from when each was due.
type meter struct {
	mu      sync.Mutex
	took    []time.Duration
	retries int
	failed  []error
}

func (m *meter) note(took time.Duration, retries int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, took)
	m.retries += retries
	if err != nil {
		m.failed = append(m.failed, err)
	}
}

// at is the time that so much of all calls needed no more than, such as 0.99.
func (m *meter) at(part float64) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.took) == 0 {
		return 0
	}
	slices.Sort(m.took)
	return m.took[int(float64(len(m.took)-1)*part)]
}

// load makes perSecond calls until quit ends, none of which waits for another.
func (m *meter) load(quit context.Context, perSecond int, call func(n int) (retries int, err error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for n := 0; ; {
		select {
		case <-quit.Done():
			return
		case <-tick.C:
		}
		for now := time.Now(); n < int(now.Sub(begun).Seconds()*float64(perSecond)); n++ {
			this, due := n, begun.Add(time.Duration(n)*time.Second/time.Duration(perSecond))
			wg.Go(func() {
				retries, err := call(this)
				m.note(time.Since(due), retries, err)
			})
		}
	}
}
