package provider

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/api/seal"
	"mcpbridge/api/wire"
	"mcpbridge/session"
	"mcpbridge/shard"
)

// Close codes of the dialect (private use, RFC 6455 section 7.4.2).
const (
	closeBadHello websocket.StatusCode = 4400
	closeFlood    websocket.StatusCode = 4429
)

// Errors of this room, with rows in the error table.
var (
	// ErrTooSlow: the provider does not read what it is sent.
	ErrTooSlow = errors.New("the provider reads too slowly")
	// ErrSilent: nothing came from the provider for two ping intervals.
	ErrSilent = errors.New("nothing came from the provider for two ping intervals")
	// ErrFlood: the provider sends more messages than it may.
	ErrFlood = errors.New("limit reached")
)

// Subprotocols name the dialects. A connection that asks for none speaks bridge.v1.
const (
	Subprotocol    = "bridge.v1"
	SubprotocolMCP = "mcp"
)

// headerMaxFrame tells a provider, in the answer to its upgrade, how many bytes a
// message may have: in dialect mcp there is no welcome that could.
const headerMaxFrame = "Mcpbridge-Max-Frame"

// Config is what an Endpoint is made of.
type Config struct {
	Directory *shard.Directory
	Limits    session.Limits
	Box       *seal.Box // seals resume tokens
	Fault     wire.FaultFunc
	// Room waits until there is memory for so many bytes more of a message; nil always has.
	Room    func(more int) error
	Version string // told to MCP servers
	Log     *slog.Logger
}

// Endpoint takes the connections of providers. Its methods may be called at once.
type Endpoint struct {
	cfg    Config
	limits session.Limits
	beat   atomic.Int64 // of the keeper; starts at 1
	wg     sync.WaitGroup
	quit   chan struct{}

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

// New makes an Endpoint and starts its keeper.
func New(cfg Config) *Endpoint {
	e := &Endpoint{cfg: cfg, limits: cfg.Limits.WithDefaults(), quit: make(chan struct{}), conns: map[*conn]struct{}{}}
	e.beat.Store(1)
	e.wg.Go(e.keep)
	return e
}

// Accept upgrades a request to a provider's connection on a bridge. The caller has
// checked that it may, and its Origin. It returns once the connection is up; the
// connection lives on, as the principal's, an opaque name. seed tells that the peer is one of the seed's providers,
// which never say hello, so that it need not be waited for. done is called when the
// connection has ended, or was none, and is told whether it was closed for saying too much.
func (e *Endpoint) Accept(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, seed bool, principal string, done func(flooded bool)) {
	lives := false
	defer func() {
		if !lives {
			done(false)
		}
	}()
	named := session.DefaultProvider
	if name := r.URL.Query().Get("provider"); name != "" {
		if named = session.ProviderID(name); !named.Valid() {
			http.Error(w, "provider must be 1 to 128 characters of printable ASCII", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set(headerMaxFrame, strconv.Itoa(e.limits.FrameBytes))
	c := &conn{e: e, bridge: bridge, principal: principal, named: named, done: done}
	c.meter.start(e.limits.Messages)
	c.out.c = c
	ws, raw, err := upgrade(w, r, c.pinged)
	if err != nil {
		return // the answer has been written
	}
	c.ws, c.raw = ws, raw
	c.born = e.beat.Load()
	c.heard.Store(c.born)
	switch ws.Subprotocol() {
	case SubprotocolMCP:
		c.d = newMCPServer(c, r.URL.Query().Get("provider") != "")
	default:
		c.d = &bridgeV1{conn: c, seed: seed && ws.Subprotocol() == ""}
	}
	if !e.add(c) {
		c.close(session.ErrShutdown)
		return
	}
	if err := c.d.greet(); err != nil {
		c.complain(err)
		e.remove(c)
		e.wg.Done()
		return
	}
	lives = true
	go func() {
		defer e.wg.Done()
		c.read()
	}()
}

// revokePatience is how long a provider that may not stay may take to hear why.
const revokePatience = 500 * time.Millisecond

// Revoke closes the connections of a principal that may do nothing any more.
func (e *Endpoint) Revoke(principal string, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		if c.principal == principal {
			c.out.Close(cause)
			time.AfterFunc(revokePatience, func() { _ = c.raw.Close() })
		}
	}
}

// Refuse upgrades a request only to tell the peer why it may not stay: a browser
// cannot read the status of a refused upgrade. The cause must have a close code.
func (e *Endpoint) Refuse(w http.ResponseWriter, r *http.Request, cause error) {
	f := e.cfg.Fault(cause)
	ws, _, err := upgrade(w, r, nil)
	if err != nil {
		return
	}
	if !e.more() {
		_ = ws.CloseNow()
		return
	}
	go func() {
		defer e.wg.Done()
		_ = ws.Close(websocket.StatusCode(f.Close), closeReason(f.Message))
	}()
}

// more counts one goroutine more, which calls e.wg.Done, unless the endpoint is closed and
// waits for those that there are.
func (e *Endpoint) more() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Add(1)
	}
	return !e.closed
}

// Sizes of a connection's buffers, in bytes: net/http's are 4 KiB each, which
// thousands of idle providers would hold. What is longer passes them by.
const (
	readBuffer  = 512
	writeBuffer = 1024
)

// slim is a ResponseWriter whose hijacked connection has small buffers.
type slim struct {
	http.ResponseWriter
	line *line // once hijacked
}

// Hijack implements [http.Hijacker].
func (s *slim) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	s.line = &line{Conn: conn}
	if err != nil || rw.Reader.Buffered() > 0 { // what the peer sent early must not be lost
		return s.line, rw, err
	}
	return s.line, bufio.NewReadWriter(bufio.NewReaderSize(s.line, readBuffer), bufio.NewWriterSize(s.line, writeBuffer)), nil
}

