package rest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"mcpbridge/store"
)

// What a REST key may do, each its own.
const (
	ScopeRead   = "bridges:read"
	ScopeWrite  = "bridges:write"
	ScopeTokens = "tokens:write" // also other REST keys, of no more scopes
)

// scopes are all of them.
var scopes = []string{ScopeRead, ScopeWrite, ScopeTokens}

// scopeAdmin is that of what an administrator alone may do. No key has it.
const scopeAdmin = "admin"

// Actor is who makes a request.
type Actor struct {
	Token  string // ID of the token; empty in open mode
	Admin  bool   // may do everything, in every tenant
	Tenant store.TenantID
	Scopes string // of a REST key: words with a space between
}

func (a *Actor) may(scope string) bool {
	return a.Admin || slices.Contains(strings.Fields(a.Scopes), scope)
}

// sees tells whether what belongs to a tenant exists for the actor.
func (a *Actor) sees(tenant store.TenantID) bool { return a.Admin || a.Tenant == tenant }

type actorKey struct{}

func actor(ctx context.Context) *Actor {
	a, _ := ctx.Value(actorKey{}).(*Actor)
	if a == nil {
		a = &Actor{} // who may do nothing
	}
	return a
}

// scopeKey is an operation's metadata: the scope that it needs.
const scopeKey = "scope"

// authorize is the middleware of every operation.
func (s *server) authorize(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	a, err := s.Authorize(r)
	if err == nil {
		scope, _ := ctx.Operation().Metadata[scopeKey].(string)
		if a.may(scope) {
			next(huma.WithValue(ctx, actorKey{}, &a))
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="mcpbridge", error="insufficient_scope", scope="`+scope+`"`)
		writeProblem(w, http.StatusForbidden, "this key may not do that: it needs the scope "+scope)
		return
	}
	fault := s.Fault(err)
	switch {
	case fault.Status == http.StatusTooManyRequests, fault.Status >= http.StatusInternalServerError:
		s.log(ctx.Context(), err, fault)
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds(fault.RetryAfter)))
		}
		writeProblem(w, fault.Status, fault.Message)
	default:
		challenge := `Bearer realm="mcpbridge"`
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		writeProblem(w, http.StatusUnauthorized, "an admin token or a REST key is needed: Authorization: Bearer …")
	}
}
