package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ticket asks for a ticket, as whoever holds that token, and returns its subprotocol.
func (w *world) ticket(path, body, token string, headers ...string) string {
	w.t.Helper()
	a := w.do("POST", w.url(path), body, append(headers, "Authorization", token)...)
	var made struct{ Ticket, Subprotocol string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != 201 || made.Subprotocol != "mcpb.tkt."+made.Ticket {
		w.t.Fatalf("POST %s: %d %s", path, a.status, a.body)
	}
	return made.Subprotocol
}

// browser connects as a page does: with no header but its origin and the subprotocols.
func (w *world) browser(bridge, ticket, origin string) *peer {
	w.t.Helper()
	return w.dial("/b/"+bridge+"/provider", "Origin", origin, "Sec-WebSocket-Protocol", "bridge.v1, "+ticket)
}

func TestATicketOpensOneConnection(t *testing.T) {
	w := start(t, withAuth)
	admin, b := w.provision(2)
	id, origin := b[0].id, "http://localhost:3000"
	keyID, key := w.issue(admin, "/api/v1/keys", `{}`)
	rest := "/api/v1/bridges/" + id + "/tickets"
	own := "/b/" + id + "/tickets"

	var used []string
	for _, c := range []struct{ what, ticket string }{
		{"a key's", w.ticket(rest, `{"origin":"`+origin+`"}`, key)},
		{"a key's for any origin", w.ticket(rest, "", key)},
		{"the provider token's", w.ticket(own, "", b[0].provider, "Origin", origin)},
	} {
		p := w.browser(id, c.ticket, origin)
		if got := p.ws.Subprotocol(); got != "bridge.v1" {
			t.Errorf("%s: the subprotocol is %q", c.what, got)
		}
		p.send(`{"type":"hello","protocol":1,"provider":"` + c.what + `"}`)
		p.want("welcome")
		used = append(used, c.ticket)
		again := w.browser(id, c.ticket, origin)
		if code, _ := again.closed(); code != 4401 {
			t.Errorf("%s, once more: closed with %d", c.what, code)
		}
	}

	for _, c := range []struct {
		what, bridge, ticket, origin string
		code                         int
	}{
		{"another origin", id, w.ticket(rest, `{"origin":"`+origin+`"}`, key), "http://localhost:3001", 4401},
		{"another bridge", b[1].id, w.ticket(rest, "", key), origin, 4403},
		{"no such bridge", nobodys, w.ticket(rest, "", key), origin, 4403},
		{"a lasting token", id, "mcpb.tkt." + strings.TrimPrefix(b[0].provider, "Bearer "), origin, 4401},
		{"rubbish", id, "mcpb.tkt.x", origin, 4401},
		{"an altered one", id, used[0][:len(used[0])-8] + "00000000", origin, 4401},
	} {
		if code, _ := w.browser(c.bridge, c.ticket, c.origin).closed(); code != c.code {
			t.Errorf("%s: closed with %d, want %d", c.what, code, c.code)
		}
	}
	spare := w.ticket(rest, "", key)
	text := strings.TrimPrefix(spare, "mcpb.tkt.")
	if a := w.do("GET", w.url("/b/"+id+"/health"), "", "Authorization", "Bearer "+text); a.status != 401 {
		t.Errorf("a ticket as a bearer token: %d", a.status)
	}

	// It goes with the token that asked for it, and so does what it opened.
	p := w.browser(id, w.ticket(rest, "", key), origin)
	p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
	p.want("welcome")
	w.remove(admin, "/api/v1/keys/"+keyID)
	if code, _ := p.closed(); code != 4401 {
		t.Errorf("its key was revoked: closed with %d", code)
	}
	if code, _ := w.browser(id, spare, origin).closed(); code != 4401 {
		t.Errorf("a ticket of a revoked key: closed with %d", code)
	}

	// Who may not have one.
	for what, c := range map[string]struct {
		token  string
		status int
	}{
		"nobody":                 {"", 401},
		"the bridge's client":    {b[0].client, 404},
		"another's provider":     {b[1].provider, 404},
		"the administrator":      {admin, 404},
		"the bridge's key, gone": {key, 401},
	} {
		if a := w.do("POST", w.url(own), "", "Authorization", c.token); a.status != c.status {
			t.Errorf("%s asks for a ticket: %d", what, a.status)
		}
	}
	a := w.do("OPTIONS", w.url(own), "", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != origin {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	if a := w.do("GET", w.url(own), "", "Authorization", b[0].provider); a.status != 405 {
		t.Errorf("GET: %d", a.status)
	}
	log := w.log.String()
	for _, ticket := range append(used, spare) {
		if strings.Contains(log, ticket[30:60]) {
			t.Error("a ticket is in the log")
		}
	}
}

func TestATicketIsGoodForThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withAuth)
		admin, b := w.provision(1)
		path := "/api/v1/bridges/" + b[0].id + "/tickets"
		late, soon := w.ticket(path, "", admin), ""
		time.Sleep(time.Second)
		soon = w.ticket(path, "", admin)
		time.Sleep(29 * time.Second)
		if code, _ := w.browser(b[0].id, late, w.base).closed(); code != 4401 {
			t.Errorf("after 30 s: closed with %d", code)
		}
		p := w.browser(b[0].id, soon, w.base)
		p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
		p.want("welcome")
		w.end()
	})
}

func TestTicketsAreBounded(t *testing.T) {
	w := start(t, withAuth)
	admin, b := w.provision(1)
	path := "/api/v1/bridges/" + b[0].id + "/tickets"
	for range 10_000 {
		w.ticket(path, "", admin)
	}
	if a := w.do("POST", w.url(path), "", "Authorization", admin); a.status != 429 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "10000") {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
}