// upgrade also returns the connection below, which can be cut at once: a WebSocket
// that is closing waits for its peer. pinged is told of each ping, and whether to
// answer it; nil answers all.
func upgrade(w http.ResponseWriter, r *http.Request, pinged func(context.Context, []byte) bool) (*websocket.Conn, *line, error) {
	small := &slim{ResponseWriter: w}
	ws, err := websocket.Accept(small, r, &websocket.AcceptOptions{
		Subprotocols:       []string{Subprotocol, SubprotocolMCP},
		InsecureSkipVerify: true, // Origin has been checked, by rules of our own
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     pinged,
	})
	if err != nil {
		return nil, nil, err
	}
	ws.SetReadLimit(-1) // the reader's own limit can say what it is
	return ws, small.line, nil
}

// add counts a connection, whose reader calls e.wg.Done.
func (e *Endpoint) add(c *conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	e.conns[c] = struct{}{}
	return true
}

func (e *Endpoint) remove(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}

// Connections is how many providers are connected.
func (e *Endpoint) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// keep watches all connections, each beat of a second: it pings those that are
// due and cuts those that are dead or stuck.
func (e *Endpoint) keep() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	interval := max(1, int64(e.limits.Ping/time.Second))
	patience := max(1, int64(e.limits.WriteTimeout/time.Second))
	var dead, stuck, due, quiet []*conn
	for {
		select {
		case <-e.quit:
			return
		case <-t.C:
		}
		now := e.beat.Add(1)
		e.mu.Lock()
		for c := range e.conns {
			silent := now - c.heard.Load()
			if since := c.out.since.Load(); since != 0 && now-since > patience {
				stuck = append(stuck, c)
			} else if silent > 2*interval {
				dead = append(dead, c)
			} else if (now-c.born)%interval == 0 {
				if silent >= interval {
					quiet = append(quiet, c)
				} else {
					due = append(due, c)
				}
			}
		}
		e.mu.Unlock()
		for _, c := range stuck {
			e.cut(c, ErrTooSlow)
		}
		for _, c := range dead {
			c.out.Close(ErrSilent) // it may read, though it does not speak
		}
		for _, c := range due {
			c.ping(false)
		}
		for _, c := range quiet {
			c.ping(true)
		}
		clear(dead)
		clear(stuck)
		clear(due)
		clear(quiet)
		dead, stuck, due, quiet = dead[:0], stuck[:0], due[:0], quiet[:0]
	}
}

func (c *conn) ping(quiet bool) {
	if err := survive(func() error { c.d.ping(quiet); return nil }); err != nil {
		c.fault(err)
		c.e.cut(c, err)
	}
}

// cut ends a connection whose peer cannot be told.
func (e *Endpoint) cut(c *conn, cause error) {
	if c.shut.Swap(true) {
		return
	}
	e.cfg.Log.Info("provider cut", "bridge", c.bridge, "reason", cause)
	_ = c.raw.Close() // its reader sees the end
}

// probe sends a ping frame and waits for its answer.
func (c *conn) probe() {
	ctx, cancel := context.WithTimeout(context.Background(), c.e.limits.Ping)
	defer cancel()
	if c.ws.Ping(ctx) == nil {
		c.heard.Store(c.e.beat.Load())
	}
}

// When providers should come back to the next process: each after reconnectAfter and
// a part of a time that is longer the more they are, so that they do not all come at
// once.
const (
	reconnectAfter  = 500 * time.Millisecond
	reconnectSpread = 500 * time.Millisecond
	reconnectEach   = 500 * time.Microsecond
)

// Close asks every provider that knows the message to come back after a while, closes
// every connection with [session.ErrShutdown] and waits until all have ended; ctx ends
// the politeness, not the waiting.
func (e *Endpoint) Close(ctx context.Context) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	spread := reconnectSpread + reconnectEach*time.Duration(len(e.conns))
	for c := range e.conns {
		c.d.reconnect(reconnectAfter + rand.N(spread))
		c.out.Close(session.ErrShutdown)
	}
	e.mu.Unlock()
	close(e.quit)
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		e.mu.Lock()
		for c := range e.conns {
			_ = c.raw.Close()
		}
		e.mu.Unlock()
		<-done
	}
}
