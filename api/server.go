package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"mcpbridge/api/mcp"
	"mcpbridge/api/provider"
	"mcpbridge/api/rest"
	"mcpbridge/api/seal"
	"mcpbridge/api/wire"
	"mcpbridge/session"
	"mcpbridge/shard"
	"mcpbridge/store"
)

// Config is what a Server is made of.
type Config struct {
	Store     store.Store
	Directory *shard.Directory
	// Backup copies the store, as rest.Config has it; nil for one that has no such copy.
	Backup func(context.Context) (io.ReadCloser, int64, error)
	// PublicURL is how the world reaches the server, such as
	// https://bridge.example.com. Every URL handed out begins with it.
	PublicURL string
	// Loopback tells that only this machine reaches the listener.
	Loopback bool
	// Open turns authentication off.
	Open bool
	// CompatRooms serves the room routes of mcp-bridge-cf.
	CompatRooms bool
	// AllowOrigins are web origins, scheme://host[:port], that may use the server
	// beside its own.
	AllowOrigins []string
	// TrustedProxies are the networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	Limits         session.Limits
	Version        string // shown to clients
	Log            *slog.Logger
}

// Server is every route of the server.
type Server struct {
	cfg       Config
	auth      *auth
	peers     *peers
	memory    *memory
	guard     *guard
	providers *provider.Endpoint
	mcp       *mcp.Endpoint
	router    chi.Router
	draining  atomic.Bool
	requests  atomic.Uint64
	keeping   sync.WaitGroup
	stop      context.CancelFunc // ends keep
	process   string             // begins every request's ID
}

// handleKey names the store's secret that seals session IDs and resume tokens.
const handleKey = "handles"

// New makes a Server. It fails if the store does, or if PublicURL is no URL.
func New(ctx context.Context, cfg Config) (*Server, error) {
	public, err := url.Parse(cfg.PublicURL)
	if err != nil {
		return nil, err
	}
	key, err := cfg.Store.Secret(ctx, handleKey, seal.NewKey)
	if err != nil {
		return nil, err
	}
	box, err := seal.NewBox(key)
	if err != nil {
		return nil, err
	}
	local := cfg.Loopback && isLoopback(public.Host)
	if local {
		cfg.Limits = cfg.Limits.Local()
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	peers := newPeers(cfg.Limits, cfg.TrustedProxies, local)
	s := &Server{
		cfg:     cfg,
		auth:    &auth{store: cfg.Store, open: cfg.Open, peers: peers, log: cfg.Log},
		peers:   peers,
		memory:  &memory{limit: cfg.Limits.MemoryBytes, wait: cfg.Limits.WriteTimeout},
		guard:   &guard{public: public, allowed: cfg.AllowOrigins, loopback: cfg.Loopback},
		process: rand.Text()[:8] + "-",
	}
	s.providers = provider.New(provider.Config{
		Directory: cfg.Directory, Limits: cfg.Limits, Box: box, Fault: Fault, Room: s.memory.answer,
		Version: cfg.Version, Log: cfg.Log,
	})
	s.mcp = mcp.New(mcp.Config{
		Directory: cfg.Directory, Store: cfg.Store, Limits: cfg.Limits, Box: box, Fault: Fault, Stream: peers.stream, Revoked: s.auth.revoked,
		Room:     s.memory.request,
		BasePath: strings.TrimRight(public.Path, "/"), Version: cfg.Version, Log: cfg.Log,
	})
	s.router = s.routes()
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.keeping.Go(func() { s.keep(keeping) })
	return s, nil
}

func (s *Server) routes() chi.Router {
	r := chi.NewRouter()
	r.NotFound(notFound)
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "this path does not take that method"})
	})

	// /b/{bridge}/mcp, with or without a slash behind it, is served before the router
	// sees it (mcpPath): routing cost a tenth of a small call.
	r.HandleFunc("/b/{bridge}/sse", s.onBridge(s.serveSSE))
	r.HandleFunc("/b/{bridge}/message", s.onBridge(s.serveMessage))
	r.Get("/b/{bridge}/provider", s.onBridge(s.serveProvider))
	r.HandleFunc("/b/{bridge}/tickets", s.onBridge(s.serveTickets))
	r.Get("/b/{bridge}/health", s.onBridge(s.serveHealth))

	api := rest.New(rest.Config{
		Store: s.cfg.Store, Epoch: s.cfg.Directory.Epoch, PublicURL: s.cfg.PublicURL,
		Deleted: s.deleted, Updated: s.cfg.Directory.Updated, Session: s.cfg.Directory.With, Live: s.live, Authorize: s.auth.actor,
		Attempt: func(r *http.Request) error { return s.peers.failed(r, nil) },
		Ticket:  s.auth.tickets.mint, Revoked: s.revoke, Expires: s.auth.expire, Backup: s.cfg.Backup, Fault: Fault, Log: s.cfg.Log,
	})
	r.Handle("/api/v1/*", api)
	r.HandleFunc("/api/v1/pair", func(w http.ResponseWriter, r *http.Request) {
		if !cors(w, r) { // for it is a page that pairs
			api.ServeHTTP(w, r)
		}
	})

	r.Get("/healthz", s.healthz)
	r.Get("/readyz", s.readyz)

	if s.cfg.CompatRooms {
		r.Get("/new", s.newRoom)
		r.Get("/mcp/new", s.newRoom)
		r.Get("/ws/extension", s.inRoom(s.serveSeedProvider))
		r.HandleFunc("/mcp", s.inRoom(s.serveMCP))
		r.Get("/health", s.inRoom(s.roomHealth))
	}
	return r
}

