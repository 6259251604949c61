package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"mcpbridge/api/credential"
	"mcpbridge/api/rest"
	"mcpbridge/api/wire"
	"mcpbridge/session"
	"mcpbridge/store"
)

const (
	publicURL = "https://bridge.example.com/base"
	adminText = "an-administrators-own-token-of-enough-characters"
	bridges   = "/api/v1/bridges"
)

// edge is the API as a client sees it, over the reference store.
type edge struct {
	t       *testing.T
	handler http.Handler
	config  rest.Config
	store   store.Store
	updated []session.BridgeID
	deleted []session.BridgeID
	actors  map[string]rest.Actor // by the text of their token
	revoked []func(store.Token) bool
	expired []string
	tickets []string
	now     time.Time
	log     bytes.Buffer
	broken  error // what the store answers instead of working
}

// brokenStore fails as told, so that the tests see what a client then sees.
type brokenStore struct {
	store.Store
	edge *edge
}

func (b brokenStore) CreateBridge(ctx context.Context, epoch store.Epoch, bridge store.Bridge, tokens ...store.Token) error {
	if b.edge.broken != nil {
		return b.edge.broken
	}
	return b.Store.CreateBridge(ctx, epoch, bridge, tokens...)
}

func (b brokenStore) Bridges(ctx context.Context, after session.BridgeID, limit int) ([]store.Bridge, error) {
	if b.edge.broken != nil {
		return nil, b.edge.broken
	}
	return b.Store.Bridges(ctx, after, limit)
}

var errDown = errors.New("disk on fire at /secret/path")

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{t: t, actors: map[string]rest.Actor{}, store: store.NewMemory(8), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	for shard := range e.store.Shards() {
		if _, err := e.store.Acquire(t.Context(), store.Shard(shard), "test"); err != nil {
			t.Fatal(err)
		}
	}
	token, err := credential.FromText(adminText, e.now)
	if err != nil {
		t.Fatal(err)
	}
	errDenied := errors.New("no credential")
	e.config = rest.Config{
		Store:     brokenStore{e.store, e},
		Epoch:     func(store.Shard) store.Epoch { return 1 },
		PublicURL: publicURL + "/",
		Deleted:   func(id session.BridgeID) { e.deleted = append(e.deleted, id) },
		Updated: func(_ context.Context, id session.BridgeID) error {
			e.updated = append(e.updated, id)
			return nil
		},
		Live: func(id session.BridgeID) any {
			if b, err := e.store.Bridge(context.Background(), id); err == nil && b.Name == "live" {
				return map[string]int{"providers": 2}
			}
			return nil
		},
		Authorize: func(r *http.Request) (rest.Actor, error) {
			text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			switch {
			case ok && text == "down":
				return rest.Actor{}, errDown
			case ok && credential.Verify(token, text):
				return rest.Actor{Token: token.ID, Admin: true}, nil
			}
			if a, known := e.actors[text]; ok && known {
				return a, nil
			}
			return rest.Actor{}, errDenied
		},
		Ticket: func(bridge session.BridgeID, origin, by string) (credential.Secret, time.Time, error) {
			_, secret := credential.New(credential.Ticket, bridge, e.now)
			e.tickets = append(e.tickets, strings.Join([]string{string(bridge), origin, by}, " "))
			return secret, e.now.Add(30 * time.Second), nil
		},
		Revoked: func(match func(store.Token) bool) { e.revoked = append(e.revoked, match) },
		Expires: func(id string, _ time.Time) { e.expired = append(e.expired, id) },
		Fault: func(err error) wire.Fault {
			switch {
			case errors.Is(err, store.ErrNotFound):
				return wire.Fault{Name: "not_found", Status: http.StatusNotFound, Message: "no such bridge"}
			case errors.Is(err, store.ErrConflict):
				return wire.Fault{Name: "conflict", Status: http.StatusPreconditionFailed, Message: "changed meanwhile"}
			case errors.Is(err, session.ErrBusy):
				return wire.Fault{Name: "busy", Status: http.StatusTooManyRequests, RetryAfter: time.Second, Message: err.Error()}
			case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrInUse):
				return wire.Fault{Name: "exists", Status: http.StatusConflict, Message: "it exists"}
			case errors.Is(err, store.ErrFenced):
				return wire.Fault{Name: "moved", Status: http.StatusServiceUnavailable, RetryAfter: 1500 * time.Millisecond, Message: "try again"}
			case errors.Is(err, errDenied):
				return wire.Fault{Name: "denied", Status: http.StatusForbidden, Message: "denied"}
			}
			return wire.Fault{Name: "internal", Status: http.StatusInternalServerError, Message: "internal error"}
		},
		Now: func() time.Time { return e.now },
		Log: slog.New(slog.NewTextHandler(&e.log, nil)),
	}
	e.handler = rest.New(e.config)
	return e
}

