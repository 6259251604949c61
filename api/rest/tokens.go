package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// MaxActive is how many tokens of one kind and name are good at a time: the one in use
// and the one that takes its place.
const MaxActive = 2

// Defaults of how long a token is good.
const (
	keyLife    = 90 * 24 * time.Hour
	maxKeyLife = 366 * 24 * time.Hour
	overlap    = 24 * time.Hour // of an old token with the one that takes its place
)

// words are the kinds of token as the API says them.
var words = map[store.TokenKind]string{store.ClientToken: "client", store.ProviderToken: "provider", store.RESTKey: "key"}

// token is a token as the API shows it: without its secret.
type token struct {
	ID        string     `json:"id" doc:"The public part of the token's text."`
	Kind      string     `json:"kind" enum:"client,provider,key"`
	Name      string     `json:"name,omitempty" doc:"For people. At most two tokens of one kind and name are good at a time."`
	Tenant    string     `json:"tenant,omitempty" doc:"Of a key: within which it may act."`
	Scopes    []string   `json:"scopes,omitempty" doc:"Of a key: what it may do."`
	Created   time.Time  `json:"created"`
	Expires   *time.Time `json:"expires,omitempty" doc:"Absent for one that does not expire."`
	LastUsed  *time.Time `json:"lastUsed,omitempty" doc:"To about five minutes. Absent for one that was never used."`
	CreatedBy string     `json:"createdBy,omitempty" doc:"ID of the token that asked for it."`
}

type mintedToken struct {
	token
	Secret string `json:"token" doc:"The bearer token's text. Shown once."`
}

type (
	tokensInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
	}
	tokensOutput struct {
		Body struct {
			Tokens []token `json:"tokens" doc:"In the order of their IDs, with those that have expired."`
		}
	}
	createTokenInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Body   struct {
			Kind    string     `json:"kind" enum:"client,provider" doc:"client: for MCP clients; provider: for tool providers."`
			Name    string     `json:"name,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people: whose it is, or where it is kept."`
			Expires *time.Time `json:"expires,omitempty" doc:"Absent for one that does not expire."`
		}
	}
	mintedOutput struct {
		Body mintedToken
	}
	tokenInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Token  string           `path:"token" maxLength:"256" doc:"The token's ID."`
	}
	rotateInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Token  string           `path:"token" maxLength:"256" doc:"The token's ID."`
		Body   *rotateBody
	}
	rotateBody struct {
		Overlap *int `json:"overlapSeconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the old token stays good: by default a day. With 0 it is revoked at once."`
	}
)

func (s *server) registerTokens(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	scoped := func(op huma.Operation) huma.Operation {
		if op.Method != http.MethodGet {
			op.Metadata[scopeKey] = ScopeTokens
		}
		op.Tags = []string{"tokens"}
		return op
	}
	const all, one = "/api/v1/bridges/{bridge}/tokens", "/api/v1/bridges/{bridge}/tokens/{token}"
	huma.Register(s.api, scoped(operation("listTokens", http.MethodGet, all, "List a bridge's tokens", http.StatusOK, http.StatusNotFound)), s.tokens)
	create := scoped(operation("createToken", http.MethodPost, all, "Create a token of a bridge", http.StatusCreated,
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict))
	create.Description = "409 if two of that kind and name are good already."
	huma.Register(s.api, create, s.createToken)
	rotate := scoped(operation("rotateToken", http.MethodPost, one+"/rotate", "Put another in a token's place", http.StatusCreated,
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict))
	rotate.Description = "The new one has the old one's kind, name and length of life. The old one stays good for a while, so that whoever uses it can change over."
	huma.Register(s.api, rotate, s.rotateToken)
	revoke := scoped(operation("revokeToken", http.MethodDelete, one, "Revoke a token", http.StatusNoContent, http.StatusNotFound))
	revoke.Description = "Whatever is connected with it is disconnected within a second: providers with close code 4401."
	huma.Register(s.api, revoke, s.revokeToken)
}

func showToken(t *store.Token) token {
	out := token{ID: t.ID, Kind: words[t.Kind], Name: t.Name, Created: t.Created.UTC(), CreatedBy: t.By, Scopes: strings.Fields(t.Scopes)}
	if t.Kind == store.RESTKey {
		out.Tenant = showTenant(t.Tenant)
	}
	if !t.Expires.IsZero() {
		at := t.Expires.UTC()
		out.Expires = &at
	}
	if !t.LastUsed.IsZero() {
		at := t.LastUsed.UTC()
		out.LastUsed = &at
	}
	return out
}

func (s *server) tokens(ctx context.Context, in *tokensInput) (*tokensOutput, error) {
	b, err := s.find(ctx, in.Bridge)
	var all []store.Token
	if err == nil {
		all, err = s.Store.Tokens(ctx, b.ID)
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: list tokens: %w", err), "path.bridge", string(in.Bridge))
	}
	out := new(tokensOutput)
	out.Body.Tokens = []token{}
	for i := range all {
		out.Body.Tokens = append(out.Body.Tokens, showToken(&all[i]))
	}
	return out, nil
}

