package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// Bounds of what a client may send.
const (
	MaxName   = 200      // characters of a name or an owner
	MaxPolicy = 16 << 10 // bytes of a policy
	MaxList   = 200      // bridges of one page
	MaxKey    = 255      // characters of an Idempotency-Key
)

// policy is a JSON object, kept as it came: numbers keep every digit.
type policy struct{ json.RawMessage }

// Schema implements huma.SchemaProvider.
func (policy) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeObject,
		Description: fmt.Sprintf("Settings of the bridge, at most %d bytes. Absent members have their defaults; members that are not named here are kept.", MaxPolicy),
		Properties: map[string]*huma.Schema{
			"instances": {
				Type:        huma.TypeString,
				Enum:        []any{session.Share, session.Single, session.Reject},
				Description: "What a further live instance of a provider does: it joins the others, closes them, or is refused. By default share.",
			},
			"names": {
				Type:        huma.TypeString,
				Enum:        []any{session.Suffix, session.Reject},
				Description: "What becomes of a name that another provider holds: the newcomer is listed under another name, or refused. By default suffix.",
			},
			"definitions": {
				Type:        huma.TypeString,
				Enum:        []any{session.Pin, session.Trust},
				Description: "What becomes of a changed definition of a known tool: it is held until it is approved, or listed. By default pin, in open mode trust.",
			},
		},
		AdditionalProperties: true,
	}
}

// bridge is a bridge as the API shows it.
type bridge struct {
	ID      session.BridgeID `json:"id" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Names the bridge in its URLs." example:"k3v6xq2m7d4bnw5tzr2cyfhp4e"`
	Name    string           `json:"name,omitempty" doc:"For people."`
	Owner   string           `json:"owner,omitempty" doc:"For people."`
	Tenant  string           `json:"tenant" doc:"Whose keys may manage it." example:"default"`
	Policy  *policy          `json:"policy,omitempty"`
	Created time.Time        `json:"created"`
	Updated time.Time        `json:"updated"`

	MCPURL      string `json:"mcpUrl" format:"uri" doc:"For MCP clients: Streamable HTTP, every revision."`
	SSEURL      string `json:"sseUrl" format:"uri" doc:"For MCP clients of revision 2024-11-05: HTTP+SSE."`
	ProviderURL string `json:"providerUrl" format:"uri" doc:"For tool providers: WebSocket."`
	HealthURL   string `json:"healthUrl" format:"uri" doc:"What is connected, and which tools there are."`

	Live any `json:"live,omitempty" doc:"The bridge's live session, where there is one."`
}

// created is a bridge and its secrets, which are shown this once.
type created struct {
	bridge
	ClientToken   string `json:"clientToken" doc:"Bearer token for MCP clients. Shown once."`
	ProviderToken string `json:"providerToken" doc:"Bearer token for tool providers. Shown once."`
}

type (
	createInput struct {
		Key  string `header:"Idempotency-Key" maxLength:"255" doc:"A repeated POST with the same key and body answers as the first did, tokens included, instead of making another bridge. Remembered in memory for an hour, at most 1,000 keys, and not across a restart."`
		Body *createBody
	}
	createBody struct {
		Name   string  `json:"name,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people." example:"Ada's browser"`
		Owner  string  `json:"owner,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people." example:"ada@example.com"`
		Tenant string  `json:"tenant,omitempty" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Whose it is, for good: by default the asking key's own, or default."`
		Policy *policy `json:"policy,omitempty"`
	}
	createOutput struct {
		Location string `header:"Location" doc:"The bridge, in this API."`
		ETag     string `header:"ETag"`
		Body     created
	}

	listInput struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Bridges of one page."`
		Cursor string `query:"cursor" maxLength:"200" doc:"nextCursor of the page before; none gives the first page."`
		Tenant string `query:"tenant" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Only those of this tenant. A key sees those of its own alone."`
	}
	listOutput struct {
		Body page
	}
	page struct {
		Bridges    []bridge `json:"bridges" doc:"In the order of their IDs."`
		NextCursor string   `json:"nextCursor,omitempty" doc:"Absent on the last page."`
	}

	getInput struct {
		Bridge      session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		IfNoneMatch []string         `header:"If-None-Match" doc:"ETags that the client holds: 304 if one is current."`
	}
	getOutput struct {
		ETag string `header:"ETag"`
		Body bridge
	}

	deleteInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
	}
)

