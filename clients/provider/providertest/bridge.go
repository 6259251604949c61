// Package providertest is the bridge's side of dialect bridge.v1 for tests of
// providers and their tools. It listens on in-memory pipes, so that it works in
// a bubble of testing/synctest, and does only what the test tells it to.
package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/clients/provider"
)

// patience is how long a test waits for what must come: in a bubble it costs
// nothing.
const patience = 10 * time.Minute

// Bridge accepts connections of providers. New makes one.
type Bridge struct {
	tb    testing.TB
	pipes pipes
	peers chan *Peer
	http  *http.Client

	mu      sync.Mutex
	before  func(http.ResponseWriter, *http.Request) bool
	dialect string
}

// New starts a bridge that ends with the test.
func New(tb testing.TB) *Bridge {
	tb.Helper()
	b := &Bridge{
		tb:    tb,
		pipes: pipes{conns: make(chan net.Conn), closed: make(chan struct{})},
		peers: make(chan *Peer),

		dialect: "bridge.v1",
	}
	transport := &http.Transport{DialContext: b.pipes.dial}
	b.http = &http.Client{Transport: transport}
	server := &http.Server{Handler: http.HandlerFunc(b.accept), ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(&b.pipes); !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("serve: %v", err)
		}
	}()
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
		transport.CloseIdleConnections()
		<-served
	})
	return b
}

// Config is a configuration for provider "test" that dials this bridge.
func (b *Bridge) Config(tools ...provider.Tool) provider.Config {
	return provider.Config{URL: "ws://bridge.test/b/test/provider", Provider: "test", Tools: tools, HTTP: b.http}
}

// Before runs f ahead of each upgrade, until the next Before. f returning false
// means that it has answered the request.
func (b *Bridge) Before(f func(http.ResponseWriter, *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = f
}

// Speak makes the bridge accept another subprotocol than bridge.v1 from now on: the
// test then says and reads the messages of that dialect itself.
func (b *Bridge) Speak(subprotocol string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialect = subprotocol
}

func (b *Bridge) accept(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	before, dialect := b.before, b.dialect
	b.mu.Unlock()
	if before != nil && !before(w, r) {
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{dialect}})
	if err != nil {
		b.tb.Errorf("accept: %v", err)
		return
	}
	ws.SetReadLimit(-1)
	select {
	case b.peers <- &Peer{Header: r.Header, tb: b.tb, ws: ws}:
	case <-b.pipes.closed:
		cut(ws)
	}
}

// Accept waits for the next connection.
func (b *Bridge) Accept() *Peer {
	b.tb.Helper()
	select {
	case p := <-b.peers:
		b.tb.Cleanup(p.Cut)
		return p
	case <-time.After(patience):
		b.tb.Fatal("no provider connected")
		return nil
	}
}

// Peer is one connection of a provider. It is for one goroutine.
type Peer struct {
	Header http.Header // of the upgrade request
	tb     testing.TB
	ws     *websocket.Conn
}

// Message is a message from a provider: the members that a test looks at, and
// Raw, the frame itself.
type Message struct {
	Type          string          `json:"type"`
	Protocol      int             `json:"protocol"`
	Provider      string          `json:"provider"`
	Title         string          `json:"title"`
	Version       string          `json:"version"`
	Instance      string          `json:"instance"`
	Resume        string          `json:"resume"`
	RetainSeconds *int            `json:"retainSeconds"`
	ID            string          `json:"id"`
	Replace       bool            `json:"replace"`
	Tools         []Tool          `json:"tools"`
	CallID        json.RawMessage `json:"callId"`
	Result        json.RawMessage `json:"result"`
	Error         *Fault          `json:"error"`
	Progress      float64         `json:"progress"`
	Total         float64         `json:"total"`
	Message       string          `json:"message"`
	Level         string          `json:"level"`
	Logger        string          `json:"logger"`
	Data          json.RawMessage `json:"data"`

	Raw []byte `json:"-"`
}

// Tool is what a test looks at in a definition.
type Tool struct {
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

// Fault is the error of a toolError.
type Fault struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Receive is the next message.
func (p *Peer) Receive() Message {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kind, frame, err := p.ws.Read(ctx)
	if err != nil {
		p.tb.Fatalf("no message: %v", err)
	}
	var m Message
	if err := json.Unmarshal(frame, &m); err != nil || kind != websocket.MessageText {
		p.tb.Fatalf("message %s: %v", frame, err)
	}
	m.Raw = frame
	return m
}

// Expect is the next message, which must be of a type.
func (p *Peer) Expect(kind string) Message {
	p.tb.Helper()
	m := p.Receive()
	if m.Type != kind {
		p.tb.Fatalf("message %s, want type %q", m.Raw, kind)
	}
	return m
}

// Gone waits for the provider to leave and returns its close code, or -1 where
// it just vanished.
func (p *Peer) Gone() int {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, frame, err := p.ws.Read(ctx)
	if err == nil || ctx.Err() != nil {
		p.tb.Fatalf("the provider is still there: %s %v", frame, err)
	}
	return int(websocket.CloseStatus(err))
}

// Send writes a message.
func (p *Peer) Send(message string) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		p.tb.Errorf("send: %v", err)
	}
}

// Close ends the connection with a close code.
func (p *Peer) Close(code int, reason string) {
	p.tb.Helper()
	if err := p.ws.Close(websocket.StatusCode(code), reason); err != nil {
		p.tb.Errorf("close: %v", err)
	}
}

// Cut ends the connection without a word.
func (p *Peer) Cut() { cut(p.ws) }

// cut closes a connection that may be closed already.
func cut(ws *websocket.Conn) {
	ws.CloseNow() //nolint:errcheck // its error says that it was
}

// Greet expects a hello and the tools, and acknowledges both as contract has
// it. The resume token is "token-1".
func (p *Peer) Greet() (hello, tools Message) {
	p.tb.Helper()
	hello = p.Expect("hello")
	p.Send(`{"type":"welcome","protocol":1,"bridge":"test","provider":"test","instance":"i","resume":"token-1","resumed":false,"pingSeconds":20,"limits":{"frameBytes":8388608}}`)
	tools = p.Expect("registerTools")
	p.Send(`{"type":"registered","id":"` + tools.ID + `","revision":1,"tools":[],"rejected":[]}`)
	return hello, tools
}

// Call makes a call that wants progress and has a minute, and returns the
// answer and the progress and log messages before it.
func (p *Peer) Call(tool, arguments string) (answer Message, before []Message) {
	p.tb.Helper()
	if arguments != "" {
		arguments = `,"params":` + arguments
	}
	p.Send(`{"type":"callTool","callId":"call","name":"` + tool + `"` + arguments + `,"meta":{"deadlineMs":60000,"progress":true}}`)
	for {
		m := p.Receive()
		switch m.Type {
		case "toolResult", "toolError":
			return m, before
		}
		before = append(before, m)
	}
}

// pipes is a listener of in-memory connections.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