func (s *server) createToken(ctx context.Context, in *createTokenInput) (*mintedOutput, error) {
	b, err := s.find(ctx, in.Bridge)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create token: %w", err), "path.bridge", string(in.Bridge))
	}
	t := store.Token{Bridge: b.ID, Name: in.Body.Name, Kind: store.ClientToken}
	if in.Body.Kind == words[store.ProviderToken] {
		t.Kind = store.ProviderToken
	}
	if in.Body.Expires != nil {
		if t.Expires = *in.Body.Expires; !t.Expires.After(s.Now()) {
			return nil, invalid("body.expires", t.Expires.Format(time.RFC3339), "expected a time to come")
		}
	}
	return s.issue(ctx, t, actor(ctx).Token)
}

// errTwo is the problem of a token that would be one too many.
func errTwo() error {
	return &huma.ErrorModel{
		Status: http.StatusConflict, Title: http.StatusText(http.StatusConflict),
		Detail: fmt.Sprintf("%d tokens of that kind and name are good already: revoke one, or give another name", MaxActive),
	}
}

// issue mints a token like another, in the name of one, and shows it.
func (s *server) issue(ctx context.Context, like store.Token, by string) (*mintedOutput, error) {
	now := s.Now().UTC()
	t, secret := credential.New(like.Kind, like.Bridge, now)
	t.Expires, t.Tenant, t.Name, t.Scopes, t.By = like.Expires.UTC(), like.Tenant, like.Name, like.Scopes, by
	err := s.add(ctx, t, now)
	if told, ok := errors.AsType[huma.StatusError](err); ok {
		return nil, told
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create token: %w", err), "", "")
	}
	s.tell(ctx, "created", &t)
	return &mintedOutput{mintedToken{showToken(&t), secret.Reveal()}}, nil
}

// add writes a token unless there are enough like it.
func (s *server) add(ctx context.Context, t store.Token, now time.Time) error {
	s.minting.Lock() // over the store: who provisions waits for who provisions
	defer s.minting.Unlock()
	known, err := s.Store.Tokens(ctx, t.Bridge)
	if err != nil {
		return err
	}
	active := 0
	for _, k := range known {
		if k.Kind == t.Kind && k.Name == t.Name && k.Tenant == t.Tenant && (k.Expires.IsZero() || k.Expires.After(now)) {
			active++
		}
	}
	switch {
	case active >= MaxActive:
		return errTwo()
	case t.Bridge != "":
		return s.Store.AddToken(ctx, s.epoch(t.Bridge), t)
	default:
		return s.Store.PutToken(ctx, t)
	}
}

// bridgeToken finds a token of a bridge that the actor sees.
func (s *server) bridgeToken(ctx context.Context, bridge session.BridgeID, id string) (t store.Token, err error) {
	b, err := s.find(ctx, bridge)
	if err != nil {
		return t, err
	}
	if t, err = s.Store.Token(ctx, id); err == nil && t.Bridge != b.ID {
		err = store.ErrNotFound
	}
	return t, err
}

func (s *server) rotateToken(ctx context.Context, in *rotateInput) (*mintedOutput, error) {
	t, err := s.bridgeToken(ctx, in.Bridge, in.Token)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: rotate token: %w", err), "path.token", in.Token)
	}
	return s.rotate(ctx, t, in.Body)
}

// rotate puts another token in the place of one.
func (s *server) rotate(ctx context.Context, old store.Token, body *rotateBody) (*mintedOutput, error) {
	now := s.Now().UTC()
	like := old
	if !old.Expires.IsZero() {
		like.Expires = now.Add(old.Expires.Sub(old.Created))
	}
	out, err := s.issue(ctx, like, actor(ctx).Token)
	if err != nil {
		return nil, err
	}
	stays := overlap
	if body != nil && body.Overlap != nil {
		stays = time.Duration(*body.Overlap) * time.Second
	}
	until := now.Add(stays)
	switch {
	case stays == 0:
		err = s.end(ctx, &old)
	case old.Expires.IsZero() || old.Expires.After(until):
		if err = s.Store.ExpireToken(ctx, old.ID, until); err == nil {
			s.Expires(old.ID, until)
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, s.problem(ctx, fmt.Errorf("rest: rotate token: %w", err), "", "")
	}
	return out, nil
}

// end revokes a token, and what is live under it.
func (s *server) end(ctx context.Context, t *store.Token) error {
	if err := s.Store.DeleteToken(ctx, t.ID); err != nil {
		return err
	}
	s.Revoked(func(other store.Token) bool { return other.ID == t.ID })
	s.tell(ctx, "revoked", t)
	return nil
}

func (s *server) revokeToken(ctx context.Context, in *tokenInput) (*struct{}, error) {
	t, err := s.bridgeToken(ctx, in.Bridge, in.Token)
	if err == nil {
		err = s.end(ctx, &t)
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: revoke token: %w", err), "path.token", in.Token)
	}
	return nil, nil
}

// tell logs what was done with a token.
func (s *server) tell(ctx context.Context, what string, t *store.Token) {
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "a token changed", slog.String("change", what), slog.String("token", t.ID), slog.String("kind", words[t.Kind]),
			slog.String("bridge", string(t.Bridge)), slog.String("by", actor(ctx).Token))
	}
}
