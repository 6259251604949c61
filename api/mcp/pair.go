package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"mcpbridge/session"
)

// The transport of 2024-11-05, HTTP+SSE, is a pair: a GET whose stream first names a
// URL, and POSTs to that URL whose answers all come on the stream (MCP 2024-11-05
// basic/transports, "HTTP with SSE").

// pair is one such stream and what is asked through it. Everything ends with the
// stream: there is no other way to answer.
type pair struct {
	bridge    session.BridgeID
	principal string
	//nolint:containedctx // the stream's: what is asked ends with it
	ctx    context.Context
	cancel context.CancelFunc
	mcp    atomic.Pointer[mcpSession] // a newer one with every initialize

	out chan *stream // holds it while nobody writes; a write ends in time

	mu    sync.Mutex
	asked int // messages not yet answered
	ended bool
	wg    sync.WaitGroup
}

// maxAsked bounds the requests of one pair that are not yet answered.
const maxAsked = 256

// isPair tells whether a GET of the MCP URL is one of 2024-11-05: clients of later
// revisions have a session or name their revision.
func isPair(r *http.Request) bool {
	return r.Header.Get("Mcp-Session-Id") == "" && r.Header.Get("Mcp-Protocol-Version") == "" &&
		(accepts(r) || r.Header.Get("Accept") == "")
}

// ServeSSE answers a request to the bridge's SSE URL, as Serve does one to its MCP URL.
func (e *Endpoint) ServeSSE(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, OPTIONS")
		e.writeError(w, http.StatusMethodNotAllowed, codeInvalidRequest, "the SSE endpoint takes GET")
		return
	}
	e.openPair(w, r, bridge, principal)
}

// openPair answers the GET.
func (e *Endpoint) openPair(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	done, err := e.cfg.Stream(r)
	if err != nil {
		e.refuse(w, err)
		return
	}
	defer done()
	watch, err := e.watchFor(r, bridge)
	if err != nil {
		e.refuse(w, err)
		return
	}
	defer watch.Close()
	p := &pair{bridge: bridge, principal: principal, out: make(chan *stream, 1)}
	p.ctx, p.cancel = context.WithCancel(r.Context())
	s := e.makeSession(bridge, principal, rev20241105, client{}, nil)
	p.mcp.Store(s)
	e.pairs.Store(s.ID, p)
	defer p.end()
	defer e.pairs.Delete(s.ID)

	to := e.cfg.BasePath + "/b/" + string(bridge) + "/message?sessionId=" + s.ID
	wishes := url.Values{} // the client cannot add them to a URL that it is given
	for _, name := range []string{"meta", "raw", "timeout"} {
		if v := r.URL.Query().Get(name); v != "" {
			wishes.Set(name, v)
		}
	}
	if len(wishes) > 0 {
		to += "&" + wishes.Encode()
	}
	out := open(w, e.limits.WriteTimeout)
	out.write([]byte("event: endpoint\ndata: " + to + "\n\n"))
	p.out <- out
	e.follow(r.WithContext(p.ctx), p, watch, nil, interest{revoked: e.revoked(principal), kinds: everyKind, uri: func(uri string) bool { return p.mcp.Load().subscribed(uri) }}) //nolint:contextcheck // made of r's own
	if e.draining() && !p.broken() {
		p.wait() // running calls go on while the process may
	}
}

func (e *Endpoint) draining() bool {
	select {
	case <-e.quit:
		return true
	default:
		return false
	}
}

// wait lets what was asked be answered, and takes nothing more.
func (p *pair) wait() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.wg.Wait()
}

// end cancels what was asked.
func (p *pair) end() {
	p.cancel()
	p.wait()
}

// begin runs f beside the others. False when the pair has ended.
func (p *pair) begin(f func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return session.ErrStopped
	case p.asked == maxAsked:
		return &session.LimitError{Limit: "requests of one SSE stream without an answer", Max: maxAsked}
	}
	p.asked++
	p.wg.Go(func() {
		defer func() {
			p.mu.Lock()
			p.asked--
			p.mu.Unlock()
		}()
		f()
	})
	return nil
}

// initialized is called when the client has said who it is.
func (p *pair) initialized(s *mcpSession) { p.mcp.Store(s) }

func (p *pair) event(message []byte)  { p.write(func(out *stream) { out.event(message) }) }
func (p *pair) answer(message []byte) { p.event(message) }
func (p *pair) alive()                { p.write((*stream).alive) }

func (p *pair) write(f func(*stream)) {
	out := <-p.out
	defer func() { p.out <- out }()
	f(out)
	if out.failed {
		p.cancel()
	}
}

func (p *pair) broken() bool { return p.ctx.Err() != nil }

// ServeMessage answers a request to a bridge's message URL: one message of a client
// of 2024-11-05, whose answer comes on its stream.
func (e *Endpoint) ServeMessage(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST, OPTIONS")
		e.writeError(w, http.StatusMethodNotAllowed, codeInvalidRequest, "the message endpoint takes POST")
		return
	}
	id := r.URL.Query().Get("sessionId")
	if id == "" {
		e.writeError(w, http.StatusBadRequest, codeInvalidRequest, "sessionId is missing in the URL; GET the SSE endpoint first")
		return
	}
	v, _ := e.pairs.Load(id)
	p, ok := v.(*pair)
	if !ok || p.bridge != bridge || p.principal != principal {
		e.writeError(w, http.StatusNotFound, codeInvalidRequest, "there is no such stream; open a new one")
		return
	}
	x := e.receive(w, r, bridge, principal)
	if x == nil {
		return
	}
	if bad := x.decode(); bad != nil {
		x.fail(bad)
		x.done()
		return
	}
	x.mcp, x.pair = p.mcp.Load(), p
	if x.q.answer || x.q.id == nil {
		x.notified() // at once, so that what the client says next finds it done
		x.done()
		return
	}
	x.sink, x.events, x.tied = p, true, true
	x.w, x.r = nil, r.WithContext(p.ctx)
	var untrack func()
	x.cancelled, untrack = x.mcp.track(string(x.q.id)) // before the client is told that it was taken
	if err := p.begin(func() {
		defer x.done()
		defer untrack()
		x.guarded(x.servePair)
	}); err != nil {
		untrack()
		x.done()
		e.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (x *exchange) servePair() {
	if x.q.method == "initialize" {
		x.initialize()
		return
	}
	x.answerLegacy()
}

// guarded keeps a fault in one message's serving from harming others: net/http does so
// for its own goroutines alone.
func (x *exchange) guarded(f func()) {
	defer func() {
		if reason := recover(); reason != nil {
			x.e.cfg.Log.Error("a message's serving panicked", "err", fmt.Sprint(reason), "stack", string(debug.Stack()))
			x.fail(&rpcError{status: http.StatusInternalServerError, code: codeInternal, message: "internal error"})
		}
	}()
	f()
}
