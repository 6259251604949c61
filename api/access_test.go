package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/api"
	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// keys are the texts of a bridge's tokens.
type keys struct{ id, client, provider string }

// provision makes an admin token and bridges through the API.
func (w *world) provision(n int) (admin string, all []keys) {
	w.t.Helper()
	token, secret := credential.New(store.AdminToken, "", time.Now())
	if err := w.store.PutToken(w.t.Context(), token); err != nil {
		w.t.Fatal(err)
	}
	admin = "Bearer " + secret.Reveal()
	for range n {
		all = append(all, w.create(admin))
	}
	return admin, all
}

// create makes a bridge as whoever holds that token.
func (w *world) create(token string) keys {
	w.t.Helper()
	a := w.do("POST", w.url("/api/v1/bridges"), `{"name":"x"}`, "Authorization", token)
	var b struct{ ID, ClientToken, ProviderToken, MCPURL, ProviderURL string }
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != 201 {
		w.t.Fatalf("create: %d %s", a.status, a.body)
	}
	if b.MCPURL != w.mcpURL(b.ID) || b.ProviderURL != "ws"+strings.TrimPrefix(w.url("/b/"+b.ID+"/provider"), "http") {
		w.t.Errorf("URLs %+v", b)
	}
	return keys{b.ID, "Bearer " + b.ClientToken, "Bearer " + b.ProviderToken}
}

func TestTokensOpenTheirOwnBridgesRoutes(t *testing.T) {
	w := start(t, withAuth)
	admin, b := w.provision(2)
	one, two := b[0], b[1]
	p := w.dial("/b/"+one.id+"/provider", "Authorization", one.provider)
	p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
	p.want("welcome")
	p.register(tool("a"))
	p.answers(func(frame) string { return done })
	if a := w.post(one.id, callBody("1", "a", "{}"), "Authorization", one.client); !strings.Contains(a.body, "done") {
		t.Fatalf("with its own token: %d %s", a.status, a.body)
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	forged := one.client[:len(one.client)-7] + "abcdefg"
	for _, c := range []struct {
		who, token string
		status     int
	}{
		{"nobody", "", 401},
		{"a forged token", forged, 401},
		{"rubbish", "Bearer x", 401},
		{"no bearer", "Basic " + one.client[7:], 401},
		{"the provider's token", one.provider, 404},
		{"another bridge's token", two.client, 404},
		{"the admin's token", admin, 404},
	} {
		// A bridge that exists, one that does not, and one that cannot: alike.
		var first answer
		for i, id := range []string{one.id, "aaaaaaaaaaaaaaaaaaaaaaaaaa", strings.Repeat("x", 65)} {
			for _, a := range []answer{
				w.post(id, ping, "Authorization", c.token),
				w.do("GET", w.mcpURL(id), "", "Authorization", c.token),
				w.do("DELETE", w.mcpURL(id), "", "Authorization", c.token),
			} {
				a.header.Del("X-Request-Id")
				a.header.Del("Date")
				if i == 0 && first.header == nil {
					first = a
				}
				if a.status != c.status || a.body != first.body || fmt.Sprint(a.header) != fmt.Sprint(first.header) {
					t.Errorf("%s on %.10s: %d %s %v\nwant %d %s %v", c.who, id, a.status, a.body, a.header, c.status, first.body, first.header)
				}
			}
		}
		if challenge := first.header.Get("WWW-Authenticate"); (challenge != "") != (c.status == 401) {
			t.Errorf("%s: challenge %q", c.who, challenge)
		}
	}
	for _, c := range []struct {
		who, id, token string
		code           int
	}{
		{"nobody", one.id, "", 4401},
		{"rubbish", one.id, "Bearer x", 4401},
		{"the client's token", one.id, one.client, 4403},
		{"another bridge's token", one.id, two.provider, 4403},
		{"a bridge that does not exist", "aaaaaaaaaaaaaaaaaaaaaaaaaa", two.provider, 4403},
	} {
		p := w.dial("/b/"+c.id+"/provider", "Authorization", c.token)
		if code, _ := p.closed(); code != c.code {
			t.Errorf("provider, %s: closed with %d, want %d", c.who, code, c.code)
		}
	}
	// Who does not ask for an upgrade is answered as anywhere else.
	for token, want := range map[string]int{"": 401, "Bearer x": 401, one.client: 404, two.provider: 404} {
		a := w.do("GET", w.url("/b/"+one.id+"/provider"), "", "Authorization", token)
		if challenge := a.header.Get("WWW-Authenticate"); a.status != want || (challenge != "") != (want == 401) || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("provider without upgrade, %.12q: %d %q %v", token, a.status, challenge, a.header)
		}
	}
	for _, token := range []string{"", one.client, one.provider} {
		if a := w.do("GET", w.url("/api/v1/bridges"), "", "Authorization", token); a.status != 401 {
			t.Errorf("REST with %.12q: %d", token, a.status)
		}
	}
	// The health page is for both.
	for _, token := range []string{one.client, one.provider} {
		if a := w.do("GET", w.url("/b/"+one.id+"/health"), "", "Authorization", token); a.status != 200 {
			t.Errorf("health: %d", a.status)
		}
	}
	log := w.log.String()
	for _, secret := range []string{one.client, one.provider, two.client, admin, forged} {
		if strings.Contains(log, secret[7:]) {
			t.Error("a token is in the log")
		}
	}
}

