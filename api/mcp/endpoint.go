package mcp

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpbridge/api/seal"
	"mcpbridge/api/wire"
	"mcpbridge/session"
	"mcpbridge/shard"
	"mcpbridge/store"
)

// Config is what an Endpoint is made of.
type Config struct {
	Directory *shard.Directory
	Store     store.Store
	Limits    session.Limits
	Box       *seal.Box // seals session IDs
	Fault     wire.FaultFunc
	// Stream counts a stream to where the request came from; done is called at its end.
	Stream func(*http.Request) (done func(), err error)
	// Room tells whether there is memory for so many bytes more of a request; nil always
	// has.
	Room func(more int) error
	// Revoked is closed when a principal may do nothing any more; nil for one that
	// always may. Nil is one that says so of all.
	Revoked func(principal string) <-chan struct{}
	// BasePath is what the world's paths begin with, before /b/, such as /bridges;
	// mostly empty.
	BasePath string
	Version  string // of the server, shown to clients
	Log      *slog.Logger
}

// Endpoint answers MCP clients. Its methods may be called at once.
type Endpoint struct {
	cfg      Config
	limits   session.Limits
	identity []byte // `"io.modelcontextprotocol/serverInfo":{…}`

	sessions roster
	pairs    sync.Map // sessionId → *pair
	shelf    shelf
	held     held
	wg       sync.WaitGroup
	quit     chan struct{} // closed to end every stream
	once     sync.Once
}

// ErrRevoked ends what is live under a principal that may do nothing any more.
var ErrRevoked = errors.New("the bearer token was revoked, or has expired")

func (e *Endpoint) revoked(principal string) <-chan struct{} {
	if e.cfg.Revoked == nil {
		return nil
	}
	return e.cfg.Revoked(principal)
}

// New makes an Endpoint and starts its janitor.
func New(cfg Config) *Endpoint {
	e := &Endpoint{cfg: cfg, limits: cfg.Limits.WithDefaults(), quit: make(chan struct{})}
	e.identity = []byte(`"io.modelcontextprotocol/serverInfo":` + e.serverInfo())
	e.sessions.max = e.limits.MCPSessions
	e.wg.Go(e.janitor)
	return e
}

func (e *Endpoint) serverInfo() string {
	return `{"name":"mcpbridge","title":"mcpbridge","version":` + strconv.Quote(e.cfg.Version) + `}`
}

// Close ends every stream. Calls in flight end with their sessions.
func (e *Endpoint) Close() {
	e.once.Do(func() {
		close(e.quit)
		e.held.close()
	})
	e.wg.Wait()
}

// Serve answers one request to the bridge's MCP URL. The caller has checked that
// the principal, an opaque name, may use the bridge, and the request's Origin.
func (e *Endpoint) Serve(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	switch r.Method {
	case http.MethodPost:
		e.post(w, r, bridge, principal)
	case http.MethodGet, http.MethodDelete:
		if v := r.Header.Get("Mcp-Protocol-Version"); v != "" && !isLegacy(v) {
			w.Header().Set("Allow", http.MethodPost)
			e.writeError(w, http.StatusMethodNotAllowed, codeInvalidRequest, "this revision has POST only")
			return
		}
		switch {
		case r.Method == http.MethodDelete:
			e.delete(w, r, bridge, principal)
		case isPair(r):
			e.openPair(w, r, bridge, principal)
		default:
			e.get(w, r, bridge, principal)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE, OPTIONS")
		e.writeError(w, http.StatusMethodNotAllowed, codeInvalidRequest, "the MCP endpoint takes POST, GET and DELETE")
	}
}

// exchanges are used again: each is most of a kilobyte.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (e *Endpoint) post(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	x := e.receive(w, r, bridge, principal)
	if x == nil {
		return
	}
	defer x.done()
	if x.isBatch() {
		x.batch()
		return
	}
	if bad := x.decode(); bad != nil {
		x.fail(bad)
		return
	}
	x.dispatch()
}

