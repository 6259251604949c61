package rest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/api/rest"
	"mcpbridge/store"
)

// shown is a token as the API shows it.
type shown struct {
	ID, Kind, Name, Tenant, Token, CreatedBy string
	Scopes                                   []string
	Created                                  time.Time
	Expires, LastUsed                        *time.Time
}

// made sends a POST that makes something, and reads what.
func made[T any](e *edge, path, body string, header ...string) (v T) {
	e.t.Helper()
	answer, text := e.do(http.MethodPost, path, body, header...)
	e.status(http.StatusCreated, answer, text)
	decode(e.t, text, &v)
	return v
}

func listed(e *edge, path string, header ...string) []shown {
	e.t.Helper()
	answer, text := e.do(http.MethodGet, path, "", header...)
	e.status(http.StatusOK, answer, text)
	var page struct{ Tokens []shown }
	decode(e.t, text, &page)
	return page.Tokens
}

type bridgeMade struct{ ID, Tenant, ClientToken, ProviderToken string }

func TestTokensAreCreatedRotatedAndRevoked(t *testing.T) {
	e := newEdge(t)
	b := made[bridgeMade](e, bridges, `{}`)
	tokens := bridges + "/" + b.ID + "/tokens"
	first := listed(e, tokens)
	if len(first) != 2 {
		t.Fatalf("a new bridge has %+v", first)
	}
	later := e.now.Add(time.Hour)
	k := made[shown](e, tokens, `{"kind":"client","name":"Ada's editor","expires":"`+later.Format(time.RFC3339)+`"}`)
	if kind, id, err := credential.Parse(k.Token); err != nil || kind != store.ClientToken || id != k.ID || k.Kind != "client" ||
		k.Expires == nil || !k.Expires.Equal(later) || k.LastUsed != nil || k.CreatedBy != credential.AdminTextID {
		t.Fatalf("created %+v, %v", k, err)
	}
	stored, err := e.store.Token(t.Context(), k.ID)
	if err != nil || !credential.Verify(stored, k.Token) {
		t.Fatalf("stored %+v, %v", stored, err)
	}
	used := e.now.Add(time.Minute)
	if err := e.store.TouchTokens(t.Context(), map[string]time.Time{k.ID: used}); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(listed(e, tokens), func(s shown) bool {
		return s.ID == k.ID && s.Token == "" && s.LastUsed != nil && s.LastUsed.Equal(used)
	})
	if i < 0 {
		t.Errorf("listed %+v", listed(e, tokens))
	}

	// The next one takes its place, and the old one stays for a while.
	e.now = e.now.Add(30 * time.Minute)
	next := made[shown](e, tokens+"/"+k.ID+"/rotate", `{"overlapSeconds":60}`)
	if next.Name != k.Name || next.Kind != k.Kind || next.ID == k.ID || !next.Expires.Equal(e.now.Add(time.Hour)) {
		t.Errorf("rotated %+v", next)
	}
	if stored, err = e.store.Token(t.Context(), k.ID); err != nil || !stored.Expires.Equal(e.now.Add(time.Minute)) || !slices.Equal(e.expired, []string{k.ID}) {
		t.Errorf("the old one %+v, %v, told %v", stored, err, e.expired)
	}
	// Two of a name are good at a time.
	for _, path := range []string{tokens, tokens + "/" + next.ID + "/rotate"} {
		body := `{"kind":"client","name":"Ada's editor"}`
		if path != tokens {
			body = `{}`
		}
		answer, text := e.do(http.MethodPost, path, body)
		e.problem(http.StatusConflict, answer, text)
	}
	made[shown](e, tokens, `{"kind":"provider","name":"Ada's editor"}`)
	e.now = e.now.Add(time.Minute) // the old one is not good any more
	last := made[shown](e, tokens+"/"+next.ID+"/rotate", `{"overlapSeconds":0}`)
	if _, err := e.store.Token(t.Context(), next.ID); err == nil || len(e.revoked) != 1 || !e.revoked[0](store.Token{ID: next.ID}) || e.revoked[0](store.Token{ID: last.ID}) {
		t.Errorf("with no overlap the old one stays: %v, told %d", err, len(e.revoked))
	}

	answer, text := e.do(http.MethodDelete, tokens+"/"+last.ID, "")
	e.status(http.StatusNoContent, answer, text)
	if len(e.revoked) != 2 || !e.revoked[1](store.Token{ID: last.ID}) {
		t.Error("nobody was told of what was revoked")
	}
	for _, id := range []string{last.ID, "none", credential.AdminTextID} {
		answer, text = e.do(http.MethodDelete, tokens+"/"+id, "")
		e.problem(http.StatusNotFound, answer, text)
		answer, text = e.do(http.MethodPost, tokens+"/"+id+"/rotate", `{}`)
		e.problem(http.StatusNotFound, answer, text)
	}
	answer, text = e.do(http.MethodPost, tokens, `{"kind":"client","expires":"2020-01-01T00:00:00Z"}`)
	e.problem(http.StatusUnprocessableEntity, answer, text)
	for _, secret := range []string{k.Token, next.Token, last.Token, b.ClientToken} {
		if strings.Contains(e.log.String(), secret[20:]) {
			t.Error("a token is in the log")
		}
	}
}