// do sends a request as the administrator and returns the answer with its body
// read.
func (e *edge) do(method, target, body string, header ...string) (*http.Response, []byte) {
	e.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "attacker.example"
	r.Header.Set("Authorization", "Bearer "+adminText)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	e.handler.ServeHTTP(w, r)
	answer := w.Result()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer, text
}

func (e *edge) status(want int, answer *http.Response, body []byte) {
	e.t.Helper()
	if answer.StatusCode != want {
		e.t.Fatalf("status %d, want %d: %s", answer.StatusCode, want, body)
	}
}

type problem struct {
	Title  string
	Status int
	Detail string
	Errors []struct {
		Message, Location string
		Value             any
	}
}

// problem checks that the answer is one, and returns it.
func (e *edge) problem(want int, answer *http.Response, body []byte) problem {
	e.t.Helper()
	e.status(want, answer, body)
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		e.t.Fatalf("Content-Type %q of %s", got, body)
	}
	var p problem
	decode(e.t, body, &p)
	if p.Status != want || p.Title != http.StatusText(want) || p.Detail == "" {
		e.t.Fatalf("problem %s", body)
	}
	return p
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

type bridge struct {
	ID, Name, Owner, ETag                  string
	Policy                                 json.RawMessage
	Created, Updated                       time.Time
	MCPURL, SSEURL, ProviderURL, HealthURL string
	ClientToken, ProviderToken             string
	Live                                   json.RawMessage
}

func (e *edge) create(body string, header ...string) bridge {
	e.t.Helper()
	answer, text := e.do(http.MethodPost, bridges, body, header...)
	e.status(http.StatusCreated, answer, text)
	var b bridge
	decode(e.t, text, &b)
	if got, want := answer.Header.Get("Location"), publicURL+bridges+"/"+b.ID; got != want {
		e.t.Fatalf("Location %q, want %q", got, want)
	}
	b.ETag = answer.Header.Get("ETag")
	return b
}

