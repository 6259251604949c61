package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// nobodys is a bridge that does not exist, with the length of one that does.
const nobodys = "aaaaaaaaaaaaaaaaaaaaaaaaaa"

// TestEveryCredentialAgainstEveryRouteAndEveryOtherBridge: whoever may not is answered
// about a bridge that exists as about one that does not, to the byte, whatever they hold
// and wherever they ask.
func TestEveryCredentialAgainstEveryRouteAndEveryOtherBridge(t *testing.T) {
	w := start(t, withAuth)
	admin, b := w.provision(2) // of the default tenant
	for _, id := range []string{"red", "blue"} {
		if a := w.do("POST", w.url("/api/v1/tenants"), `{"id":"`+id+`"}`, "Authorization", admin); a.status != 201 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	_, redKey := w.issue(admin, "/api/v1/keys", `{"tenant":"red"}`)
	_, blueKey := w.issue(admin, "/api/v1/keys", `{"tenant":"blue"}`)
	_, defaultKey := w.issue(admin, "/api/v1/keys", `{}`)
	red, blue := w.create(redKey), w.create(blueKey)
	p := w.dial("/b/"+red.id+"/provider", "Authorization", red.provider) // so that it is live
	p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
	p.want("welcome")
	p.register(tool("a"))

	tokens := "/api/v1/bridges/" + red.id + "/tokens"
	revokedID, revoked := w.issue(admin, tokens, `{"kind":"client","name":"revoked"}`)
	w.remove(admin, tokens+"/"+revokedID)
	expired, secret := credential.New(store.ClientToken, session.BridgeID(red.id), time.Now())
	expired.Expires = time.Now().Add(-time.Minute)
	if err := w.store.AddToken(t.Context(), 1, expired); err != nil {
		t.Fatal(err)
	}

	// Who, and which bridges their credential is for.
	credentials := []struct {
		who, token string
		opens      []string // in REST
	}{
		{who: "nobody"},
		{who: "rubbish", token: "Bearer x"},
		{who: "a forged token", token: red.client[:len(red.client)-7] + "abcdefg"},
		{who: "a revoked token", token: revoked},
		{who: "an expired token", token: "Bearer " + secret.Reveal()},
		{who: "another tenant's client", token: blue.client},
		{who: "another tenant's provider", token: blue.provider},
		{who: "the default tenant's client", token: b[0].client},
		{who: "the default tenant's provider", token: b[0].provider},
		{who: "another tenant's key", token: blueKey, opens: []string{blue.id}},
		{who: "the default tenant's key", token: defaultKey, opens: []string{b[0].id, b[1].id}},
		{who: "the bridge's own key", token: redKey, opens: []string{red.id}},
		{who: "the administrator", token: admin, opens: []string{red.id, blue.id, b[0].id, b[1].id}},
	}
	tried := 0
	alike := func(who, route string, id string, ask func(bridge string) answer) {
		t.Helper()
		tried++
		about := func(bridge string) string {
			a := ask(bridge)
			a.header.Del("Date")
			a.header.Del("X-Request-Id")
			if a.status != 401 && a.status != 403 && a.status != 404 && a.status/1000 != 4 {
				t.Errorf("%s, %s of %.6s: %d %s", who, route, bridge, a.status, a.body)
			}
			return strings.ReplaceAll(fmt.Sprintf("%d %v %s", a.status, a.header, a.body), bridge, "BRIDGE")
		}
		if got, want := about(id), about(nobodys); got != want {
			t.Errorf("%s, %s:\nof a bridge that exists %s\nof one that does not    %s", who, route, got, want)
		}
	}

	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, c := range credentials {
		for _, id := range []string{red.id, blue.id, b[1].id} {
			if id == blue.id && (c.token == blue.client || c.token == blue.provider) {
				continue // its own
			}
			for _, route := range []string{
				"POST /b/{bridge}/mcp", "GET /b/{bridge}/mcp", "DELETE /b/{bridge}/mcp", "POST /b/{bridge}/mcp/",
				"GET /b/{bridge}/sse", "POST /b/{bridge}/message", "GET /b/{bridge}/health", "POST /b/{bridge}/tickets", "GET /b/{bridge}/provider",
				"POST /mcp?room={bridge}", "GET /mcp?room={bridge}", "DELETE /mcp?room={bridge}",
				"GET /health?room={bridge}", "GET /ws/extension?room={bridge}",
				"WebSocket /b/{bridge}/provider", "WebSocket /ws/extension?room={bridge}",
			} {
				alike(c.who, route, id, func(bridge string) answer {
					method, path, _ := strings.Cut(strings.ReplaceAll(route, "{bridge}", bridge), " ")
					if method == "WebSocket" {
						p := w.dial(path, "Authorization", c.token)
						code, reason := p.closed()
						return answer{status: code, body: reason}
					}
					body := ""
					if method == "POST" {
						body = ping
					}
					return w.do(method, w.url(path), body, "Authorization", c.token)
				})
			}
		}
	}

	// REST: every operation that names a bridge, out of the document itself.
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(w.do("GET", w.url("/api/v1/openapi.json"), "").body), &doc); err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{
		"post /api/v1/bridges/{bridge}/tokens":               `{"kind":"client","name":"n"}`,
		"post /api/v1/bridges/{bridge}/tools/{name}/approve": `{"hash":"` + strings.Repeat("0", 64) + `"}`,
		"post /api/v1/bridges/{bridge}/tools/{name}/reject":  `{"hash":"` + strings.Repeat("0", 64) + `"}`,
	}
	operations := 0
	for path, methods := range doc.Paths {
		for method := range methods {
			operations++
			for _, c := range credentials {
				if path == "/api/v1/pair" {
					continue // it needs a code, and no token
				}
				if !strings.Contains(path, "{bridge}") {
					// What is not about a bridge opens to admins and keys alone.
					if len(c.opens) == 0 {
						a := w.do(strings.ToUpper(method), w.url(strings.NewReplacer("{token}", "x", "{tenant}", "red").Replace(path)), bodies[method+" "+path], "Authorization", c.token)
						if a.status != 401 {
							t.Errorf("%s, %s %s: %d", c.who, method, path, a.status)
						}
					}
					continue
				}
				for _, bridge := range []keys{red, blue, b[1]} {
					if slices.Contains(c.opens, bridge.id) {
						continue
					}
					alike(c.who, method+" "+path, bridge.id, func(id string) answer {
						at := strings.NewReplacer("{bridge}", id, "{token}", idOf(t, bridge.client), "{name}", "a").Replace(path)
						body := bodies[method+" "+path]
						if body == "" && method != "get" && method != "delete" {
							body = "{}"
						}
						contentType := "application/json"
						if method == "patch" {
							contentType = "application/merge-patch+json"
						}
						return w.do(strings.ToUpper(method), w.url(at), body, "Authorization", c.token, "Content-Type", contentType)
					})
				}
			}
		}
	}
	t.Logf("%d refusals compared, %d REST operations", tried, operations)

	// All of them are as they were.
	for _, k := range []keys{red, blue, b[0], b[1]} {
		if a := w.post(k.id, ping, "Authorization", k.client); a.status != 200 {
			t.Errorf("a bridge's own client: %d %s", a.status, a.body)
		}
	}
}