func TestAKeyActsWithinItsTenantAndScopes(t *testing.T) {
	e := newEdge(t)
	for _, id := range []string{"red", "blue"} {
		made[struct{ ID string }](e, "/api/v1/tenants", `{"id":"`+id+`","name":"Team"}`)
		answer, text := e.do(http.MethodPost, "/api/v1/tenants", `{"id":"`+id+`"}`)
		e.problem(http.StatusConflict, answer, text)
	}
	red := made[shown](e, "/api/v1/keys", `{"tenant":"red","name":"script"}`)
	if red.Tenant != "red" || red.Kind != "key" || strings.Join(red.Scopes, " ") != "bridges:read bridges:write tokens:write" ||
		!red.Expires.Equal(e.now.Add(90*24*time.Hour)) {
		t.Errorf("a key is %+v", red)
	}
	stored, err := e.store.Token(t.Context(), red.ID)
	if err != nil || !credential.Verify(stored, red.Token) || stored.Kind != store.RESTKey || stored.Tenant != "red" {
		t.Fatalf("stored %+v, %v", stored, err)
	}
	e.actors["red"] = rest.Actor{Token: red.ID, Tenant: stored.Tenant, Scopes: stored.Scopes}
	e.actors["blue"] = rest.Actor{Token: "b", Tenant: "blue", Scopes: stored.Scopes}
	e.actors["reader"] = rest.Actor{Token: "r", Tenant: "red", Scopes: rest.ScopeRead}
	e.actors["minter"] = rest.Actor{Token: "m", Tenant: "red", Scopes: rest.ScopeRead + " " + rest.ScopeTokens}
	e.actors["nothing"] = rest.Actor{Token: "n", Tenant: "red"}
	as := func(who string) []string { return []string{"Authorization", "Bearer " + who} }

	mine := made[bridgeMade](e, bridges, `{}`, as("red")...)
	theirs := made[bridgeMade](e, bridges, `{}`, as("blue")...)
	open := made[bridgeMade](e, bridges, `{}`)
	given := made[bridgeMade](e, bridges, `{"tenant":"red"}`)
	if mine.Tenant != "red" || theirs.Tenant != "blue" || open.Tenant != "default" || given.Tenant != "red" {
		t.Errorf("tenants %q %q %q %q", mine.Tenant, theirs.Tenant, open.Tenant, given.Tenant)
	}
	// One that is another's and one that is nobody's are answered alike.
	for _, body := range []string{`{"tenant":"blue"}`, `{"tenant":"none"}`, `{"tenant":"default"}`} {
		for _, path := range []string{bridges, "/api/v1/keys"} {
			answer, text := e.do(http.MethodPost, path, body, as("red")...)
			if p := e.problem(http.StatusUnprocessableEntity, answer, text); p.Errors[0].Message != "there is no such tenant" {
				t.Errorf("%s: %s", body, text)
			}
		}
	}

	ids := func(query string, header ...string) (all []string) {
		answer, text := e.do(http.MethodGet, bridges+query, "", header...)
		e.status(http.StatusOK, answer, text)
		var page struct{ Bridges []struct{ ID string } }
		decode(t, text, &page)
		for _, b := range page.Bridges {
			all = append(all, b.ID)
		}
		return all
	}
	own := []string{mine.ID, given.ID}
	slices.Sort(own)
	everything := []string{mine.ID, given.ID, theirs.ID, open.ID}
	slices.Sort(everything)
	for _, c := range []struct {
		query, who string
		want       []string
	}{
		{"", "red", own},
		{"?tenant=red", "red", own},
		{"?tenant=blue", "red", nil},
		{"?tenant=none", "red", nil},
		{"?tenant=default", "red", nil},
		{"", adminText, everything},
		{"?tenant=red", adminText, own},
		{"?tenant=default", adminText, []string{open.ID}},
		{"?tenant=none", adminText, nil},
		{"?limit=1", "reader", own[:1]},
	} {
		if got := ids(c.query, as(c.who)...); !slices.Equal(got, c.want) {
			t.Errorf("%.6s lists %v of %q, want %v", c.who, got, c.query, c.want)
		}
	}

	// Scopes: 403 whatever the request names.
	routes := []struct{ method, path, body, scope string }{
		{"GET", bridges, "", rest.ScopeRead},
		{"POST", bridges, `{}`, rest.ScopeWrite},
		{"GET", bridges + "/{b}", "", rest.ScopeRead},
		{"PATCH", bridges + "/{b}", `{}`, rest.ScopeWrite},
		{"DELETE", bridges + "/{b}", "", rest.ScopeWrite},
		{"GET", bridges + "/{b}/tools", "", rest.ScopeRead},
		{"POST", bridges + "/{b}/tools/x/approve", `{"hash":"` + strings.Repeat("0", 64) + `"}`, rest.ScopeWrite},
		{"POST", bridges + "/{b}/tools/x/reject", `{"hash":"` + strings.Repeat("0", 64) + `"}`, rest.ScopeWrite},
		{"GET", bridges + "/{b}/tokens", "", rest.ScopeRead},
		{"POST", bridges + "/{b}/tokens", `{"kind":"client","name":"n"}`, rest.ScopeTokens},
		{"POST", bridges + "/{b}/tokens/{t}/rotate", `{}`, rest.ScopeTokens},
		{"DELETE", bridges + "/{b}/tokens/{t}", "", rest.ScopeTokens},
		{"POST", bridges + "/{b}/tickets", `{}`, rest.ScopeTokens},
		{"POST", bridges + "/{b}/pairings", `{}`, rest.ScopeTokens},
		{"GET", "/api/v1/keys", "", rest.ScopeTokens},
		{"POST", "/api/v1/keys", `{}`, rest.ScopeTokens},
		{"POST", "/api/v1/keys/{k}/rotate", `{}`, rest.ScopeTokens},
		{"DELETE", "/api/v1/keys/{k}", "", rest.ScopeTokens},
		{"GET", "/api/v1/tenants", "", "admin"},
		{"POST", "/api/v1/tenants", `{"id":"x"}`, "admin"},
		{"GET", "/api/v1/tenants/{n}", "", "admin"},
		{"DELETE", "/api/v1/tenants/{n}", "", "admin"},
	}
	clientOf := func(b bridgeMade) string { _, id, _ := credential.Parse(b.ClientToken); return id }
	blueKey := made[shown](e, "/api/v1/keys", `{}`, as("blue")...)
	for _, r := range routes {
		request := func(who, bridge, token, key, tenant string) (int, string, http.Header) {
			path := strings.NewReplacer("{b}", bridge, "{t}", token, "{k}", key, "{n}", tenant).Replace(r.path)
			contentType := "application/json"
			if r.method == "PATCH" {
				contentType = "application/merge-patch+json"
			}
			answer, text := e.do(r.method, path, r.body, "Authorization", "Bearer "+who, "Content-Type", contentType)
			// What the request itself said may come back.
			told := strings.NewReplacer(bridge, "ID", token, "ID", key, "ID").Replace(string(text))
			return answer.StatusCode, told, answer.Header
		}
		for who, a := range e.actors {
			if strings.Contains(" "+a.Scopes+" ", " "+r.scope+" ") {
				continue
			}
			for _, tenant := range []string{"red", "none"} {
				status, text, header := request(who, mine.ID, clientOf(mine), blueKey.ID, tenant)
				if status != http.StatusForbidden || !strings.Contains(header.Get("Www-Authenticate"), `scope="`+r.scope+`"`) {
					t.Errorf("%s %s as %s: %d %s", r.method, r.path, who, status, text)
				}
			}
		}
		if r.scope == "admin" || !strings.Contains(r.path, "{") {
			continue
		}
		// Another tenant's and nobody's are answered alike, to the header.
		wantStatus, wantText, wantHeader := request("red", strings.Repeat("a", 26), "TTTTTTTTTTTT", "KKKKKKKKKKKK", "none")
		if wantStatus != http.StatusNotFound {
			t.Errorf("%s %s of nobody: %d %s", r.method, r.path, wantStatus, wantText)
		}
		for _, b := range []bridgeMade{theirs, open} {
			status, text, header := request("red", b.ID, clientOf(b), blueKey.ID, "none")
			wantHeader.Del("Content-Length")
			header.Del("Content-Length") // the ID in the body may be longer
			if status != wantStatus || text != wantText || !sameJSON(header, wantHeader) {
				t.Errorf("%s %s of another tenant: %d %s %v\nwant %d %s %v", r.method, r.path, status, text, header, wantStatus, wantText, wantHeader)
			}
		}
	}
	if _, err := e.store.Bridge(t.Context(), "b"); err == nil {
		t.Error("a bridge b")
	}

	// A key gives no more than it has.
	for _, body := range []string{`{"scopes":["bridges:write"]}`, `{"neverExpires":true}`, `{"expires":"2028-01-01T00:00:00Z"}`} {
		answer, text := e.do(http.MethodPost, "/api/v1/keys", body, as("minter")...)
		e.problem(http.StatusUnprocessableEntity, answer, text)
	}
	answer, text := e.do(http.MethodPost, "/api/v1/keys/"+red.ID+"/rotate", `{}`, as("minter")...)
	e.problem(http.StatusUnprocessableEntity, answer, text)
	less := made[shown](e, "/api/v1/keys", `{}`, as("minter")...)
	if strings.Join(less.Scopes, " ") != "bridges:read tokens:write" || less.CreatedBy != "m" {
		t.Errorf("a key of less: %+v", less)
	}
	if got := listed(e, "/api/v1/keys", as("red")...); len(got) != 2 {
		t.Errorf("red's keys %+v", got)
	}
	if got := listed(e, "/api/v1/keys"); len(got) != 3 {
		t.Errorf("all keys %+v", got)
	}

	// A tenant goes once it has no bridges.
	answer, text = e.do(http.MethodDelete, "/api/v1/tenants/red", "")
	e.problem(http.StatusConflict, answer, text)
	for _, id := range own {
		answer, text = e.do(http.MethodDelete, bridges+"/"+id, "", as("red")...)
		e.status(http.StatusNoContent, answer, text)
	}
	answer, text = e.do(http.MethodDelete, "/api/v1/tenants/red", "")
	e.status(http.StatusNoContent, answer, text)
	if got := e.revoked[len(e.revoked)-1]; !got(store.Token{ID: red.ID, Tenant: "red"}) || got(store.Token{ID: "b", Tenant: "blue"}) || got(store.Token{Tenant: "red", Bridge: "b"}) {
		t.Error("its keys were not revoked")
	}
	for _, method := range []string{"GET", "DELETE"} {
		answer, text = e.do(method, "/api/v1/tenants/red", "")
		e.problem(http.StatusNotFound, answer, text)
	}
}

func sameJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestTicketsAreForABridgeAndAnOrigin(t *testing.T) {
	e := newEdge(t)
	b := made[bridgeMade](e, bridges, `{}`)
	type ticket struct {
		Ticket, Subprotocol string
		Expires             time.Time
	}
	one := made[ticket](e, bridges+"/"+b.ID+"/tickets", `{"origin":"https://app.example"}`)
	if kind, _, err := credential.Parse(one.Ticket); err != nil || kind != credential.Ticket || one.Subprotocol != "mcpb.tkt."+one.Ticket || !one.Expires.Equal(e.now.Add(30*time.Second)) {
		t.Errorf("ticket %+v, %v", one, err)
	}
	made[ticket](e, bridges+"/"+b.ID+"/tickets", ``)
	if want := []string{b.ID + " https://app.example " + credential.AdminTextID, b.ID + "  " + credential.AdminTextID}; !slices.Equal(e.tickets, want) {
		t.Errorf("asked for %q, want %q", e.tickets, want)
	}
	for _, origin := range []string{"app.example", "https://app.example/path", "https://app.example ", "https://"} {
		answer, text := e.do(http.MethodPost, bridges+"/"+b.ID+"/tickets", `{"origin":"`+origin+`"}`)
		e.problem(http.StatusUnprocessableEntity, answer, text)
	}
}