// ServeHTTP implements [http.Handler]. Nothing wraps the ResponseWriter, so that
// an upgrade reaches the connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := s.process + strconv.FormatUint(s.requests.Add(1), 36)
	w.Header()["X-Request-Id"] = []string{id}
	defer func() {
		if reason := recover(); reason != nil && reason != http.ErrAbortHandler { //nolint:errorlint // the bare value, as net/http has it
			s.cfg.Log.Error("a request panicked", "request", id, "err", reason, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler) // the answer may have begun: the connection ends
		}
	}()
	if s.draining.Load() && r.Header.Get("Upgrade") == "" {
		w.Header()["Connection"] = []string{"close"} // the client's next request finds the next process
	}
	if r.ContentLength != 0 {
		// Also for one that is refused: net/http reads the body before it answers.
		wire.ReadBy(w, time.Now().Add(bodyTimeout))
	}
	if !s.guard.check(r) {
		writeJSON(w, http.StatusForbidden, map[string]string{"error": "the Origin or Host of the request is not allowed"})
		return
	}
	if id, ok := mcpPath(r.URL.Path); ok {
		s.serveMCP(w, r, id) //nolint:contextcheck // the request carries it
		return
	}
	s.router.ServeHTTP(w, r)
}

// bodyTimeout is how long a request's body may take to arrive.
const bodyTimeout = 30 * time.Second

// mcpPath is the bridge of an MCP URL's path.
func mcpPath(path string) (session.BridgeID, bool) {
	id, ok := strings.CutPrefix(path, "/b/")
	if !ok {
		return "", false
	}
	if id, ok = strings.CutSuffix(strings.TrimSuffix(id, "/"), "/mcp"); !ok || strings.Contains(id, "/") {
		return "", false
	}
	return session.BridgeID(id), true
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusNotFound, map[string]string{"error": "there is nothing here"})
}

// onBridge reads the bridge from the path. A name that none can have is one that
// does not exist.
func (s *Server) onBridge(next func(http.ResponseWriter, *http.Request, session.BridgeID)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r, session.BridgeID(chi.URLParam(r, "bridge")))
	}
}

// allow tells whether a request may use a bridge, having answered it if not.
// The caller is done of the grant at the request's end.
func (s *Server) allow(w http.ResponseWriter, r *http.Request, id session.BridgeID, kinds ...store.TokenKind) (g *grant, ok bool) {
	g, err := s.auth.bridge(r, id, kinds...)
	if err == nil && !id.Valid() {
		g.done()
		err = ErrForbidden
	}
	if err != nil {
		s.refuse(w, err)
		return nil, false
	}
	return g, true
}

func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	s.serveClient(w, r, id, s.mcp.Serve)
}

func (s *Server) serveSSE(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	s.serveClient(w, r, id, s.mcp.ServeSSE)
}

func (s *Server) serveMessage(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	s.serveClient(w, r, id, s.mcp.ServeMessage)
}

