package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/store"
)

// defaultTenant is how the API says the store's empty TenantID.
const defaultTenant = "default"

func showTenant(id store.TenantID) string {
	if id == "" {
		return defaultTenant
	}
	return string(id)
}

func readTenant(text string) store.TenantID {
	if text == defaultTenant {
		return ""
	}
	return store.TenantID(text)
}

type (
	keysInput struct {
		Tenant string `query:"tenant" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Only those of this tenant. A key sees those of its own alone."`
	}
	createKeyInput struct {
		Body struct {
			Tenant  string     `json:"tenant,omitempty" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Within which the key may act: by default the asking key's own, or default."`
			Name    string     `json:"name,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people: whose it is, or where it is kept."`
			Scopes  []string   `json:"scopes,omitempty" enum:"bridges:read,bridges:write,tokens:write" maxItems:"3" uniqueItems:"true" doc:"What it may do: by default all that the asking key may."`
			Expires *time.Time `json:"expires,omitempty" doc:"By default in 90 days, at most in a year."`
			Never   bool       `json:"neverExpires,omitempty" doc:"It does not expire. For administrators."`
		}
	}
	keyInput struct {
		Token string `path:"token" maxLength:"256" doc:"The key's ID."`
	}
	rotateKeyInput struct {
		Token string `path:"token" maxLength:"256" doc:"The key's ID."`
		Body  *rotateBody
	}
)

func (s *server) registerKeys(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	scoped := func(op huma.Operation) huma.Operation {
		op.Metadata[scopeKey] = ScopeTokens
		op.Tags = []string{"keys"}
		return op
	}
	huma.Register(s.api, scoped(operation("listKeys", http.MethodGet, "/api/v1/keys", "List REST keys", http.StatusOK)), s.keys)
	create := scoped(operation("createKey", http.MethodPost, "/api/v1/keys", "Create a REST key", http.StatusCreated,
		http.StatusBadRequest, http.StatusConflict))
	create.Description = "A key acts within one tenant, and may do no more than who asks for it. 409 if two of that name are good already."
	huma.Register(s.api, create, s.createKey)
	rotate := scoped(operation("rotateKey", http.MethodPost, "/api/v1/keys/{token}/rotate", "Put another in a REST key's place", http.StatusCreated,
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict))
	rotate.Description = "The new one has the old one's name, tenant, scopes and length of life. The old one stays good for a while, so that whoever uses it can change over."
	huma.Register(s.api, rotate, s.rotateKey)
	huma.Register(s.api, scoped(operation("revokeKey", http.MethodDelete, "/api/v1/keys/{token}", "Revoke a REST key", http.StatusNoContent, http.StatusNotFound)), s.revokeKey)
}

func (s *server) keys(ctx context.Context, in *keysInput) (*tokensOutput, error) {
	all, err := s.Store.Tokens(ctx, "")
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: list keys: %w", err), "", "")
	}
	out := new(tokensOutput)
	out.Body.Tokens = []token{}
	for i := range all {
		t := &all[i]
		if t.Kind == store.RESTKey && actor(ctx).sees(t.Tenant) && (in.Tenant == "" || in.Tenant == showTenant(t.Tenant)) {
			out.Body.Tokens = append(out.Body.Tokens, showToken(t))
		}
	}
	return out, nil
}

func (s *server) createKey(ctx context.Context, in *createKeyInput) (*mintedOutput, error) {
	who, now := actor(ctx), s.Now()
	t := store.Token{Kind: store.RESTKey, Name: in.Body.Name}
	var err error
	if t.Tenant, err = s.tenantFor(ctx, in.Body.Tenant); err != nil {
		return nil, err
	}
	wanted := in.Body.Scopes
	if wanted == nil {
		wanted = slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool { return !who.may(scope) })
	}
	for _, scope := range wanted {
		if !who.may(scope) {
			return nil, invalid("body.scopes", scope, "expected no more than the asking key may")
		}
	}
	t.Scopes = strings.Join(wanted, " ")
	switch {
	case in.Body.Never && !who.Admin:
		return nil, invalid("body.neverExpires", "", "expected of an administrator alone")
	case in.Body.Never:
	case in.Body.Expires == nil:
		t.Expires = now.Add(keyLife)
	case !in.Body.Expires.After(now) || in.Body.Expires.After(now.Add(maxKeyLife)):
		return nil, invalid("body.expires", in.Body.Expires.Format(time.RFC3339), "expected a time to come, within a year")
	default:
		t.Expires = *in.Body.Expires
	}
	return s.issue(ctx, t, who.Token)
}

// tenantFor is the tenant that a request names, or its actor's own. One that the actor
// does not see is one that does not exist.
func (s *server) tenantFor(ctx context.Context, named string) (store.TenantID, error) {
	who := actor(ctx)
	if named == "" {
		return who.Tenant, nil
	}
	id, err := readTenant(named), store.ErrNotFound
	if who.sees(id) {
		err = nil
		if id != "" {
			_, err = s.Store.Tenant(ctx, id)
		}
	}
	switch {
	case err == nil:
		return id, nil
	case s.Fault(err).Status == http.StatusNotFound:
		return "", invalid("body.tenant", named, "there is no such tenant")
	default:
		return "", s.problem(ctx, fmt.Errorf("rest: tenant: %w", err), "", "")
	}
}

// key finds a REST key that the actor sees, and may do no more than the actor.
func (s *server) key(ctx context.Context, id string) (store.Token, error) {
	t, err := s.Store.Token(ctx, id)
	if err == nil && (t.Kind != store.RESTKey || !actor(ctx).sees(t.Tenant)) {
		err = store.ErrNotFound
	}
	return t, err
}

func (s *server) rotateKey(ctx context.Context, in *rotateKeyInput) (*mintedOutput, error) {
	t, err := s.key(ctx, in.Token)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: rotate key: %w", err), "path.token", in.Token)
	}
	for scope := range strings.FieldsSeq(t.Scopes) {
		if !actor(ctx).may(scope) { // whoever rotates it, has it
			return nil, invalid("path.token", in.Token, "the key may do more than the asking one")
		}
	}
	if t.Expires.IsZero() && !actor(ctx).Admin {
		return nil, invalid("path.token", in.Token, "the key does not expire: an administrator rotates it")
	}
	return s.rotate(ctx, t, in.Body)
}

func (s *server) revokeKey(ctx context.Context, in *keyInput) (*struct{}, error) {
	t, err := s.key(ctx, in.Token)
	if err == nil {
		err = s.end(ctx, &t)
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: revoke key: %w", err), "path.token", in.Token)
	}
	return nil, nil
}
