package e2e

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/clients/provider"
)

// server is `mcpbridge serve` on an address and a directory that outlive its
// process.
type server struct {
	*process
	t       testing.TB
	address string
	data    string
	args    []string
	http    *http.Client
}

// serve starts a server on a new store and waits until it serves. Its port is its
// own for the whole test, so that restart finds it free.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	return serveOn(t, filepath.Join(t.TempDir(), "data"), args...)
}

// serveOn is serve on a directory that may hold a store.
func serveOn(t testing.TB, data string, args ...string) *server {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	s := &server{t: t, address: reserve(t), data: data, args: args, http: &http.Client{Transport: transport}}
	t.Cleanup(transport.CloseIdleConnections)
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.process = start(s.t, append([]string{"serve", "--listen", s.address, "--data", s.data}, s.args...)...)
	s.find(s.stderr, `msg=serving listen=`+s.address+` `)
}

// restart starts the server again, on the same address and store.
func (s *server) restart() {
	s.t.Helper()
	s.kill()
	s.start()
}

// reserved has the ports that tests of this process were given.
var reserved sync.Map

// reserve finds a loopback address whose port no other program gets meanwhile:
// it lies below those that systems give to connections and to port 0.
func reserve(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		if _, taken := reserved.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

func (s *server) url(path string) string      { return "http://" + s.address + path }
func (s *server) mcpURL(bridge string) string { return s.url("/b/" + bridge + "/mcp") }
func (s *server) socketURL(bridge string) string {
	return "ws://" + s.address + "/b/" + bridge + "/provider"
}

// answer is what came back over HTTP.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request and reads the whole answer. headers are names and values in
// turn.
func (s *server) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(patient(s.t), method, s.url(path), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// tools is every definition that a bridge lists, raw, in its order.
func (s *server) tools(bridge string, headers ...string) []json.RawMessage {
	s.t.Helper()
	var all []json.RawMessage
	for params := `{}`; ; {
		a := s.do(http.MethodPost, "/b/"+bridge+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`, headers...)
		var page struct {
			Result struct {
				Tools      []json.RawMessage
				NextCursor string
			}
		}
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != http.StatusOK || page.Result.Tools == nil {
			s.t.Fatalf("tools/list: %d %s", a.status, a.body)
		}
		all = append(all, page.Result.Tools...)
		if page.Result.NextCursor == "" {
			return all
		}
		params = `{"cursor":` + strconv.Quote(page.Result.NextCursor) + `}`
	}
}

// health is what a bridge says of itself.
type health struct {
	Streams       int
	CallsInFlight int
	Tools         []json.RawMessage
	Providers     []struct {
		Provider  string
		Connected bool
	}
}

func (s *server) health(bridge string, headers ...string) health {
	s.t.Helper()
	a := s.do(http.MethodGet, "/b/"+bridge+"/health", "", headers...)
	var h health
	if err := json.Unmarshal([]byte(a.body), &h); err != nil || a.status != http.StatusOK {
		s.t.Fatalf("health: %d %s", a.status, a.body)
	}
	return h
}

// until asks a bridge for its health again and again until it is as wanted.
func (s *server) until(bridge, what string, ok func(health) bool, headers ...string) {
	s.t.Helper()
	ctx := patient(s.t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		h := s.health(bridge, headers...)
		if ok(h) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("%v while waiting for %s: %+v", context.Cause(ctx), what, h)
		}
	}
}

// provide offers tools on a bridge until the test ends, and returns once the
// bridge has acknowledged them.
func (s *server) provide(bridge, token string, tools ...provider.Tool) *provider.Provider {
	s.t.Helper()
	transport := &http.Transport{}
	registered := make(chan struct{}, 1)
	p, err := provider.New(provider.Config{
		URL: s.socketURL(bridge), Token: token, Provider: "e2e", Tools: tools,
		HTTP: &http.Client{Transport: transport},
		Registered: func(provider.Registration) {
			select {
			case registered <- struct{}{}:
			default:
			}
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() { gone <- p.Run(ctx) }()
	s.t.Cleanup(func() {
		leave()
		if err := <-gone; err != nil {
			s.t.Errorf("the provider gave up: %v", err)
		}
		transport.CloseIdleConnections()
	})
	await(s.t, registered, "the provider's registration")
	return p
}

// await waits for something that a channel tells.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	ctx := patient(t)
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		t.Fatalf("%v while waiting for %s", context.Cause(ctx), what)
	}
	panic("unreachable")
}
