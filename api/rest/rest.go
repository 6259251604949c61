package rest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"mcpbridge/api/credential"
	"mcpbridge/api/wire"
	"mcpbridge/session"
	"mcpbridge/store"
)

// MaxBody is the largest request body, in bytes: room for the largest policy
// and both names.
const MaxBody = 64 << 10

// Config is what the API needs from outside.
type Config struct {
	Store store.Store
	// Epoch is that of the Lease under which this process writes to the Shard.
	Epoch func(store.Shard) store.Epoch
	// PublicURL is how the world reaches the server, without a trailing slash,
	// such as https://bridge.example.com. Every URL handed out begins with it.
	PublicURL string
	// Deleted is told of a bridge that is no longer in the store, so that its
	// live session ends. It may be called for one that has none.
	Deleted func(session.BridgeID)
	// Updated is told of a bridge whose settings have changed in the store.
	Updated func(context.Context, session.BridgeID) error
	// Session calls f with the live session of a bridge, which it activates if need be;
	// nil for a server that has none.
	Session func(ctx context.Context, id session.BridgeID, f func(*session.Session) error) error
	// Backup copies the store as it is now, and tells the copy's size in bytes; the copy
	// is closed. nil for a store that has no such copy: then there is no such operation.
	Backup func(context.Context) (io.ReadCloser, int64, error)
	// Live describes a bridge's live session in JSON, for the "live" member; nil
	// leaves the member out, as does a nil answer.
	Live func(session.BridgeID) any
	// Authorize tells who makes a request, or refuses it.
	Authorize func(*http.Request) (Actor, error)
	// Revoked is told of tokens that are no longer in the store, so that what is live
	// under them ends: those of which match says so.
	Revoked func(match func(store.Token) bool)
	// Expires is told of a token that has another time to expire in the store.
	Expires func(id string, at time.Time)
	// Ticket mints a one-time ticket for a provider's connection to a bridge, for a page
	// of that origin, or of any if it is empty; by is the ID of the token that asks.
	Ticket func(bridge session.BridgeID, origin, by string) (credential.Secret, time.Time, error)
	// Attempt counts a request that may be a guess at a code, and refuses it if its
	// address has made too many; nil refuses none.
	Attempt func(*http.Request) error
	// Fault is the error table.
	Fault wire.FaultFunc
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	Log *slog.Logger
}

type server struct {
	Config
	api     huma.API
	replays *replays

	pairings *pairings

	minting sync.Mutex // held from the look whether a token may be added until it is
}

// New serves every path under /api/v1. It may be mounted there or called with
// whole paths; either way requests must carry their whole path.
func New(cfg Config) http.Handler {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Deleted == nil {
		cfg.Deleted = func(session.BridgeID) {}
	}
	if cfg.Updated == nil {
		cfg.Updated = func(context.Context, session.BridgeID) error { return nil }
	}
	if cfg.Revoked == nil {
		cfg.Revoked = func(func(store.Token) bool) {}
	}
	if cfg.Expires == nil {
		cfg.Expires = func(string, time.Time) {}
	}
	cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
	s := &server{Config: cfg, replays: newReplays(), pairings: newPairings()}

	mux := chi.NewRouter()
	mux.Use(guard, middleware.GetHead)
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			if mux.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		writeProblem(w, http.StatusMethodNotAllowed, "this path does not take "+r.Method)
	})

	s.api = humachi.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "mcpbridge provisioning API",
				Version:     "1",
				Description: "Creates, lists, reads, changes and deletes bridges; shows their tools, and approves changed definitions; creates, rotates and revokes tokens; keeps tenants apart. What belongs to another tenant is answered as what does not exist. Errors are RFC 9457 problems.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: cfg.PublicURL}},
			Tags: []*huma.Tag{
				{Name: "bridges", Description: "A bridge is one URL at which MCP clients find the tools of its providers."},
				{Name: "tokens", Description: "A bridge's tokens open its own URLs, and nothing else."},
				{Name: "keys", Description: "A REST key opens this API, within one tenant and for what its scopes say."},
				{Name: "tenants", Description: "A tenant is a group of bridges, and the keys that may manage them."},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"admin": {Type: "http", Scheme: "bearer", Description: "An admin token. Without one where the server runs in open mode."},
					"key":   {Type: "http", Scheme: "bearer", Description: "A REST key with the scope of the operation: bridges:read to read, bridges:write to change bridges, tokens:write to create, rotate and revoke tokens and keys."},
				},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat, mergePatch: huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{trimProblem},
	})
	s.register()

	document, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		panic("rest: the API does not describe itself: " + err.Error()) // fixed at build time
	}
	mux.Get("/api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(document)
	})

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A router above may have consumed part of the path; ours has the whole.
		if rctx := chi.RouteContext(r.Context()); rctx != nil {
			rctx.RoutePath = ""
		}
		mux.ServeHTTP(w, r)
	})
}

// guard holds for every route: nothing here is for a cache, and no body comes
// encoded.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if encoding := r.Header.Get("Content-Encoding"); encoding != "" {
			writeProblem(w, http.StatusUnsupportedMediaType, "Content-Encoding is not supported; send the body as it is")
			return
		}
		next.ServeHTTP(w, r)
	})
}
