package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/api/rest"
	"mcpbridge/session"
	"mcpbridge/store"
)

// auth decides who may use what. A token is read from the store once; a request whose
// token is known takes no lock.
type auth struct {
	store store.Store
	open  bool // everything is allowed
	peers *peers
	log   *slog.Logger

	tickets tickets

	byText sync.Map      // SHA-256 of a token's text → *grant
	byID   sync.Map      // token ID → *grant
	epoch  atomic.Uint64 // how often tokens were revoked; written with mu held

	mu    sync.Mutex // held where grants come and go
	known int        // grants in the maps
	used  map[string]time.Time
}

// maxTokens is how many verified tokens that nobody holds are kept in memory.
const maxTokens = 10_000

// openPrincipal is who everybody is in open mode.
const openPrincipal = "open"

// bearer is the token of a request's Authorization header (RFC 6750, section 2.1).
func bearer(r *http.Request) (string, error) {
	scheme, text, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", ErrNoCredential
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", ErrNoCredential
	}
	return text, nil
}

// bridge allows a request that brings a token of one of the kinds for the bridge,
// and returns its grant, of which the caller is done at the request's end. Whether
// the bridge exists shows only to those who hold its token.
func (a *auth) bridge(r *http.Request, id session.BridgeID, kinds ...store.TokenKind) (*grant, error) {
	if a.open {
		return openGrant, nil
	}
	g, err := a.grant(r)
	switch {
	case err != nil:
		return nil, err
	case g.token.Bridge == id && slices.Contains(kinds, g.token.Kind):
		return g, nil
	default:
		g.done()
		return nil, a.peers.failed(r, ErrForbidden)
	}
}

// provider allows a request for a provider's connection, by a bridge's provider token or
// by a ticket for it. A connection under a ticket is under the token that asked for it.
func (a *auth) provider(r *http.Request, id session.BridgeID) (*grant, error) {
	text, ok := ticketOf(r)
	if !ok || a.open {
		return a.bridge(r, id, store.ProviderToken)
	}
	by, err := a.tickets.take(text, id, r.Header.Get("Origin"), time.Now())
	if err != nil {
		return nil, a.peers.failed(r, err)
	}
	g, err := a.holder(r.Context(), by)
	if errors.Is(err, store.ErrNotFound) {
		err = a.peers.failed(r, ErrBadCredential)
	}
	return g, err
}

// holder holds the grant of a token by its ID: for what was done in its name before.
// store.ErrNotFound if the token is not good any more.
func (a *auth) holder(ctx context.Context, id string) (*grant, error) {
	for {
		epoch := a.epoch.Load()
		t, err := a.store.Token(ctx, id)
		if err != nil {
			return nil, err
		}
		if g := a.keep(t.Hash, t, epoch); g != nil {
			if g.expired(time.Now()) {
				g.done()
				return nil, store.ErrNotFound
			}
			return g, nil
		}
	}
}

// admin allows a request of an administrator.
func (a *auth) admin(r *http.Request) error {
	if a.open {
		return nil
	}
	g, err := a.grant(r)
	if err != nil {
		return err
	}
	defer g.done()
	if g.token.Kind != store.AdminToken {
		return a.peers.failed(r, ErrBadCredential)
	}
	return nil
}

// actor is who makes a request to the provisioning API.
func (a *auth) actor(r *http.Request) (rest.Actor, error) {
	if a.open {
		return rest.Actor{Admin: true}, nil
	}
	g, err := a.grant(r)
	if err != nil {
		return rest.Actor{}, err
	}
	defer g.done()
	switch t := &g.token; t.Kind {
	case store.AdminToken:
		return rest.Actor{Token: t.ID, Admin: true}, nil
	case store.RESTKey:
		return rest.Actor{Token: t.ID, Tenant: t.Tenant, Scopes: t.Scopes}, nil
	case store.ClientToken, store.ProviderToken:
	}
	return rest.Actor{}, a.peers.failed(r, ErrBadCredential)
}

// grant finds the valid token that a request brings, and holds it.
func (a *auth) grant(r *http.Request) (*grant, error) {
	text, err := bearer(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(text))
	var g *grant
	if v, ok := a.byText.Load(sum); ok {
		g = v.(*grant) //nolint:forcetypeassert // the map holds nothing else
	}
	if g == nil || !g.hold() {
		if g, err = a.verify(r.Context(), sum, text); err != nil {
			if errors.Is(err, ErrBadCredential) {
				err = a.peers.failed(r, err)
			}
			return nil, err
		}
	}
	now := time.Now()
	if g.expired(now) {
		g.done()
		return nil, a.peers.failed(r, ErrBadCredential)
	}
	if g.use(now) {
		a.mu.Lock()
		if a.used == nil {
			a.used = map[string]time.Time{}
		}
		a.used[g.token.ID] = now
		a.mu.Unlock()
	}
	return g, nil
}

