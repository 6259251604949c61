package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// auth decides who may use what.
type auth struct {
	store store.Store
	open  bool // everything is allowed
	peers *peers

	mu     sync.RWMutex
	tokens map[[sha256.Size]byte]store.Token // verified, by the text's hash
	epoch  uint64                            // how often they were forgotten
}

// maxTokens is how many verified tokens are kept in memory.
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
// and returns its principal. Whether the bridge exists shows only to those who
// hold its token.
func (a *auth) bridge(r *http.Request, id session.BridgeID, kinds ...store.TokenKind) (string, error) {
	if a.open {
		return openPrincipal, nil
	}
	t, err := a.token(r)
	switch {
	case err != nil:
		return "", err
	case t.Bridge == id && slices.Contains(kinds, t.Kind):
		return t.ID, nil
	default:
		return "", a.peers.failed(r, ErrForbidden)
	}
}

// admin allows a request of an administrator.
func (a *auth) admin(r *http.Request) error {
	if a.open {
		return nil
	}
	t, err := a.token(r)
	if err != nil {
		return err
	}
	if t.Kind != store.AdminToken {
		return a.peers.failed(r, ErrBadCredential)
	}
	return nil
}

// token finds the valid token that a request brings.
func (a *auth) token(r *http.Request) (store.Token, error) {
	text, err := bearer(r)
	if err != nil {
		return store.Token{}, err
	}
	sum := sha256.Sum256([]byte(text))
	a.mu.RLock()
	t, ok := a.tokens[sum]
	epoch := a.epoch
	a.mu.RUnlock()
	if !ok {
		if t, err = a.lookup(r.Context(), text); err != nil {
			if errors.Is(err, ErrBadCredential) {
				err = a.peers.failed(r, err)
			}
			return t, err
		}
		a.keep(sum, t, epoch)
	}
	if !t.Expires.IsZero() && !time.Now().Before(t.Expires) {
		return t, a.peers.failed(r, ErrBadCredential)
	}
	return t, nil
}

// keep remembers a token that was verified, unless tokens were deleted since then.
func (a *auth) keep(sum [sha256.Size]byte, t store.Token, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch != epoch {
		return
	}
	if len(a.tokens) >= maxTokens || a.tokens == nil {
		a.tokens = map[[sha256.Size]byte]store.Token{}
	}
	a.tokens[sum] = t
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

// forget drops what is kept in memory, so that a token that was deleted opens
// nothing.
func (a *auth) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = nil
	a.epoch++
}
