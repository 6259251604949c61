package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpbridge/clients/provider"
)

// victimBridge is the bridge that nobody attacks; but everybody attacks its process, each
// on a bridge of its own.
const victimBridge = "victim"

// patience bounds every wait: none is meant to pass.
const patience = time.Minute

// target is the real server, in a process of its own, with a provider and a client that
// have done nothing to anybody.
type target struct {
	address string // HOST:PORT
	bridge  string // of the enemy
	from    byte   // the last byte of the enemy's address
	cmd     *exec.Cmd
	ended   chan struct{}
	debug   string        // where it serves its profiles, if it does
	log     *lockedBuffer // of the server
	http    *http.Client  // the victim's
	leave   func()        // ends the victim's provider
}

// public are the limits of a server that the world reaches; on a loopback address they are
// off.
var public = []string{
	"--max-address-requests", "5000", "--max-address-dials", "500", "--max-address-providers", "16384", "--max-address-streams", "4096",
	"--memory-budget", "256MiB",
}

// start starts the binary on a store in dir, and the victim's provider.
func start(ctx context.Context, binary, dir string, args ...string) (*target, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{address: listener.Addr().String(), ended: make(chan struct{}), log: &lockedBuffer{}}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	args = append(slices.Concat([]string{"serve", "--open"}, public, []string{"--listen", t.address, "--data", filepath.Join(dir, "data")}), args...)
	t.cmd = exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	t.cmd.Stdout, t.cmd.Stderr = t.log, t.log
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the child, which stop ends
		defer close(t.ended)
		_ = t.cmd.Wait() // its status is in ProcessState
	}()
	t.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: patience}
	if err := t.settle(ctx); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

// lockedBuffer keeps what the server writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var profiles = regexp.MustCompile(`msg="serving profiles" listen=(\S+)`)

// settle waits until the server is ready, and the victim's tool listed.
func (t *target) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.address+"/readyz", nil) // a constant URL
		resp, err := t.http.Do(r)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w", context.Cause(ctx))
		case <-t.ended:
			return fmt.Errorf("the server ended: %s", t.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if at := profiles.FindStringSubmatch(t.log.String()); at != nil {
		t.debug = at[1]
	}
	registered := make(chan struct{}, 1)
	p, err := provider.New(provider.Config{
		URL: "ws://" + t.address + "/b/" + victimBridge + "/provider", Provider: "victim",
		Tools: []provider.Tool{{
			Name: "echo", Description: "Says it again.", InputSchema: json.RawMessage(`{"type":"object"}`),
			Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
				return provider.Text(string(call.Arguments)), nil
			},
		}},
		Registered: func(provider.Registration) {
			select {
			case registered <- struct{}{}:
			default:
			}
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	run, leave := context.WithCancel(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = p.Run(run) // whatever ends it, the victim's calls show
	}()
	t.leave = func() { leave(); <-gone }
	select {
	case <-registered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the victim's tool is not registered: %w", context.Cause(ctx))
	}
}

// call makes one of the victim's calls and checks its answer.
func (t *target) call(ctx context.Context, n int) error {
	text := fmt.Sprintf(`{\"n\":%d}`, n)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"n":%d}}}`, n, n)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.address+"/b/"+victimBridge+"/mcp", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := t.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]`, n, text)
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(got), want) {
		return fmt.Errorf("the victim's call %d was answered %d %.200s", n, resp.StatusCode, got)
	}
	return nil
}

// memory is the server's resident set, in bytes.
func (t *target) memory() (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(t.cmd.Process.Pid) + "/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("statm says %q", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// stop ends the victim's provider and the server, which must go well.
func (t *target) stop() error {
	if t.leave != nil {
		t.leave()
	}
	t.http.CloseIdleConnections()
	_ = t.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-t.ended:
	case <-time.After(patience):
		_ = t.cmd.Process.Kill()
		<-t.ended
		return errors.New("the server did not stop")
	}
	if code := t.cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(t.log.String(), "panicked") {
		return fmt.Errorf("the server ended with %d:\n%s", code, t.log)
	}
	return nil
}
