package api_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzHeaderValues sends the same call under any headers. It reaches the tool only if those
// that repeat what the body says say the same, plainly or in Base64 (MCP 2026-07-28
// transports/streamable-http, "Server Validation"); else it is refused for a reason. Nothing
// in a header is a fault of the server's.
func FuzzHeaderValues(f *testing.F) {
	const name, region = "tool", "eu"
	w := start(f)
	p := w.provider("b", "p", "")
	p.register(`{"name":"` + name + `","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`)
	p.answers(func(frame) string { return done })
	body, _ := modernRequest("tools/call", name, `"name":"`+name+`","arguments":{"region":"`+region+`"}`)

	const version, method, accept, kind = "2026-07-28", "tools/call", "application/json, text/event-stream", "application/json"
	coded := func(text string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?=" }
	f.Add(version, method, coded(name), region, accept, kind, "", "", "")
	f.Add(version, method, name, coded(region), accept, kind, "", "", "")
	f.Add(version, method, "=?base64?w6k?=", "=?base64?", "*/*;q=0", "application/json; charset=utf-8", "session", "7", "http://127.0.0.1")
	f.Add("2025-11-25", "ping", "=?BASE64?eA==?=", "\x00\xff", "text/event-stream", "text/plain", "", "stream:1", "null")
	f.Add(" 2026-07-28 ", "", "", strings.Repeat("x", 9000), "", "multipart/form-data; boundary=", "\r\n", "-1", "http://evil.example")

	says := func(value, want string) bool {
		if inner, ok := strings.CutPrefix(value, "=?base64?"); ok {
			text, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(inner, "?="))
			return err == nil && string(text) == want
		}
		return value == want
	}
	f.Fuzz(func(t *testing.T, v, m, n, param, accepts, content, session, event, origin string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, w.mcpURL("b"), strings.NewReader(body))
		for key, value := range map[string]string{
			"Mcp-Protocol-Version": v, "Mcp-Method": m, "Mcp-Name": n, "Mcp-Param-Region": param, "Accept": accepts, "Content-Type": content,
			"Mcp-Session-Id": session, "Last-Event-Id": event, "Origin": origin,
		} {
			if value != "" {
				r.Header[key] = []string{value}
			}
		}
		answer := httptest.NewRecorder()
		w.server.ServeHTTP(answer, r)
		same := v == version && m == method && says(n, name) && says(param, region)
		reached := strings.Contains(answer.Body.String(), `"text":"done"`)
		switch {
		case answer.Code >= 500 || answer.Code < 200 || answer.Body.Len() == 0:
			t.Errorf("answered %d %q", answer.Code, answer.Body)
		case reached && !same:
			t.Errorf("the call was taken: %q", r.Header)
		case !reached && same && accepts == accept && content == kind && origin == "":
			t.Errorf("the call was not taken: %q: %d %s", r.Header, answer.Code, answer.Body)
		}
		if strings.Contains(w.log.String(), "panic") {
			t.Fatal(w.log.String())
		}
	})
}