// register adds every operation. The errors listed are those that the operation
// itself can give; huma adds 422 and 500.
func (s *server) register() {
	operation := func(id, method, path, summary string, status int, errs ...int) huma.Operation {
		scope := scopeAdmin // of what does not say otherwise
		switch {
		case !strings.HasPrefix(path, "/api/v1/bridges"):
		case method == http.MethodGet:
			scope = ScopeRead
		default:
			scope = ScopeWrite
		}
		return huma.Operation{
			Metadata:      map[string]any{scopeKey: scope},
			OperationID:   id,
			Method:        method,
			Path:          path,
			Summary:       summary,
			Tags:          []string{"bridges"},
			DefaultStatus: status,
			MaxBodyBytes:  MaxBody,
			Errors:        append(errs, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable),
			Security:      []map[string][]string{{"admin": {}}, {"key": {}}},
			Middlewares:   huma.Middlewares{s.authorize},
		}
	}
	create := operation("createBridge", http.MethodPost, "/api/v1/bridges", "Create a bridge", http.StatusCreated,
		http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	create.Description = "Mints an ID of 128 random bits and two tokens, which no later answer shows again."
	huma.Register(s.api, create, s.create)
	huma.Register(s.api, operation("listBridges", http.MethodGet, "/api/v1/bridges", "List bridges", http.StatusOK,
		http.StatusUnprocessableEntity), s.list)
	get := operation("getBridge", http.MethodGet, "/api/v1/bridges/{bridge}", "Read a bridge", http.StatusOK, http.StatusNotFound)
	get.Responses = map[string]*huma.Response{"304": {Description: "The client's copy is current."}}
	huma.Register(s.api, get, s.get)
	s.registerUpdate(operation("updateBridge", http.MethodPatch, "/api/v1/bridges/{bridge}", "Change a bridge", http.StatusOK,
		http.StatusBadRequest, http.StatusNotFound, http.StatusRequestTimeout, http.StatusPreconditionFailed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType))
	remove := operation("deleteBridge", http.MethodDelete, "/api/v1/bridges/{bridge}", "Delete a bridge", http.StatusNoContent, http.StatusNotFound)
	remove.Description = "Removes the bridge, its tokens and its tools, and disconnects its providers and clients."
	huma.Register(s.api, remove, s.delete)
	s.registerTools(operation)
	s.registerTokens(operation)
	s.registerTickets(operation)
	s.registerPairings(operation)
	s.registerKeys(operation)
	s.registerTenants(operation)
	s.registerBackup(operation)
}

func (s *server) create(ctx context.Context, in *createInput) (*createOutput, error) {
	body := in.Body
	if body == nil {
		body = new(createBody)
	}
	if body.Policy != nil {
		if err := checkPolicy(body.Policy.RawMessage); err != nil {
			return nil, err
		}
	}
	if in.Key == "" {
		return s.mint(ctx, body)
	}
	// Everybody's keys are their own.
	out, err := s.replays.do(ctx, actor(ctx).Token+" "+in.Key, fingerprint(body), s.Now(), func() (*createOutput, error) { return s.mint(ctx, body) })
	switch _, told := errors.AsType[huma.StatusError](err); {
	case err == nil || told:
		return out, err
	case errors.Is(err, errKeyReused):
		return nil, invalid("header.Idempotency-Key", in.Key, err.Error())
	default:
		return nil, s.problem(ctx, fmt.Errorf("rest: create bridge: %w", err), "", "")
	}
}

// mint makes the bridge and its tokens, and shows the tokens.
func (s *server) mint(ctx context.Context, body *createBody) (*createOutput, error) {
	tenant, err := s.tenantFor(ctx, body.Tenant)
	if err != nil {
		return nil, err
	}
	now := s.Now().UTC()
	b := store.Bridge{
		Tenant:  tenant,
		ID:      session.NewBridgeID(),
		Name:    body.Name,
		Owner:   body.Owner,
		Created: now,
		Updated: now,
		Version: 1,
	}
	if body.Policy != nil {
		b.Policy = body.Policy.RawMessage
	}
	client, clientSecret := credential.New(store.ClientToken, b.ID, now)
	provider, providerSecret := credential.New(store.ProviderToken, b.ID, now)
	if err := s.Store.CreateBridge(ctx, s.epoch(b.ID), b, client, provider); err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create bridge: %w", err), "", "")
	}
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "bridge created", slog.String("bridge", string(b.ID)))
	}
	return &createOutput{
		Location: s.PublicURL + "/api/v1/bridges/" + string(b.ID),
		ETag:     etag(b.Version),
		Body: created{
			bridge:        s.show(b),
			ClientToken:   clientSecret.Reveal(),
			ProviderToken: providerSecret.Reveal(),
		},
	}, nil
}