// receive reads a POST's body; nil when the POST has been answered. Whoever receives
// an exchange ends it with done.
func (e *Endpoint) receive(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) *exchange {
	if enc := r.Header.Get("Content-Encoding"); enc != "" {
		e.writeError(w, http.StatusUnsupportedMediaType, codeInvalidRequest, "bodies are taken without Content-Encoding only")
		return nil
	}
	if t := r.Header.Get("Content-Type"); t != jsonType && !isJSON(t) {
		e.writeError(w, http.StatusUnsupportedMediaType, codeInvalidRequest, "the Content-Type must be application/json")
		return nil
	}
	x, _ := exchanges.Get().(*exchange)
	*x = exchange{e: e, w: w, r: r, bridge: bridge, principal: principal, events: accepts(r)}
	err := wire.ErrTooLong
	if r.ContentLength <= int64(e.limits.BodyBytes) {
		limit := e.limits.BodyBytes
		if r.ContentLength >= 0 {
			limit = int(r.ContentLength)
		}
		x.body = wire.NewBuffer(min(limit+1, wire.Small)) // one more, so that the end is seen without growing
		err = x.body.Fill(r.Body, limit, e.cfg.Room)
		if err == nil {
			// The server's deadline was for the body. One that stayed would end the
			// connection, and so cancel the call, in its midst.
			wire.ReadBy(w, time.Time{})
		}
	}
	if err == nil {
		return x
	}
	x.done()
	if errors.Is(err, session.ErrBusy) {
		f := e.cfg.Fault(err)
		w.Header().Set("Connection", "close") // the rest is not read
		retryAfter(w, f)
		e.writeError(w, f.Status, codeInternal, f.Message)
		return nil
	}
	if errors.Is(err, wire.ErrTooLong) {
		w.Header().Set("Connection", "close") // the rest is not read
		e.writeError(w, http.StatusRequestEntityTooLarge, codeInvalidRequest,
			"the body may have at most "+strconv.Itoa(e.limits.BodyBytes)+" bytes")
		return nil
	}
	e.writeError(w, http.StatusBadRequest, codeParse, "the body could not be read")
	return nil
}

// decode reads the body as one message.
func (x *exchange) decode() (bad *rpcError) {
	x.q, bad = decode(x.body.B, x.e.limits.MessageDepth)
	return bad
}

// done gives back what the exchange holds.
func (x *exchange) done() {
	if x.body != nil && !x.kept {
		x.body.Release()
	}
	if c, ok := x.sink.(*carrier); ok {
		c.close()
	}
	*x = exchange{} // so that it holds nobody's memory
	exchanges.Put(x)
}

// isJSON takes application/json with parameters, and a body without a type.
func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.TrimSpace(kind)
	return kind == "" || strings.EqualFold(kind, jsonType)
}

// dispatch chooses the era of a request: it is modern when its _meta or its header
// names a revision that is not one of the legacy four (MCP 2026-07-28 versioning,
// "Backward Compatibility").
func (x *exchange) dispatch() {
	header := x.r.Header.Get("Mcp-Protocol-Version")
	inMeta, _ := wire.Text(x.q.meta.version)
	if x.q.meta.version != nil && !isLegacy(inMeta) || header != "" && !isLegacy(header) {
		x.modern, x.tied = true, true
		x.serveModern(header)
		return
	}
	x.serveLegacy(header)
}

// refuse answers a request that never became an exchange.
func (e *Endpoint) refuse(w http.ResponseWriter, err error) {
	f := e.cfg.Fault(err)
	retryAfter(w, f)
	e.writeError(w, f.Status, codeInternal, f.Message)
}

// writeError sends a JSON-RPC error without an id.
func (e *Endpoint) writeError(w http.ResponseWriter, status, code int, message string) {
	x := exchange{e: e, w: w}
	x.fail(&rpcError{status: status, code: code, message: message})
}