// verify looks a token up in the store and keeps it, unless tokens were revoked
// meanwhile. The grant is held.
func (a *auth) verify(ctx context.Context, sum [sha256.Size]byte, text string) (*grant, error) {
	for {
		epoch := a.epoch.Load()
		t, err := a.lookup(ctx, text)
		if err != nil {
			return nil, err
		}
		if g := a.keep(sum, t, epoch); g != nil {
			return g, nil
		}
	}
}

// keep makes the token's grant, or finds it, and holds it. Nil when tokens were revoked
// since epoch: the caller looks again.
func (a *auth) keep(sum [sha256.Size]byte, t store.Token, epoch uint64) *grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch.Load() != epoch {
		return nil
	}
	if v, ok := a.byID.Load(t.ID); ok {
		if g := v.(*grant); g.token.Hash == t.Hash && g.hold() { //nolint:forcetypeassert // the map holds nothing else
			a.byText.Store(sum, g)
			return g
		}
	}
	if a.known >= maxTokens {
		a.drop(func(g *grant) bool { return g.release() })
	}
	g := newGrant(t)
	g.hold()
	a.byText.Store(sum, g)
	a.byID.Store(t.ID, g)
	a.known++
	return g
}

// drop forgets the grants that f picks. The lock is held.
func (a *auth) drop(f func(*grant) bool) {
	a.byText.Range(func(sum, v any) bool {
		if g := v.(*grant); f(g) { //nolint:forcetypeassert // the map holds nothing else
			a.byText.Delete(sum)
			a.byID.CompareAndDelete(g.token.ID, g)
			a.known--
		}
		return true
	})
}

// lookup verifies a token against the store. One whose ID is unknown costs the
// same comparison.
func (a *auth) lookup(ctx context.Context, text string) (store.Token, error) {
	kind, id, err := credential.Lookup(text)
	if err != nil {
		return store.Token{}, ErrBadCredential
	}
	t, err := a.store.Token(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return t, err
	}
	if !credential.Verify(t, text) || t.Kind != kind {
		return t, ErrBadCredential
	}
	return t, nil
}

// revoke ends the grants that f picks, whose tokens are not in the store any more, or
// are another's. It returns their principals. With tell the streams and calls under them
// end; without, something else ends them, and says why.
func (a *auth) revoke(f func(store.Token) bool, tell bool) (principals []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch.Add(1)
	a.drop(func(g *grant) bool {
		if !f(g.token) {
			return false
		}
		if tell {
			close(g.revoked)
		}
		principals = append(principals, g.token.ID)
		return true
	})
	return principals
}

// expire tells that the store has another time for a token to expire.
func (a *auth) expire(id string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch.Add(1)
	if v, ok := a.byID.Load(id); ok {
		v.(*grant).expire(at) //nolint:forcetypeassert // the map holds nothing else
	}
}

// revoked is closed when the principal's token is revoked. Its caller holds the grant, so
// one that is not there was revoked since.
func (a *auth) revoked(principal string) <-chan struct{} {
	if a.open {
		return nil
	}
	if v, ok := a.byID.Load(principal); ok {
		return v.(*grant).revoked //nolint:forcetypeassert // the map holds nothing else
	}
	return over
}

// over is closed.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// check reads the tokens in use again, and returns the IDs of those that have expired
// or are gone.
func (a *auth) check(ctx context.Context, now time.Time) (over []string) {
	a.byID.Range(func(_, v any) bool {
		g := v.(*grant) //nolint:forcetypeassert // the map holds nothing else
		t, err := a.store.Token(ctx, g.token.ID)
		switch {
		case err == nil && t.Hash == g.token.Hash:
			g.expire(t.Expires)
			if g.expired(now) {
				over = append(over, t.ID)
			}
		case err == nil, errors.Is(err, store.ErrNotFound):
			over = append(over, g.token.ID)
		}
		return true
	})
	return over
}

// flush writes when tokens were last used. What cannot be written is kept for the next
// time.
func (a *auth) flush(ctx context.Context) {
	a.mu.Lock()
	used := a.used
	a.used = nil
	a.mu.Unlock()
	if len(used) == 0 {
		return
	}
	err := a.store.TouchTokens(ctx, used)
	if err == nil {
		return
	}
	a.log.Warn("when tokens were last used cannot be written", "tokens", len(used), "err", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(used, a.used)
	a.used = used
}