func (s *server) list(ctx context.Context, in *listInput) (*listOutput, error) {
	after, ok := openCursor(in.Cursor)
	if !ok {
		return nil, invalid("query.cursor", in.Cursor, "not a cursor of this API; use nextCursor as it came")
	}
	// One more than asked for tells whether there is another page.
	read := s.Store.Bridges
	if who := actor(ctx); !who.Admin || in.Tenant != "" {
		tenant := readTenant(in.Tenant)
		if in.Tenant == "" {
			tenant = who.Tenant
		}
		read = func(ctx context.Context, after session.BridgeID, limit int) ([]store.Bridge, error) {
			if !who.sees(tenant) {
				return nil, nil
			}
			return s.Store.BridgesOf(ctx, tenant, after, limit)
		}
	}
	bridges, err := read(ctx, after, in.Limit+1)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: list bridges: %w", err), "", "")
	}
	out := &listOutput{Body: page{Bridges: make([]bridge, 0, min(len(bridges), in.Limit))}}
	for _, b := range bridges[:min(len(bridges), in.Limit)] {
		out.Body.Bridges = append(out.Body.Bridges, s.show(b))
	}
	if len(bridges) > in.Limit {
		out.Body.NextCursor = sealCursor(bridges[in.Limit-1].ID)
	}
	return out, nil
}

func (s *server) get(ctx context.Context, in *getInput) (*getOutput, error) {
	b, err := s.find(ctx, in.Bridge)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: get bridge: %w", err), "path.bridge", string(in.Bridge))
	}
	tag := etag(b.Version)
	for _, held := range in.IfNoneMatch {
		// RFC 9110, section 13.1.2: the weak comparison.
		if held = strings.TrimSpace(held); held == "*" || strings.TrimPrefix(held, "W/") == tag {
			return nil, huma.ErrorWithHeaders(huma.Status304NotModified(), http.Header{"ETag": {tag}})
		}
	}
	out := &getOutput{ETag: tag, Body: s.show(b)}
	if s.Live != nil {
		out.Body.Live = s.Live(b.ID)
	}
	return out, nil
}

func (s *server) delete(ctx context.Context, in *deleteInput) (*struct{}, error) {
	_, err := s.find(ctx, in.Bridge)
	if err == nil {
		err = s.Store.DeleteBridge(ctx, s.epoch(in.Bridge), in.Bridge)
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: delete bridge: %w", err), "path.bridge", string(in.Bridge))
	}
	s.replays.forget(in.Bridge)
	s.Deleted(in.Bridge)
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "bridge deleted", slog.String("bridge", string(in.Bridge)))
	}
	return nil, nil
}

// find reads a bridge. An ID that no bridge can have is one that is not there, and so is
// that of another tenant's bridge.
func (s *server) find(ctx context.Context, id session.BridgeID) (store.Bridge, error) {
	if !id.Valid() {
		return store.Bridge{}, store.ErrNotFound
	}
	b, err := s.Store.Bridge(ctx, id)
	if err == nil && !actor(ctx).sees(b.Tenant) {
		return store.Bridge{}, fmt.Errorf("bridge %s: %w", id, store.ErrNotFound)
	}
	return b, err
}

func (s *server) epoch(id session.BridgeID) store.Epoch {
	return s.Epoch(store.ShardOf(id, s.Store.Shards()))
}

// show is the bridge without its live session.
func (s *server) show(b store.Bridge) bridge {
	base := s.PublicURL + "/b/" + string(b.ID)
	out := bridge{
		ID:          b.ID,
		Name:        b.Name,
		Owner:       b.Owner,
		Tenant:      showTenant(b.Tenant),
		Created:     b.Created.UTC(),
		Updated:     b.Updated.UTC(),
		MCPURL:      base + "/mcp",
		SSEURL:      base + "/sse",
		ProviderURL: webSocket(base) + "/provider",
		HealthURL:   base + "/health",
	}
	if len(b.Policy) > 0 {
		out.Policy = &policy{b.Policy}
	}
	return out
}

// webSocket is an http or https URL with the scheme ws or wss.
func webSocket(url string) string {
	return "ws" + strings.TrimPrefix(url, "http")
}

func etag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// A cursor is the ID of the last bridge seen. Its form is nobody's business.
func sealCursor(id session.BridgeID) string {
	return base64.RawURLEncoding.EncodeToString([]byte("after:" + id))
}

func openCursor(cursor string) (session.BridgeID, bool) {
	if cursor == "" {
		return "", true
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", false
	}
	id, ok := strings.CutPrefix(string(text), "after:")
	return session.BridgeID(id), ok && session.BridgeID(id).Valid()
}