// serveClient lets an MCP client through to what serves it.
func (s *Server) serveClient(
	w http.ResponseWriter, r *http.Request, id session.BridgeID,
	serve func(http.ResponseWriter, *http.Request, session.BridgeID, string),
) {
	if cors(w, r) {
		return
	}
	g, ok := s.allow(w, r, id, store.ClientToken)
	if !ok {
		return
	}
	defer g.done()
	principal := g.token.ID
	if s.draining.Load() {
		s.refuse(w, session.ErrShutdown)
		return
	}
	if err := cmp.Or(s.peers.request(r, principal), s.memory.request(wire.Small)); err != nil {
		s.refuse(w, err)
		return
	}
	serve(w, r, id, principal)
}

func (s *Server) serveProvider(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	s.accept(w, r, id, false)
}

func (s *Server) serveSeedProvider(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	s.accept(w, r, id, true)
}

func (s *Server) accept(w http.ResponseWriter, r *http.Request, id session.BridgeID, seed bool) {
	g, err := s.auth.provider(r, id)
	if err == nil {
		defer g.done()
		if !id.Valid() {
			err = ErrForbidden
		}
	}
	if err == nil && s.draining.Load() {
		err = session.ErrShutdown
	}
	var done func(flooded bool)
	if err == nil {
		done, err = s.peers.provider(r, g.token.ID)
	}
	if err == nil {
		if _, err = s.cfg.Directory.Session(r.Context(), id); err != nil {
			done(false)
		}
	}
	if err != nil {
		if Fault(err).Close == 0 || r.Header.Get("Upgrade") == "" {
			s.refuse(w, err)
			return
		}
		s.providers.Refuse(w, r, err)
		return
	}
	g.hold()                                                            // by the connection; it succeeds, for the request holds it too
	s.providers.Accept(w, r, id, seed, g.token.ID, func(flooded bool) { //nolint:contextcheck // the connection outlives the request
		g.done()
		done(flooded)
	})
	if g != openGrant && g.ended() { // before the connection was there to be closed
		s.providers.Revoke(g.token.ID, mcp.ErrRevoked)
	}
}

func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	cors(w, r)
	if g, ok := s.allow(w, r, id, store.ClientToken, store.ProviderToken); ok {
		defer g.done()
		s.bridgeHealth(w, r, id)
	}
}

// refuse answers an error. The body depends on the kind of error alone.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	f := Fault(err)
	if f.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mcpbridge"`)
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())))
	}
	if f.Status >= http.StatusInternalServerError && f.Status != http.StatusServiceUnavailable {
		s.cfg.Log.Error("request failed", "request", w.Header().Get("X-Request-Id"), "err", err)
	}
	writeJSON(w, f.Status, map[string]string{"error": f.Message})
}

// deleted ends what is live of a bridge that the store does not have any more.
func (s *Server) deleted(id session.BridgeID) {
	s.auth.revoke(func(t store.Token) bool { return t.Bridge == id }, false)
	s.cfg.Directory.Drop(id) // which closes its providers
}

// revoke ends what is live under tokens that the store does not have any more, or that
// have expired.
func (s *Server) revoke(match func(store.Token) bool) {
	for _, id := range s.auth.revoke(match, true) {
		s.cfg.Log.Info("a token was revoked", "token", id)
		s.providers.Revoke(id, mcp.ErrRevoked)
	}
}

// How often the server writes when tokens were used, and ends what is live under those
// that have expired.
const (
	flushEvery = 15 * time.Second
	checkEvery = 4 // flushes
)

// keep looks after the tokens in use until ctx ends.
func (s *Server) keep(ctx context.Context) {
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			s.auth.flush(context.WithoutCancel(ctx))
			return
		case now := <-t.C:
			s.auth.flush(ctx)
			if n%checkEvery == 0 {
				if over := s.auth.check(ctx, now); len(over) > 0 {
					s.revoke(func(t store.Token) bool { return slices.Contains(over, t.ID) })
				}
			}
		}
	}
}

// live is what the API shows of a bridge that is in use.
func (s *Server) live(id session.BridgeID) any {
	if live, ok := s.cfg.Directory.Live(id); ok {
		if st, err := live.Status(); err == nil {
			return describe(id, st)
		}
	}
	return nil
}

// Drain stops new work: /readyz says no, new requests are asked to come back, as are
// the calls that wait for their provider, and streams end. Running calls go on.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.mcp.Close()
}

// Close asks every provider to come back in a moment, closes the connections and waits
// for them; ctx bounds how politely. The directory can be closed after it.
func (s *Server) Close(ctx context.Context) {
	s.Drain()
	s.providers.Close(ctx)
	s.stop()
	s.keeping.Wait()
}
