package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mcpbridge/clients/provider"
)

// TestRestartsAreHiddenFromClientsThatRetry: clients call while the server is told to
// stop and is started again. One that comes back when it is told to, or when nobody
// takes its connection, sees no other error, and no call runs twice. A connection that
// breaks under a request is an error, for nobody knows whether that was taken.
func TestRestartsAreHiddenFromClientsThatRetry(t *testing.T) {
	t.Parallel()
	const restarts, clients = 3, 8
	s := serve(t, "--open")
	counted := newCounter()
	s.provide("home", "", counted.tool())
	quit := make(chan struct{})
	var calls atomic.Int64
	var wg sync.WaitGroup
	for n := range clients {
		// Half of them make a connection for every request.
		transport := &http.Transport{DisableKeepAlives: n%2 == 0}
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		wg.Go(func() {
			defer transport.CloseIdleConnections()
			for i := 0; ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				name := fmt.Sprintf("%d-%d", n, i)
				if err := callUntilTaken(client, s.mcpURL("home"), name); err != nil {
					t.Errorf("call %s: %v", name, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for range restarts {
		for before := calls.Load(); calls.Load() < before+200 && !t.Failed(); {
			s.health("home") // something to wait with
		}
		s.signal(syscall.SIGTERM)
		if status := s.wait(); status != 0 {
			t.Errorf("exit status %d:\n%s", status, s.stderr)
		}
		s.start()
	}
	close(quit)
	wg.Wait()
	if most := counted.most(); most != 1 {
		t.Errorf("a call ran %d times", most)
	}
	t.Logf("%d calls", calls.Load())
}

// backOff is shorter than what a client is told, so that it meets every state of a server
// that stops and starts.
const backOff = 10 * time.Millisecond

// callUntilTaken makes one call, again as long as it is known not to have been taken.
func callUntilTaken(client *http.Client, url, name string) error {
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{"name":"` + name + `"}}}`
	for {
		resp, err := client.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // the client has a timeout
		if errors.Is(err, syscall.ECONNREFUSED) {
			<-time.After(backOff)
			continue
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusRequestTimeout:
			if _, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil {
				return fmt.Errorf("%d without Retry-After", resp.StatusCode)
			}
			<-time.After(backOff)
		case resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"counted `+name+`"`):
			return fmt.Errorf("%d %s", resp.StatusCode, text)
		default:
			return nil
		}
	}
}

// counter is a tool that knows how often it ran for each name.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
}

func newCounter() *counter { return &counter{runs: map[string]int{}} }

// tool counts its calls by their argument "name".
func (c *counter) tool() provider.Tool {
	return provider.Tool{
		Name: "count", Description: "Counts its calls.", InputSchema: json.RawMessage(greetSchema),
		Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
			var in struct{ Name string }
			if err := call.Bind(&in); err != nil {
				return provider.Result{}, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.runs[in.Name]++
			return provider.Text("counted " + in.Name), nil
		},
	}
}

func (c *counter) most() (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.runs {
		most = max(most, n)
	}
	return most
}
