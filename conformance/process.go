package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end before it is killed.
const stopGrace = 10 * time.Second

// process is a child, which ends with us: see stop.
type process struct {
	name   string
	log    string // file of what it prints
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has ended; err is set before
	err    error
}

// start starts a child whose output goes to the file log. It outlives ctx:
// whoever starts it calls stop.
func start(ctx context.Context, log, command string, args ...string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &process{name: filepath.Base(command), log: log, cancel: cancel, ended: make(chan struct{})}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("conformance: start %s: %w", p.name, err), f.Close())
	}
	go func() { // ends with the child; stop waits for it
		defer close(p.ended)
		p.err = errors.Join(cmd.Wait(), f.Close())
	}()
	return p, nil
}

// stop ends the child, by its pid, and waits for it. It is an error if the child
// had ended before, or had to be killed.
func (p *process) stop() error {
	select {
	case <-p.ended:
		p.cancel()
		return fmt.Errorf("conformance: %s ended by itself: %w\n%s", p.name, p.err, tail(p.log))
	default:
	}
	p.cancel()
	<-p.ended
	if errors.Is(p.err, exec.ErrWaitDelay) {
		return fmt.Errorf("conformance: %s did not end within %v", p.name, stopGrace)
	}
	return nil
}

// until asks again and again until ready.
func (p *process) until(ctx context.Context, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ready(ctx) {
		select {
		case <-p.ended:
			return errors.New("conformance: " + p.name + " is of no use") // stop says why
		case <-ctx.Done():
			return fmt.Errorf("conformance: %s was not ready: %w\n%s", p.name, context.Cause(ctx), tail(p.log))
		case <-tick.C:
		}
	}
	return nil
}

// tail is the end of a log file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// freeAddress is a loopback address whose port was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func healthy(ctx context.Context, url string) bool {
	_, ok := ask(ctx, http.MethodGet, url, nil)
	return ok
}

// offered tells whether clients of the bridge see what the provider of a dialect
// offers.
func offered(ctx context.Context, url, dialect string) bool {
	return listed(ctx, url, "tools/list", "test_simple_text") && (dialect == "bridge.v1" || // which carries tools alone
		listed(ctx, url, "prompts/list", "test_simple_prompt") &&
			listed(ctx, url, "resources/list", "test://static-text") &&
			listed(ctx, url, "resources/templates/list", "test://template/{id}/data"))
}

func listed(ctx context.Context, url, method, name string) bool {
	body, ok := ask(ctx, http.MethodPost, url, []byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`))
	return ok && bytes.Contains(body, []byte(`"`+name+`"`))
}

func ask(ctx context.Context, method, url string, body []byte) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return answer, err == nil && resp.StatusCode == http.StatusOK
}