// TestIdempotencyKeysAreEachActorsOwn: the answer to one holds the tokens of a bridge.
func TestIdempotencyKeysAreEachActorsOwn(t *testing.T) {
	e := newEdge(t)
	e.actors["one"] = rest.Actor{Token: "1", Scopes: rest.ScopeWrite}
	e.actors["two"] = rest.Actor{Token: "2", Scopes: rest.ScopeWrite}
	one := made[bridgeMade](e, bridges, `{}`, "Idempotency-Key", "k", "Authorization", "Bearer one")
	two := made[bridgeMade](e, bridges, `{}`, "Idempotency-Key", "k", "Authorization", "Bearer two")
	again := made[bridgeMade](e, bridges, `{}`, "Idempotency-Key", "k", "Authorization", "Bearer one")
	if one.ID == two.ID || one.ID != again.ID {
		t.Errorf("bridges %s, %s and again %s", one.ID, two.ID, again.ID)
	}
}

func TestTenantsAreListedInPages(t *testing.T) {
	e := newEdge(t)
	for _, id := range []string{"b", "a", "c"} {
		made[struct{ ID string }](e, "/api/v1/tenants", `{"id":"`+id+`"}`)
	}
	answer, text := e.do(http.MethodPost, "/api/v1/tenants", `{"id":"default"}`)
	e.problem(http.StatusConflict, answer, text)
	var all []string
	for cursor := ""; ; {
		answer, text := e.do(http.MethodGet, "/api/v1/tenants?limit=2&cursor="+cursor, "")
		e.status(http.StatusOK, answer, text)
		var page struct {
			Tenants    []struct{ ID string }
			NextCursor string
		}
		decode(t, text, &page)
		for _, one := range page.Tenants {
			all = append(all, one.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if !slices.Equal(all, []string{"a", "b", "c"}) {
		t.Errorf("tenants %v", all)
	}
}
