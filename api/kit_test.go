package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"mcpbridge/api"
	"mcpbridge/session"
	"mcpbridge/shard"
	"mcpbridge/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server over a store that outlives it.
type world struct {
	t      testing.TB
	store  store.Store
	policy session.Policy
	limits session.Limits
	closed bool // authentication is on
	change func(*api.Config)

	piped bool // connections are pipes, for a synctest bubble

	dir    *shard.Directory
	server *api.Server
	http   *http.Server
	client *http.Client
	base   string // http://host:port
	served chan struct{}
	log    *lockedBuffer
}

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:80" }

// pipeConn comes from an address, as other connections do.
type pipeConn struct{ net.Conn }

func (pipeConn) RemoteAddr() net.Addr { return pipeAddr{} }

func (p *pipes) Addr() net.Addr { return pipeAddr{} }
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- pipeConn{theirs}:
		return mine, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts an open server on loopback. Options change it first.
func start(t testing.TB, options ...func(*world)) *world {
	t.Helper()
	w := &world{t: t, store: store.NewMemory(1), log: &lockedBuffer{}}
	for _, o := range options {
		o(w)
	}
	if w.limits.Park == 0 {
		w.limits.Park = -1 // most tests want to be told at once
	}
	w.begin()
	t.Cleanup(w.end)
	return w
}

func withLimits(l session.Limits) func(*world)    { return func(w *world) { w.limits = l } }
func withPolicy(p session.Policy) func(*world)    { return func(w *world) { w.policy = p } }
func inBubble(w *world)                           { w.piped = true }
func withAuth(w *world)                           { w.closed = true }
func withConfig(f func(*api.Config)) func(*world) { return func(w *world) { w.change = f } }

