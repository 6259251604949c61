package rest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"mcpbridge/api/limit"
	"mcpbridge/session"
	"mcpbridge/store"
)

// Bounds of pairing codes. Somebody who guesses for ten minutes at the full rate, with
// all codes there may be, hits one with a chance of 1 in 90 million.
const (
	pairingLife  = 10 * time.Minute
	maxPairings  = 1000 // not yet used
	pairingRate  = 20   // attempts a second, from everywhere
	pairingBurst = 200
	codeLen      = 10 // characters of 5 bits
)

// crockford is base32 without the letters that are taken for others (I, L, O, U).
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// pairings are the codes that wait to be used. They are in memory alone.
type pairings struct {
	attempts *limit.Rates[struct{}]

	mu     sync.Mutex
	byHash map[[sha256.Size]byte]pairing
}

type pairing struct {
	bridge  session.BridgeID
	name    string
	by      string // ID of the token that asked for it
	expires time.Time
}

func newPairings() *pairings {
	return &pairings{attempts: limit.NewRates[struct{}](pairingRate, pairingBurst), byHash: map[[sha256.Size]byte]pairing{}}
}

// mint makes a code, such as 7KQ2M-X40ZD.
func (p *pairings) mint(one pairing, now time.Time) (code string, err error) {
	var random [codeLen]byte
	rand.Read(random[:]) //nolint:errcheck // never fails since Go 1.24
	for i := range random {
		random[i] = crockford[random[i]%32]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byHash) >= maxPairings {
		maps.DeleteFunc(p.byHash, func(_ [sha256.Size]byte, one pairing) bool { return !now.Before(one.expires) })
	}
	if len(p.byHash) >= maxPairings {
		return "", &session.LimitError{Limit: "pairing codes that are not yet used", Max: maxPairings}
	}
	p.byHash[sha256.Sum256(random[:])] = one
	return string(random[:codeLen/2]) + "-" + string(random[codeLen/2:]), nil
}

// take uses a code up, as people type it.
func (p *pairings) take(code string, now time.Time) (one pairing, ok bool) {
	code = strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(code))
	hash := sha256.Sum256([]byte(code))
	p.mu.Lock()
	defer p.mu.Unlock()
	one, ok = p.byHash[hash]
	delete(p.byHash, hash)
	return one, ok && now.Before(one.expires)
}

type (
	createPairingInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Body   *pairingBody
	}
	pairingBody struct {
		Name string `json:"name,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"That of the token that the code is swapped for: whose it is, or where it is kept."`
	}
	pairingOutput struct {
		Body struct {
			Code    string    `json:"code" doc:"For one provider. Upper and lower case and dashes do not count." example:"7KQ2M-X40ZD"`
			Expires time.Time `json:"expires"`
		}
	}
	pairInput struct {
		Body struct {
			Code string `json:"code" minLength:"1" maxLength:"40" doc:"As it was given."`
		}
	}
	pairOutput struct {
		Body struct {
			Bridge      session.BridgeID `json:"bridge"`
			ProviderURL string           `json:"providerUrl" format:"uri" doc:"Where to connect: WebSocket."`
			TokenID     string           `json:"tokenId" doc:"By which the bridge's owner sees and revokes the token."`
			Token       string           `json:"token" doc:"The provider token's text. Shown once."`
		}
	}
)

func (s *server) registerPairings(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	create := operation("createPairing", http.MethodPost, "/api/v1/bridges/{bridge}/pairings", "Create a pairing code", http.StatusCreated,
		http.StatusBadRequest, http.StatusNotFound)
	create.Description = "A short code that a provider swaps, once and within ten minutes, for a provider token of its own, which can be revoked alone. It is void once the token that asked for it is revoked."
	create.Metadata[scopeKey] = ScopeTokens
	create.Tags = []string{"tokens"}
	huma.Register(s.api, create, s.createPairing)

	use := operation("pair", http.MethodPost, "/api/v1/pair", "Swap a pairing code for a provider token", http.StatusCreated)
	use.Description = "Needs no token. Attempts are limited, 20 a second in all."
	use.Errors = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	use.Tags = []string{"tokens"}
	use.Security = []map[string][]string{}
	use.Middlewares = huma.Middlewares{s.attempt}
	huma.Register(s.api, use, s.pair)
}

// attempt counts whoever tries a code.
func (s *server) attempt(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	var err error
	if s.Attempt != nil {
		err = s.Attempt(r)
	}
	if err == nil && !s.pairings.attempts.Allow(struct{}{}) {
		err = &session.LimitError{Limit: "pairing codes tried a second", Max: pairingRate}
	}
	if err == nil {
		next(ctx)
		return
	}
	fault := s.Fault(err)
	w.Header().Set("Retry-After", fmt.Sprint(max(1, seconds(fault.RetryAfter))))
	writeProblem(w, http.StatusTooManyRequests, fault.Message)
}

func (s *server) createPairing(ctx context.Context, in *createPairingInput) (*pairingOutput, error) {
	b, err := s.find(ctx, in.Bridge)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create pairing: %w", err), "path.bridge", string(in.Bridge))
	}
	now := s.Now()
	one := pairing{bridge: b.ID, name: "paired " + rand.Text()[:6], by: actor(ctx).Token, expires: now.Add(pairingLife)}
	if in.Body != nil && in.Body.Name != "" {
		one.name = in.Body.Name
	}
	out := new(pairingOutput)
	if out.Body.Code, err = s.pairings.mint(one, now); err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create pairing: %w", err), "", "")
	}
	out.Body.Expires = one.expires.UTC()
	return out, nil
}

// noCode is the problem of a code that is not good, for whatever reason.
func noCode() error {
	return &huma.ErrorModel{
		Status: http.StatusNotFound, Title: http.StatusText(http.StatusNotFound),
		Detail: "there is no such code: it was mistyped or used, or is older than ten minutes",
	}
}

func (s *server) pair(ctx context.Context, in *pairInput) (*pairOutput, error) {
	one, ok := s.pairings.take(in.Body.Code, s.Now())
	if !ok {
		return nil, noCode()
	}
	if one.by != "" { // who asked for it may be gone by now
		by, err := s.Store.Token(ctx, one.by)
		switch {
		case errors.Is(err, store.ErrNotFound), err == nil && !by.Expires.IsZero() && !s.Now().Before(by.Expires):
			return nil, noCode()
		case err != nil:
			return nil, s.problem(ctx, fmt.Errorf("rest: pair: %w", err), "", "")
		}
	}
	if _, err := s.Store.Bridge(ctx, one.bridge); errors.Is(err, store.ErrNotFound) {
		return nil, noCode()
	}
	made, err := s.issue(ctx, store.Token{Kind: store.ProviderToken, Bridge: one.bridge, Name: one.name}, one.by)
	if err != nil {
		return nil, err
	}
	out := new(pairOutput)
	out.Body.Bridge, out.Body.TokenID, out.Body.Token = one.bridge, made.Body.ID, made.Body.Secret
	out.Body.ProviderURL = webSocket(s.PublicURL+"/b/"+string(one.bridge)) + "/provider"
	return out, nil
}