func TestCreateHandsOutURLsAndTokensOnce(t *testing.T) {
	e := newEdge(t)
	policy := `{"names":"reject","n":9007199254740993}`
	b := e.create(`{"name":"Ada's browser","owner":"ada@example.com","policy":` + policy + `}`)

	if !regexp.MustCompile(`^[a-z2-7]{26}$`).MatchString(b.ID) {
		t.Errorf("id %q", b.ID)
	}
	base := "bridge.example.com/base/b/" + b.ID
	for got, want := range map[string]string{
		b.MCPURL:      "https://" + base + "/mcp",
		b.SSEURL:      "https://" + base + "/sse",
		b.ProviderURL: "wss://" + base + "/provider",
		b.HealthURL:   "https://" + base + "/health",
		b.Name:        "Ada's browser",
		b.Owner:       "ada@example.com",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if string(b.Policy) != policy {
		t.Errorf("policy %s, want every digit: %s", b.Policy, policy)
	}
	if !b.Created.Equal(e.now) || !b.Updated.Equal(e.now) {
		t.Errorf("created %v, updated %v", b.Created, b.Updated)
	}

	// The store can check both tokens and has neither.
	for text, kind := range map[string]store.TokenKind{b.ClientToken: store.ClientToken, b.ProviderToken: store.ProviderToken} {
		_, id, err := credential.Parse(text)
		if err != nil {
			t.Fatalf("%s token: %v", kind, err)
		}
		token, err := e.store.Token(t.Context(), id)
		if err != nil || token.Kind != kind || string(token.Bridge) != b.ID || !credential.Verify(token, text) {
			t.Errorf("%s token: %+v, %v", kind, token, err)
		}
	}

	answer, text := e.do(http.MethodGet, bridges+"/"+b.ID, "")
	e.status(http.StatusOK, answer, text)
	var again bridge
	decode(t, text, &again)
	if bytes.Contains(text, []byte("Token")) || bytes.Contains(text, []byte("mcpb_")) {
		t.Errorf("a token is shown again: %s", text)
	}
	b.ClientToken, b.ProviderToken = "", ""
	again.ETag = answer.Header.Get("ETag")
	if fmt.Sprint(again) != fmt.Sprint(b) {
		t.Errorf("get = %+v\nwant %+v", again, b)
	}
	if s := e.log.String(); strings.Contains(s, "mcpb_") || strings.Contains(s, "ada@") || !strings.Contains(s, b.ID) {
		t.Errorf("log: %s", s)
	}
}

func TestCreateNeedsNoBody(t *testing.T) {
	e := newEdge(t)
	first, second := e.create(""), e.create("{}")
	if first.ID == second.ID {
		t.Fatal("two bridges have one ID")
	}
	if first.Policy != nil || first.Name != "" {
		t.Fatalf("%+v", first)
	}
}

func TestWhatCannotBeIsRefusedByNamePlaceAndLimit(t *testing.T) {
	e := newEdge(t)
	long := strings.Repeat("n", 201)
	cases := []struct {
		name, body string
		header     []string
		status     int
		where      string // of the first error; empty: the detail alone tells
		says       string // somewhere in the answer
	}{
		{"unknown member", `{"label":"x"}`, nil, 422, "body.label", "unexpected property"},
		{"the id is ours", `{"id":"mine"}`, nil, 422, "body.id", "unexpected property"},
		{"wrong type", `{"name":5}`, nil, 422, "body.name", "string"},
		{"long name", `{"name":"` + long + `"}`, nil, 422, "body.name", "200"},
		{"control character", `{"owner":"a\u001b[31m"}`, nil, 422, "body.owner", "pattern"},
		{"policy is no object", `{"policy":"reject"}`, nil, 422, "body.policy", "object"},
		{"long policy", `{"policy":{"a":"` + strings.Repeat("p", rest.MaxPolicy) + `"}}`, nil, 422, "body.policy", "16384"},
		{"not an object", `[]`, nil, 422, "body", "object"},
		{"not JSON", `{"name":`, nil, 400, "body", "unexpected end"},
		{"two values", `{} {}`, nil, 400, "body", "after top-level"},
		{"too large", `{"name":"` + strings.Repeat("n", rest.MaxBody) + `"}`, nil, 413, "", "65536"},
		{"a form", `name=x`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "body", "application/x-www-form-urlencoded"},
		{"encoded", `{}`, []string{"Content-Encoding", "gzip"}, 415, "", "Content-Encoding"},
		{"long key", `{}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 422, "header.Idempotency-Key", "255"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e.t = t
			answer, body := e.do(http.MethodPost, bridges, c.body, c.header...)
			p := e.problem(c.status, answer, body)
			if c.where != "" && (len(p.Errors) == 0 || p.Errors[0].Location != c.where) {
				t.Errorf("want an error at %s: %s", c.where, body)
			}
			if !bytes.Contains(body, []byte(c.says)) {
				t.Errorf("want %q in %s", c.says, body)
			}
			if len(body) > 1000 {
				t.Errorf("the problem echoes %d bytes", len(body))
			}
		})
	}
	for _, c := range []struct{ name, target, where string }{
		{"limit 0", bridges + "?limit=0", "query.limit"},
		{"limit 201", bridges + "?limit=201", "query.limit"},
		{"limit x", bridges + "?limit=x", "query.limit"},
		{"cursor of nobody", bridges + "?cursor=zzzz", "query.cursor"},
		{"unknown query", bridges + "?page=2", "query.page"},
		{"unknown query of one", bridges + "/x?page=2", "query.page"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.t = t
			answer, body := e.do(http.MethodGet, c.target, "")
			if p := e.problem(422, answer, body); len(p.Errors) != 1 || p.Errors[0].Location != c.where {
				t.Errorf("want an error at %s: %s", c.where, body)
			}
		})
	}
	if left, err := e.store.Bridges(t.Context(), "", 10); err != nil || len(left) != 0 {
		t.Errorf("refused requests left %d bridges, %v", len(left), err)
	}
}

func TestListPagesThroughEveryBridgeOnce(t *testing.T) {
	e := newEdge(t)
	var want []string
	for i := range 7 {
		want = append(want, e.create(fmt.Sprintf(`{"name":"b%d"}`, i)).ID)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 3, 7, 200} {
		var got []string
		var pages int
		for cursor := ""; ; pages++ {
			answer, body := e.do(http.MethodGet, fmt.Sprintf("%s?limit=%d&cursor=%s", bridges, limit, cursor), "")
			e.status(http.StatusOK, answer, body)
			var page struct {
				Bridges    []bridge
				NextCursor string
			}
			decode(t, body, &page)
			if bytes.Contains(body, []byte("Token")) {
				t.Fatalf("a token in the list: %s", body)
			}
			for _, b := range page.Bridges {
				got = append(got, b.ID)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
		if wantPages := (len(want) - 1) / limit; pages != wantPages {
			t.Errorf("limit %d: %d pages, want %d", limit, pages+1, wantPages+1)
		}
	}

	empty := newEdge(t)
	if _, body := empty.do(http.MethodGet, bridges, ""); strings.TrimSpace(string(body)) != `{"bridges":[]}` {
		t.Errorf("empty list: %s", body)
	}
}

func TestGetIsConditional(t *testing.T) {
	e := newEdge(t)
	b := e.create(`{"name":"live"}`)
	target := bridges + "/" + b.ID
	if b.ETag != `"1"` {
		t.Fatalf("ETag %q", b.ETag)
	}
	for held, want := range map[string]int{
		b.ETag: 304, "W/" + b.ETag: 304, `"0", ` + b.ETag: 304, "*": 304, `"0"`: 200, "": 200,
	} {
		answer, body := e.do(http.MethodGet, target, "", "If-None-Match", held)
		e.status(want, answer, body)
		if got := answer.Header.Get("ETag"); got != b.ETag {
			t.Errorf("If-None-Match %s: ETag %q", held, got)
		}
		if want == 304 && len(body) > 0 {
			t.Errorf("304 with a body: %s", body)
		}
	}
	_, body := e.do(http.MethodGet, target, "")
	var got bridge
	decode(t, body, &got)
	if string(got.Live) != `{"providers":2}` {
		t.Errorf("live %s", got.Live)
	}
	answer, body := e.do(http.MethodHead, target, "")
	e.status(http.StatusOK, answer, body)
}

func TestDeletedBridgeIsGoneWithItsTokensAndSession(t *testing.T) {
	e := newEdge(t)
	kept, b := e.create(""), e.create("")
	target := bridges + "/" + b.ID
	answer, body := e.do(http.MethodDelete, target, "")
	e.status(http.StatusNoContent, answer, body)
	if len(body) > 0 {
		t.Errorf("204 with a body: %s", body)
	}
	if !slices.Equal(e.deleted, []session.BridgeID{session.BridgeID(b.ID)}) {
		t.Errorf("told of %v", e.deleted)
	}
	_, id, _ := credential.Parse(b.ClientToken)
	if _, err := e.store.Token(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("its client token: %v", err)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		for _, id := range []string{b.ID, "never-was", "not%20an%20id", strings.Repeat("x", 65)} {
			answer, body := e.do(method, bridges+"/"+id, "")
			p := e.problem(http.StatusNotFound, answer, body)
			if len(p.Errors) != 1 || p.Errors[0].Location != "path.bridge" {
				t.Errorf("%s %s: %s", method, id, body)
			}
		}
	}
	if len(e.deleted) != 1 {
		t.Errorf("told of %v", e.deleted)
	}
	answer, body = e.do(http.MethodGet, bridges+"/"+kept.ID, "")
	e.status(http.StatusOK, answer, body)
}

func TestRepeatedPostWithAKeyMakesOneBridge(t *testing.T) {
	e := newEdge(t)
	const body = `{"name":"once"}`
	first := e.create(body, "Idempotency-Key", "k1")
	again := e.create(`{ "name": "once" }`, "Idempotency-Key", "k1")
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("%+v\nagain %+v", first, again)
	}
	if other := e.create(body, "Idempotency-Key", "k2"); other.ID == first.ID {
		t.Error("another key gives the same bridge")
	}
	answer, text := e.do(http.MethodPost, bridges, `{"name":"twice"}`, "Idempotency-Key", "k1")
	if p := e.problem(422, answer, text); p.Errors[0].Location != "header.Idempotency-Key" {
		t.Errorf("%s", text)
	}

	// Its tokens do not come back once the bridge is deleted, nor after the hour.
	e.do(http.MethodDelete, bridges+"/"+first.ID, "")
	third := e.create(body, "Idempotency-Key", "k1")
	if third.ID == first.ID || third.ClientToken == first.ClientToken {
		t.Error("a deleted bridge came back")
	}
	e.now = e.now.Add(time.Hour)
	if fourth := e.create(body, "Idempotency-Key", "k1"); fourth.ID == third.ID {
		t.Error("a key is remembered for longer than an hour")
	}

	// A failure is not remembered.
	e.broken = store.ErrFenced
	answer, text = e.do(http.MethodPost, bridges, body, "Idempotency-Key", "k3")
	e.problem(http.StatusServiceUnavailable, answer, text)
	e.broken = nil
	e.create(body, "Idempotency-Key", "k3")
}

func TestRememberedKeysAreBounded(t *testing.T) {
	e := newEdge(t)
	first := e.create("", "Idempotency-Key", "k")
	for i := range 1000 {
		e.create("", "Idempotency-Key", fmt.Sprint(i))
	}
	if again := e.create("", "Idempotency-Key", "k"); again.ID == first.ID {
		t.Error("the oldest key is still remembered")
	}
	if a, b := e.create("", "Idempotency-Key", "999"), e.create("", "Idempotency-Key", "999"); a.ID != b.ID {
		t.Error("the newest key is forgotten")
	}
}

func TestPostsOfOneKeyAtOnceMakeOneBridge(t *testing.T) {
	e := newEdge(t)
	var wg sync.WaitGroup
	ids := make([]string, 20)
	for i := range ids {
		wg.Go(func() {
			r := httptest.NewRequest(http.MethodPost, bridges, strings.NewReader("{}"))
			r.Header.Set("Authorization", "Bearer "+adminText)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			e.handler.ServeHTTP(w, r)
			var b bridge
			if json.Unmarshal(w.Body.Bytes(), &b) == nil {
				ids[i] = b.ID
			}
		})
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] == "" || ids[0] != ids[len(ids)-1] {
		t.Errorf("IDs %v", ids)
	}
	if made, _ := e.store.Bridges(t.Context(), "", 100); len(made) != 1 {
		t.Errorf("%d bridges", len(made))
	}
}

func TestWithoutAnAdminTokenThereIsNothing(t *testing.T) {
	e := newEdge(t)
	b := e.create("")
	for _, c := range []struct{ name, authorization, challenge string }{
		{"none", "", `Bearer realm="mcpbridge"`},
		{"bad", "Bearer " + adminText + "x", `Bearer realm="mcpbridge", error="invalid_token"`},
		{"a bridge's own", "Bearer " + b.ClientToken, `Bearer realm="mcpbridge", error="invalid_token"`},
	} {
		var bodies []string
		for _, target := range []struct{ method, path, body string }{
			{http.MethodGet, bridges, ""},
			{http.MethodPost, bridges, `{"label":1}`}, // refused before the body is looked at
			{http.MethodGet, bridges + "/" + b.ID, ""},
			{http.MethodGet, bridges + "/never-was", ""},
			{http.MethodDelete, bridges + "/" + b.ID, ""},
		} {
			answer, body := e.do(target.method, target.path, target.body, "Authorization", c.authorization)
			e.problem(http.StatusUnauthorized, answer, body)
			if got := answer.Header.Get("WWW-Authenticate"); got != c.challenge {
				t.Errorf("%s: %s %s: challenge %q", c.name, target.method, target.path, got)
			}
			bodies = append(bodies, string(body))
		}
		if len(slices.Compact(bodies)) != 1 {
			t.Errorf("%s: the answers differ: %q", c.name, bodies)
		}
	}
	if _, err := e.store.Bridge(t.Context(), session.BridgeID(b.ID)); err != nil {
		t.Error(err)
	}
}

func TestOurOwnFailureIsToldWithoutItsText(t *testing.T) {
	e := newEdge(t)
	e.broken = errDown
	answer, body := e.do(http.MethodGet, bridges, "")
	e.problem(http.StatusInternalServerError, answer, body)
	if strings.Contains(string(body), "fire") {
		t.Errorf("the client is told %s", body)
	}
	if !strings.Contains(e.log.String(), "disk on fire") {
		t.Errorf("the log has %s", &e.log)
	}

	e.broken = store.ErrFenced
	answer, body = e.do(http.MethodPost, bridges, "{}")
	e.problem(http.StatusServiceUnavailable, answer, body)
	if got := answer.Header.Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q, want 1.5 s rounded up", got)
	}

	// A store that cannot be asked is not a bad token.
	answer, body = e.do(http.MethodGet, bridges, "", "Authorization", "Bearer down")
	e.problem(http.StatusInternalServerError, answer, body)
}

func TestEveryOtherPathAndMethodIsAProblem(t *testing.T) {
	e := newEdge(t)
	answer, body := e.do(http.MethodGet, "/api/v1/nothing", "")
	e.problem(http.StatusNotFound, answer, body)
	answer, body = e.do(http.MethodPut, bridges, "{}")
	e.problem(http.StatusMethodNotAllowed, answer, body)
	if got := answer.Header.Values("Allow"); !slices.Equal(got, []string{"GET", "POST"}) {
		t.Errorf("Allow %q", got)
	}
	answer, _ = e.do(http.MethodGet, bridges, "")
	if got := answer.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
}

func TestItMayBeMountedOrHandled(t *testing.T) {
	e := newEdge(t)
	inner := e.handler
	for name, route := range map[string]func(chi.Router){
		"Mount":  func(r chi.Router) { r.Mount("/api/v1", inner) },
		"Handle": func(r chi.Router) { r.Handle("/api/v1/*", inner) },
	} {
		outer := chi.NewRouter()
		route(outer)
		e.handler = outer
		b := e.create("")
		answer, body := e.do(http.MethodGet, bridges+"/"+b.ID, "")
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", name, answer.StatusCode, body)
		}
	}
}

func TestAPIDescribesItself(t *testing.T) {
	e := newEdge(t)
	answer, body := e.do(http.MethodGet, "/api/v1/openapi.json", "", "Authorization", "")
	e.status(http.StatusOK, answer, body)
	var doc struct {
		OpenAPI string
		Servers []struct{ URL string }
		Paths   map[string]map[string]struct {
			OperationID string
			Security    []map[string][]string
			Responses   map[string]struct {
				Description string
				Content     map[string]any
				Headers     map[string]any
			}
		}
		Components struct {
			Schemas         map[string]any
			SecuritySchemes map[string]struct{ Type, Scheme string }
		}
	}
	decode(t, body, &doc)
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") || len(doc.Servers) != 1 || doc.Servers[0].URL != publicURL {
		t.Errorf("openapi %q, servers %v", doc.OpenAPI, doc.Servers)
	}
	if got := doc.Components.SecuritySchemes["admin"]; got.Type != "http" || got.Scheme != "bearer" {
		t.Errorf("security scheme %+v", got)
	}
	want := map[string]string{ // operation: its success
		"post /api/v1/bridges":            "201",
		"get /api/v1/bridges":             "200",
		"get /api/v1/bridges/{bridge}":    "200",
		"delete /api/v1/bridges/{bridge}": "204",
		"patch /api/v1/bridges/{bridge}":  "200",

		"get /api/v1/bridges/{bridge}/tools":                 "200",
		"post /api/v1/bridges/{bridge}/tools/{name}/approve": "204",
		"post /api/v1/bridges/{bridge}/tools/{name}/reject":  "204",

		"get /api/v1/bridges/{bridge}/tokens":                 "200",
		"post /api/v1/bridges/{bridge}/tokens":                "201",
		"post /api/v1/bridges/{bridge}/tokens/{token}/rotate": "201",
		"delete /api/v1/bridges/{bridge}/tokens/{token}":      "204",

		"post /api/v1/bridges/{bridge}/tickets":  "201",
		"post /api/v1/bridges/{bridge}/pairings": "201",
		"post /api/v1/pair":                      "201",

		"get /api/v1/keys":                 "200",
		"post /api/v1/keys":                "201",
		"post /api/v1/keys/{token}/rotate": "201",
		"delete /api/v1/keys/{token}":      "204",

		"get /api/v1/tenants":             "200",
		"post /api/v1/tenants":            "201",
		"get /api/v1/tenants/{tenant}":    "200",
		"delete /api/v1/tenants/{tenant}": "204",
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			success, ok := want[method+" "+path]
			if !ok {
				t.Errorf("undeclared operation %s %s", method, path)
			}
			delete(want, method+" "+path)
			ways := 2 // an admin token, or a key
			if strings.HasPrefix(path, "/api/v1/tenants") {
				ways = 1
			}
			statuses := []string{"401", "403", "422", "429", "500", "503"}
			if path == "/api/v1/pair" { // a code is enough
				ways, statuses = 0, statuses[2:]
			}
			if op.OperationID == "" || len(op.Security) != ways {
				t.Errorf("%s %s: %+v", method, path, op)
			}
			if _, ok := op.Responses[success]; !ok {
				t.Errorf("%s %s has no %s response", method, path, success)
			}
			for status, response := range op.Responses {
				if _, ok := response.Content["application/problem+json"]; status >= "400" && !ok {
					t.Errorf("%s %s: %s is no problem", method, path, status)
				}
				if response.Description == "" {
					t.Errorf("%s %s: %s has no description", method, path, status)
				}
			}
			for _, status := range statuses {
				if _, ok := op.Responses[status]; !ok {
					t.Errorf("%s %s does not tell of %s", method, path, status)
				}
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not described: %v", want)
	}
	if got := doc.Paths[bridges]["post"].Responses["201"].Headers; got["Location"] == nil || got["ETag"] == nil {
		t.Errorf("headers of the 201: %v", got)
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllSubmatch(body, -1) {
		if doc.Components.Schemas[string(ref[1])] == nil {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
}