func (w *world) begin() {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	policy := w.policy
	if !w.closed {
		policy = policy.Or(session.Policy{Definitions: session.Trust})
	}
	var err error
	w.dir, err = shard.Open(context.Background(), shard.Config{
		Store: w.store, Limits: w.limits, Policy: policy, Owner: "test", CreateMissing: !w.closed, Log: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	var listener net.Listener
	if w.piped {
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		listener, transport.DialContext = p, p.dial
	} else if listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
		w.t.Fatal(err)
	}
	w.client = &http.Client{Transport: transport}
	w.base = "http://" + listener.Addr().String()
	cfg := api.Config{
		Store: w.store, Directory: w.dir, PublicURL: w.base, Loopback: true,
		Open: !w.closed, CompatRooms: true, Limits: w.limits, Version: "test", Log: log,
	}
	if w.change != nil {
		w.change(&cfg)
	}
	w.server, err = api.New(context.Background(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.http = &http.Server{Handler: w.server, ReadHeaderTimeout: 5 * time.Second}
	w.served = make(chan struct{})
	go func() {
		defer close(w.served)
		_ = w.http.Serve(listener)
	}()
}

// end stops the server as a process that is told to stop does.
func (w *world) end() {
	if w.server == nil {
		return
	}
	w.server.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.server.Close(ctx)
	w.dir.Close()
	_ = w.http.Close()
	<-w.served
	w.client.CloseIdleConnections()
	w.server = nil
}

// restart ends the process and starts the next one over the same store. The
// address changes.
func (w *world) restart() {
	w.t.Helper()
	w.end()
	w.begin()
}

func (w *world) url(path string) string      { return w.base + path }
func (w *world) mcpURL(bridge string) string { return w.url("/b/" + bridge + "/mcp") }

// connect opens a bare connection, in a bubble.
func (w *world) connect() net.Conn {
	w.t.Helper()
	transport, _ := w.client.Transport.(*http.Transport)
	conn, err := transport.DialContext(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answer is what came back over HTTP.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request and reads the whole answer.
func (w *world) do(method, url, body string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	setHeaders(r, headers)
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func setHeaders(r *http.Request, pairs []string) {
	r.Header.Set("Accept", "application/json, text/event-stream")
	if r.Method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if strings.EqualFold(pairs[i], "Host") {
			r.Host = pairs[i+1]
			continue
		}
		r.Header.Set(pairs[i], pairs[i+1])
	}
}

// post sends a stateless legacy message.
func (w *world) post(bridge, body string, headers ...string) answer {
	w.t.Helper()
	return w.do(http.MethodPost, w.mcpURL(bridge), body, headers...)
}

// modernMeta is the _meta of a 2026-07-28 request.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modern sends a 2026-07-28 request; params are the members beside _meta.
func (w *world) modern(bridge, method, name, params string, headers ...string) answer {
	w.t.Helper()
	body, h := modernRequest(method, name, params)
	return w.post(bridge, body, append(h, headers...)...)
}

func modernRequest(method, name, params string) (body string, headers []string) {
	if params != "" {
		params += ","
	}
	headers = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + modernMeta + `}}`, headers
}

// initialize opens a 2025-11-25 session and returns the headers of its requests.
func (w *world) initialize(bridge string) []string {
	w.t.Helper()
	a := w.post(bridge, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	id := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || id == "" {
		w.t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	return []string{"Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25"}
}

// peer is a provider's connection in the hands of a test.
type peer struct {
	t  testing.TB
	ws *websocket.Conn
}

// dial connects a provider to a path.
func (w *world) dial(path string, headers ...string) *peer {
	w.t.Helper()
	p, err := w.tryDial(path, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) tryDial(path string, headers ...string) (*peer, error) {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	options := &websocket.DialOptions{HTTPHeader: h, HTTPClient: w.client}
	if protocols := h.Get("Sec-WebSocket-Protocol"); protocols != "" {
		options.Subprotocols = strings.Split(protocols, ", ")
	}
	h.Del("Sec-WebSocket-Protocol")
	ws, resp, err := websocket.Dial(w.t.Context(), "ws"+strings.TrimPrefix(w.url(path), "http"), options)
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(-1)
	w.t.Cleanup(func() { _ = ws.CloseNow() })
	return &peer{w.t, ws}, nil
}

// provider connects to a bridge and says hello; rest are more members of it.
func (w *world) provider(bridge, name, rest string) *peer {
	w.t.Helper()
	p := w.dial("/b/" + bridge + "/provider")
	p.send(`{"type":"hello","protocol":1,"provider":"` + name + `"` + rest + `}`)
	p.want("welcome")
	return p
}

func (p *peer) send(message string) {
	p.t.Helper()
	if err := p.ws.Write(p.t.Context(), websocket.MessageText, []byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

// frame is a message of the bridge: its bytes, and what tests look at most.
type frame struct {
	raw    string
	Type   string
	CallID string
	Name   string
	Params json.RawMessage
}

// next reads the next message but pings.
func (p *peer) next() frame {
	p.t.Helper()
	f, err := p.tryNext(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *peer) tryNext(ctx context.Context) (frame, error) {
	for {
		_, b, err := p.ws.Read(ctx)
		if err != nil {
			return frame{}, err
		}
		f := frame{raw: string(b)}
		if err := json.Unmarshal(b, &f); err != nil {
			return f, fmt.Errorf("%w in %s", err, b)
		}
		if f.Type != "ping" {
			return f, nil
		}
	}
}

// want reads the next message, which must be of a type.
func (p *peer) want(kind string) frame {
	p.t.Helper()
	f := p.next()
	if f.Type != kind {
		p.t.Fatalf("got %s, want a message of type %s", f.raw, kind)
	}
	return f
}

// register registers tools, given as JSON objects, and waits for the answer.
func (p *peer) register(tools ...string) frame {
	p.t.Helper()
	p.send(`{"type":"registerTools","tools":[` + strings.Join(tools, ",") + `]}`)
	return p.want("registered")
}

// result answers a call.
func (p *peer) result(id, result string) {
	p.t.Helper()
	p.send(`{"type":"toolResult","callId":"` + id + `","result":` + result + `}`)
}

// answers answers every call of the connection with what f makes of it, until the
// connection ends.
func (p *peer) answers(f func(frame) string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := p.tryNext(context.Background())
			if err != nil {
				return
			}
			if m.Type != "callTool" {
				continue
			}
			if reply := f(m); reply != "" {
				message := `{"type":"toolResult","callId":"` + m.CallID + `","result":` + reply + `}`
				if p.ws.Write(context.Background(), websocket.MessageText, []byte(message)) != nil {
					return
				}
			}
		}
	}()
	p.t.Cleanup(func() { _ = p.ws.CloseNow(); <-done })
}

// tool is a definition with the least that is needed.
func tool(name string) string {
	return `{"name":"` + name + `","description":"does ` + name + `","inputSchema":{"type":"object"}}`
}

const done = `{"content":[{"type":"text","text":"done"}]}`

// callBody is a stateless call.
func callBody(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
}

// events is a stream that a test reads.
type events struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
	stop context.CancelFunc
}

// stream sends a request whose answer is a stream.
func (w *world) stream(method, url, body string, headers ...string) *events {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	setHeaders(r, headers)
	resp, err := w.client.Do(r)
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	e := &events{w.t, resp, bufio.NewReader(resp.Body), cancel}
	w.t.Cleanup(e.close)
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("%s %s: %d %s %s, want a stream", method, url, resp.StatusCode, got, b)
	}
	return e
}

func (e *events) close() {
	e.stop()
	e.resp.Body.Close()
}

// next returns the data of the next event that has any; io.EOF at the end of the
// stream.
func (e *events) next() (string, error) {
	for {
		line, err := e.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "\n" {
			return strings.TrimSuffix(data, "\n"), nil
		}
	}
}

func (e *events) want(substring string) string {
	e.t.Helper()
	data, err := e.next()
	if err != nil || !strings.Contains(data, substring) {
		e.t.Fatalf("event %q, %v; want one with %q", data, err, substring)
	}
	return data
}