func TestSessionsBelongToTheTokenThatOpenedThem(t *testing.T) {
	w := start(t, withAuth)
	_, b := w.provision(1)
	other, secret := credential.New(store.ClientToken, "", time.Now())
	other.Bridge = session.BridgeID(b[0].id)
	if err := w.store.AddToken(t.Context(), 1, other); err != nil {
		t.Fatal(err)
	}
	a := w.post(b[0].id, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, "Authorization", b[0].client)
	id := a.header.Get("Mcp-Session-Id")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if a := w.post(b[0].id, ping, "Authorization", b[0].client, "Mcp-Session-Id", id); a.status != 200 {
		t.Errorf("its own: %d", a.status)
	}
	if a := w.post(b[0].id, ping, "Authorization", "Bearer "+secret.Reveal(), "Mcp-Session-Id", id); a.status != 404 {
		t.Errorf("another token of the same bridge: %d, want 404", a.status)
	}
}

func TestDeletedBridgeIsGoneAtOnce(t *testing.T) {
	w := start(t, withAuth)
	admin, b := w.provision(1)
	p := w.dial("/b/"+b[0].id+"/provider", "Authorization", b[0].provider)
	p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
	p.want("welcome")
	p.register(tool("a"))
	e := w.stream("POST", w.mcpURL(b[0].id), first(modernRequest("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)),
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen", "Authorization", b[0].client)
	e.want("acknowledged")
	got := make(chan answer, 1)
	go func() { got <- w.post(b[0].id, callBody("1", "a", "{}"), "Authorization", b[0].client) }()
	p.want("callTool")
	if a := w.do("DELETE", w.url("/api/v1/bridges/"+b[0].id), "", "Authorization", admin); a.status != 204 {
		t.Fatalf("delete: %d %s", a.status, a.body)
	}
	if code, _ := p.closed(); code != 4403 {
		t.Errorf("provider closed with %d", code)
	}
	e.want("result")
	if a := <-got; a.status != 404 {
		t.Errorf("the call in flight: %d %s", a.status, a.body)
	}
	if a := w.post(b[0].id, callBody("1", "a", "{}"), "Authorization", b[0].client); a.status != 401 {
		t.Errorf("afterwards: %d", a.status)
	}
}

func first(body string, _ []string) string { return body }

func TestOriginAndHost(t *testing.T) {
	w := start(t, withConfig(func(c *api.Config) { c.AllowOrigins = []string{"https://app.example.com"} }))
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	host := strings.TrimPrefix(w.base, "http://")
	for _, c := range []struct {
		header, value string
		ok            bool
	}{
		{"Origin", w.base, true},
		{"Origin", "https://app.example.com", true},
		{"Origin", "http://localhost:6274", true},
		{"Origin", "http://[::1]:1", true},
		{"Origin", "chrome-extension://abcdefghijklmnop", true},
		{"Origin", "moz-extension://a-b-c", true},
		{"Origin", "https://evil.example", false},
		{"Origin", "https://app.example.com.evil.example", false},
		{"Origin", "http://localhost.evil.example", false},
		{"Origin", "http://127.0.0.1.evil.example", false},
		{"Origin", "null", false},
		{"Origin", "file://", false},
		{"Origin", "ftp://localhost", false},
		{"Host", host, true},
		{"Host", "localhost:1234", true},
		{"Host", "evil.example", false},
		{"Host", "127.0.0.1.evil.example", false},
	} {
		a := w.post("b", ping, c.header, c.value)
		if ok := a.status == 200; ok != c.ok || !ok && a.status != 403 {
			t.Errorf("%s: %s gives %d", c.header, c.value, a.status)
		}
		if c.header == "Origin" && c.ok && (a.header.Get("Access-Control-Allow-Origin") != c.value || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id")) {
			t.Errorf("%s: CORS headers %v", c.value, a.header)
		}
	}
	if _, err := w.tryDial("/b/b/provider", "Origin", "https://evil.example"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a provider from elsewhere: %v", err)
	}
	w.dial("/b/b/provider", "Origin", "chrome-extension://abcdefghijklmnop")

	a := w.do("OPTIONS", w.mcpURL("b"), "", "Origin", "http://localhost:6274",
		"Access-Control-Request-Method", "DELETE", "Access-Control-Request-Headers", "mcp-session-id, Mcp-Param-Region, x-other")
	allowed := a.header.Get("Access-Control-Allow-Headers")
	for _, name := range []string{"Authorization", "Content-Type", "Accept", "Last-Event-ID", "Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region"} {
		if !strings.Contains(allowed, name) {
			t.Errorf("preflight does not allow %s: %s", name, allowed)
		}
	}
	if a.status != 204 || strings.Contains(allowed, "x-other") || a.header.Get("Access-Control-Allow-Methods") != "GET, POST, DELETE, OPTIONS" {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
}

func TestUnknownPathsAreJSON(t *testing.T) {
	w := start(t)
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/b/b/mcp", "/.well-known/x", "/nothing", "/b/b/nothing"} {
		if a := w.do("GET", w.url(path), ""); a.status != 404 || a.header.Get("Content-Type") != "application/json" || !json.Valid([]byte(a.body)) {
			t.Errorf("%s: %d %s %s", path, a.status, a.header.Get("Content-Type"), a.body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := w.do("GET", w.url(path), ""); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	w.server.Drain()
	if a := w.do("GET", w.url("/readyz"), ""); a.status != 503 {
		t.Errorf("/readyz while draining: %d", a.status)
	}
}

// revoking is a store in which a token is deleted right after it was read.
type revoking struct {
	store.Store
	after func(id string)
}

func (s *revoking) Token(ctx context.Context, id string) (store.Token, error) {
	t, err := s.Store.Token(ctx, id)
	if f := s.after; f != nil {
		s.after = nil
		f(id)
	}
	return t, err
}

func TestTokenDeletedWhileItIsCheckedOpensNothingLater(t *testing.T) {
	st := &revoking{Store: store.NewMemory(1)}
	w := start(t, withAuth, func(w *world) { w.store = st })
	now := time.Now()
	at, admin := credential.New(store.AdminToken, "", now)
	ct, client := credential.New(store.ClientToken, "b", now)
	b := store.Bridge{ID: "b", Created: now, Updated: now, Version: 1}
	if err := st.PutToken(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := st.CreateBridge(t.Context(), 1, b, ct); err != nil {
		t.Fatal(err)
	}
	w.do("GET", w.url("/api/v1/bridges"), "", "Authorization", "Bearer "+admin.Reveal())
	st.after = func(string) {
		st.after = nil
		if a := w.do("DELETE", w.url("/api/v1/bridges/b"), "", "Authorization", "Bearer "+admin.Reveal()); a.status >= 300 {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
	}
	w.post("b", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", "Bearer "+client.Reveal())
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", "Bearer "+client.Reveal()); a.status != 401 {
		t.Errorf("a deleted token is answered %d %s", a.status, a.body)
	}
}

// TestBodyThatNeverComesIsCut: not even a request without a token may hold a
// connection by announcing a body.
func TestBodyThatNeverComesIsCut(t *testing.T) {
	for name, option := range map[string]func(*world){"a token is needed": withAuth, "open": func(*world) {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble, option)
				transport, _ := w.client.Transport.(*http.Transport)
				c, err := transport.DialContext(t.Context(), "tcp", "")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := io.WriteString(c, "POST /b/b/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n{"); err != nil {
					t.Fatal(err)
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := io.ReadAll(c); err != nil {
					t.Errorf("the connection was held for a minute: %v", err)
				}
				w.end()
			})
		})
	}
}
