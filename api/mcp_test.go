package api_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"mcpbridge/session"
)

// TestClientsNameOutlivesItsRequest: what a session keeps must not lie in memory
// that later requests are read into.
func TestClientsNameOutlivesItsRequest(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	session := w.initialize("b")
	for range 50 { // each reads its body into memory of the same pool
		w.post("b", `{"jsonrpc":"2.0","id":0,"method":"ping","params":{"x":"`+strings.Repeat("#", 500)+`"}}`)
	}
	p.answers(func(f frame) string {
		if !strings.Contains(f.raw, `"client":{"name":"test","version":"1"}`) {
			t.Errorf("callTool: %s", f.raw)
		}
		return done
	})
	if a := w.post("b", callBody("1", "a", "{}"), session...); !strings.Contains(a.body, "done") {
		t.Errorf("answer %s", a.body)
	}
}

func TestInitializeNegotiatesAndOpensASession(t *testing.T) {
	w := start(t)
	for asked, want := range map[string]string{
		"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2025-03-26", "2024-11-05": "2024-11-05",
		"2026-07-28": "2025-11-25", "1999-01-01": "2025-11-25", "": "2025-11-25",
	} {
		a := w.post("b", `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"`+asked+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		wantBody := `{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"` + want + `","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}},"serverInfo":{"name":"mcpbridge","title":"mcpbridge","version":"test"}}}`
		if a.body != wantBody || a.header.Get("Mcp-Session-Id") == "" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("asked %q: %s", asked, a.body)
		}
	}
}

func TestSessionOutlivesTheProcess(t *testing.T) {
	w := start(t)
	w.provider("b", "p", "").register(tool("a"))
	headers := w.initialize("b")
	w.restart()
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if a := w.post("b", list, headers...); a.status != 200 || !strings.Contains(a.body, `"name":"a"`) {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
	if a := w.do("DELETE", w.mcpURL("b"), "", headers...); a.status/100 != 2 {
		t.Errorf("DELETE: %d %s", a.status, a.body)
	}
	gone := func(when string) {
		t.Helper()
		for _, a := range []answer{w.post("b", list, headers...), w.do("DELETE", w.mcpURL("b"), "", headers...), w.do("GET", w.mcpURL("b"), "", headers...)} {
			if a.status != 404 {
				t.Errorf("%s: %d %s, want 404", when, a.status, a.body)
			}
		}
	}
	gone("after DELETE")
	w.restart()
	gone("after DELETE and a restart")
}

func TestSessionIsGoodForItsBridgeAlone(t *testing.T) {
	w := start(t)
	headers := w.initialize("b")
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	if a := w.post("b", ping, headers...); a.body != `{"jsonrpc":"2.0","id":2,"result":{}}` {
		t.Errorf("ping: %d %s", a.status, a.body)
	}
	if a := w.post("c", ping, headers...); a.status != 404 {
		t.Errorf("on another bridge: %d", a.status)
	}
	for _, id := range []string{"x", headers[1] + "A", headers[1][1:], strings.Repeat("A", 300)} {
		if a := w.post("b", ping, "Mcp-Session-Id", id); a.status != 404 {
			t.Errorf("session %.20q: %d, want 404", id, a.status)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := w.do(method, w.mcpURL("b"), "", "Mcp-Protocol-Version", "2025-11-25"); a.status != 400 {
			t.Errorf("%s without a session: %d, want 400", method, a.status)
		}
	}
}

func TestVersionHeaderOfLegacyRequests(t *testing.T) {
	w := start(t)
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	for version, status := range map[string]int{"": 200, "2025-03-26": 200, "2024-11-05": 200, "2025-06-18": 400, "2025-11-25": 400, "1999-01-01": 400} {
		if a := w.post("b", ping, "Mcp-Protocol-Version", version); a.status != status {
			t.Errorf("%q without a session: %d %s, want %d", version, a.status, a.body, status)
		}
	}
}

func TestMessagesThatAreNoRequests(t *testing.T) {
	w := start(t)
	for _, c := range [][2]string{
		{``, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700`},
		{`{`, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}x`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32700`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700`},
		{`[]`, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600`},
		{`7`, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600`},
		{`{"id":1,"method":"ping"}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/list"}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"name":1,"NAME":2}}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat(`{"a":`, 256) + `1` + strings.Repeat(`}`, 256) + `}`, `400 {"jsonrpc":"2.0","id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`, `200 {"jsonrpc":"2.0","id":1,"error":{"code":-32601`},
		{`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`, `200 {"jsonrpc":"2.0","id":1,"error":{"code":-32602`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `202 `},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, `202 `},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, `202 `},
	} {
		body, want := c[0], c[1]
		a := w.post("b", body)
		if got := fmt.Sprint(a.status, " ", a.body); !strings.HasPrefix(got, want) {
			t.Errorf("%.70s\n got %s\nwant %s", body, got, want)
		}
	}
}

func TestBodyIsBoundedAndPlain(t *testing.T) {
	w := start(t, withLimits(session.Limits{BodyBytes: 1000}))
	ping := func(n int) string {
		head := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`
		return head + strings.Repeat("x", n-len(head)-3) + `"}}`
	}
	if a := w.post("b", ping(1000)); a.status != 200 {
		t.Errorf("a body at the limit: %d %s", a.status, a.body)
	}
	if a := w.post("b", ping(1001)); a.status != 413 || !strings.Contains(a.body, "1000 bytes") {
		t.Errorf("a body over the limit: %d %s", a.status, a.body)
	}
	if a := w.do("POST", w.mcpURL("b"), ping(2000), "Transfer-Encoding", "chunked"); a.status != 413 {
		t.Errorf("without a length: %d", a.status)
	}
	for header, value := range map[string]string{"Content-Encoding": "gzip", "Content-Type": "text/plain"} {
		if a := w.post("b", ping(100), header, value); a.status != 415 {
			t.Errorf("%s %s: %d, want 415", header, value, a.status)
		}
	}
	if a := w.post("b", ping(100), "Content-Type", "application/json; charset=utf-8"); a.status != 200 {
		t.Errorf("with a charset: %d", a.status)
	}
	if a := w.do("PUT", w.mcpURL("b"), ""); a.status != 405 || a.header.Get("Allow") == "" {
		t.Errorf("PUT: %d", a.status)
	}
	if a := w.do("POST", w.mcpURL("b")+"/", ping(100)); a.status != 200 {
		t.Errorf("with a trailing slash: %d", a.status)
	}
}

func TestListComesInPages(t *testing.T) {
	w := start(t, withLimits(session.Limits{Tools: 2000}))
	p := w.provider("b", "p", "")
	var all []string
	for n := range 1200 {
		all = append(all, tool(fmt.Sprintf("t%04d", n)))
	}
	p.register(all...)
	type page struct {
		Result struct {
			Tools      []json.RawMessage
			NextCursor string
		}
	}
	get := func(cursor string) (pg page) {
		params := ""
		if cursor != "" {
			params = `,"params":{"cursor":"` + cursor + `"}`
		}
		a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"`+params+`}`)
		if err := json.Unmarshal([]byte(a.body), &pg); err != nil {
			t.Fatal(err)
		}
		return pg
	}
	var got []string
	pages := 0
	for cursor := ""; ; pages++ {
		pg := get(cursor)
		for _, raw := range pg.Result.Tools {
			got = append(got, string(raw))
		}
		if cursor = pg.Result.NextCursor; cursor == "" {
			break
		}
		if pages == 0 { // the tool that the cursor names may go meanwhile
			p.send(`{"type":"unregisterTools","names":["t0499"]}`)
			p.want("registered")
		}
	}
	if !slices.Equal(got, all) || pages != 2 {
		t.Errorf("%d tools on %d more pages, want %d", len(got), pages, len(all))
	}
	for _, bad := range []string{`"x"`, `7`, `"` + base64.RawURLEncoding.EncodeToString([]byte("elsewhere")) + `"`} {
		if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":`+bad+`}}`); !strings.Contains(a.body, "-32602") {
			t.Errorf("cursor %s: %s", bad, a.body)
		}
	}
	for _, params := range []string{`{"cursor":null}`, `null`} {
		if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`); !strings.Contains(a.body, `{"tools":[{`) {
			t.Errorf("params %s: %.200s", params, a.body)
		}
	}
}

func TestStreamTellsOfChangesOnce(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	legacy := w.stream("GET", w.mcpURL("b"), "", headers...)
	body, modernHeaders := modernRequest("subscriptions/listen", "", `"notifications":{"toolsListChanged":true,"promptsListChanged":true}`)
	modern := w.stream("POST", w.mcpURL("b"), body, modernHeaders...)
	const mark = `"_meta":{"io.modelcontextprotocol/subscriptionId":1}`
	if got, want := modern.want("acknowledged"), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},`+mark+`}}`; got != want {
		t.Errorf("first message %s", got)
	}
	for _, e := range []*events{legacy, modern} {
		if h := e.resp.Header; h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-cache, no-transform" {
			t.Errorf("headers %v", h)
		}
	}
	p.register(tool("a")) // changes nothing
	p.register(tool("b"))
	if got := legacy.want("list_changed"); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("legacy: %s", got)
	}
	if got := modern.want("list_changed"); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+mark+`}}` {
		t.Errorf("modern: %s", got)
	}
	// The session's newest stream takes over.
	newer := w.stream("GET", w.mcpURL("b"), "", headers...)
	if data, err := legacy.next(); err == nil {
		t.Errorf("the older stream goes on with %s", data)
	}
	p.register(tool("c"))
	newer.want("list_changed")
	modern.want("list_changed")
	w.server.Drain()
	if got, want := modern.want("result"), `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1,"io.modelcontextprotocol/serverInfo":{"name":"mcpbridge","title":"mcpbridge","version":"test"}}}}`; got != want {
		t.Errorf("last message %s", got)
	}
	if line, err := newer.in.ReadString('\n'); err != nil || line != "\n" { // behind the event before
		t.Errorf("line %q, %v", line, err)
	}
	if line, err := newer.in.ReadString('\n'); line != "retry: 2000\n" {
		t.Errorf("line %q, %v; want to be told when to come back", line, err)
	}
	for _, e := range []*events{newer, modern} {
		if data, err := e.next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the drain: %s, %v", data, err)
		}
	}
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("while draining: %d", a.status)
	}
}

func TestDeleteEndsTheSessionsStream(t *testing.T) {
	w := start(t)
	headers := w.initialize("b")
	e := w.stream("GET", w.mcpURL("b"), "", headers...)
	w.do("DELETE", w.mcpURL("b"), "", headers...)
	if _, err := e.next(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream goes on: %v", err)
	}
}

func TestModernRequestsAreChecked(t *testing.T) {
	w := start(t)
	w.provider("b", "p", "").register(tool("a"))
	const caps = `"io.modelcontextprotocol/clientCapabilities":{}`
	version := func(v string) string { return `"io.modelcontextprotocol/protocolVersion":"` + v + `"` }
	request := func(method, params, meta string) string {
		return `{"jsonrpc":"2.0","id":"x","method":"` + method + `","params":{` + params + `"_meta":{` + meta + `}}}`
	}
	good := version("2026-07-28") + "," + caps
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
		want       string
	}{
		{"no version in _meta", request("tools/list", "", caps), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, `"id":"x","error":{"code":-32602`},
		{"no capabilities", request("tools/list", "", version("2026-07-28")), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, `"code":-32602`},
		{"no header", request("tools/list", "", good), []string{"Mcp-Method", "tools/list"}, 400, `"code":-32020`},
		{"another header", request("tools/list", "", good), []string{"Mcp-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"}, 400, `"code":-32020`},
		{"unknown version", request("tools/list", "", version("2099-01-01")+","+caps), []string{"Mcp-Protocol-Version", "2099-01-01", "Mcp-Method", "tools/list"}, 400, `"code":-32022,"message":"revision \"2099-01-01\" is not served here","data":{"requested":"2099-01-01","supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}`},
		{"no method header", request("tools/list", "", good), []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, `"code":-32020`},
		{"another method", request("tools/list", "", good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"}, 400, `"code":-32020`},
		{"no name header", request("tools/call", `"name":"a",`, good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"}, 400, `"code":-32020`},
		{"another name", request("tools/call", `"name":"a",`, good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "b"}, 400, `"code":-32020`},
		{"bad Base64", request("tools/call", `"name":"a",`, good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?YQ=?="}, 400, `"code":-32020`},
		{"initialize", request("initialize", "", good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "initialize"}, 404, `"code":-32601`},
		{"ping", request("ping", "", good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "ping"}, 404, `"code":-32601`},
		{"bad level", request("tools/list", "", good+`,"io.modelcontextprotocol/logLevel":"loud"`), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, `"code":-32602`},
		{"listen to nothing named", request("subscriptions/listen", "", good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"}, 400, `"code":-32602`},
		{"a session is ignored", request("tools/list", "", good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list", "Mcp-Session-Id", "forged", "Last-Event-ID", "9"}, 200, `"resultType":"complete"`},
		{"spaces around a header", request("tools/list", "", good), []string{"Mcp-Protocol-Version", " 2026-07-28 ", "Mcp-Method", " tools/list "}, 200, `"resultType":"complete"`},
		{"an unknown tool", request("tools/call", `"name":"z",`, good), []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "z"}, 200, `"code":-32602`},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{` + good + `}}}`, []string{"Mcp-Protocol-Version", "2026-07-28"}, 202, ``},
	} {
		a := w.post("b", c.body, c.headers...)
		if a.status != c.status || !strings.Contains(a.body, c.want) || a.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %d %s, want %d with %s", c.name, a.status, a.body, c.status, c.want)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := w.do(method, w.mcpURL("b"), "", "Mcp-Protocol-Version", "2026-07-28"); a.status != 405 || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow %q", method, a.status, a.header.Get("Allow"))
		}
	}
}

func TestModernResults(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	const info = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcpbridge","title":"mcpbridge","version":"test"}}`
	if a := w.modern("b", "server/discover", "", ""); a.body != `{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":1000,"cacheScope":"private","resultType":"complete",`+info+`}}` {
		t.Errorf("discover: %s", a.body)
	}
	if a := w.modern("b", "tools/list", "", ""); a.body != `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+tool("a")+`],"ttlMs":1000,"cacheScope":"private","resultType":"complete",`+info+`}}` {
		t.Errorf("list: %s", a.body)
	}
	results := map[string]string{
		`{"content":[]}`: `{"content":[],"resultType":"complete",` + info + `}`,
		`{ }`:            `{ "resultType":"complete",` + info + `}`,
		`{"content":[],"_meta":{"k":9007199254740993}}`:                                               `{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcpbridge","title":"mcpbridge","version":"test"},"k":9007199254740993},"resultType":"complete"}`,
		`{"_meta":{ },"content":[],"resultType":"special"}`:                                           `{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcpbridge","title":"mcpbridge","version":"test"} },"content":[],"resultType":"special"}`,
		`{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mine","version":"1"}}}`: `{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mine","version":"1"}},"resultType":"complete"}`,
	}
	var reply atomic.Value
	p.answers(func(frame) string { return reply.Load().(string) })
	for raw, want := range results {
		reply.Store(raw)
		if a := w.modern("b", "tools/call", "a", `"name":"a"`); a.body != `{"jsonrpc":"2.0","id":1,"result":`+want+`}` {
			t.Errorf("%s\n got %s\nwant %s", raw, a.body, want)
		}
		if a := w.post("b", callBody("1", "a", "{}")); a.body != `{"jsonrpc":"2.0","id":1,"result":`+raw+`}` {
			t.Errorf("legacy %s\n got %s", raw, a.body)
		}
	}
}

func TestParametersInHeaders(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(`{"name":"q","description":"d","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}}`)
	p.answers(func(frame) string { return done })
	for _, c := range []struct {
		arguments string
		headers   []string
		ok        bool
	}{
		{`{"region":"eu","n":42}`, []string{"Mcp-Param-Region", "eu", "Mcp-Param-N", "42"}, true},
		{`{"region":"été"}`, []string{"Mcp-Param-Region", "=?base64?w6l0w6k=?="}, true},
		{`{"region":null}`, nil, true},
		{`{}`, nil, true},
		{`{"region":"eu"}`, nil, false},
		{`{"region":"eu"}`, []string{"Mcp-Param-Region", "us"}, false},
		{`{}`, []string{"Mcp-Param-Region", "us"}, false},
	} {
		a := w.modern("b", "tools/call", "q", `"name":"q","arguments":`+c.arguments, c.headers...)
		ok := a.status == 200 && strings.Contains(a.body, "done")
		mismatch := a.status == 400 && strings.Contains(a.body, "-32020")
		if ok != c.ok || mismatch == c.ok {
			// null is refused by the schema's type, which is no mismatch
			if !(c.arguments == `{"region":null}` && strings.Contains(a.body, "isError")) {
				t.Errorf("%s with %v: %d %s", c.arguments, c.headers, a.status, a.body)
			}
		}
	}
	if a := w.post("b", callBody("1", "q", `{"region":"eu"}`)); !strings.Contains(a.body, "done") {
		t.Errorf("a legacy client needs no headers: %s", a.body)
	}
}

func TestArgumentsAreCheckedAgainstTheSchema(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(`{"name":"add","description":"d","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"deep":{"type":"object","properties":{"b":{"type":"integer","minimum":3}}}},"required":["a"]}}`)
	p.answers(func(frame) string { return done })
	for arguments, want := range map[string]string{
		`{"a":1}`:                  "done",
		`{"a":1,"deep":{"b":3}}`:   "done",
		`{"a":"1"}`:                "at /a: got string, want number",
		`{}`:                       "missing property 'a'",
		`{"a":1,"deep":{"b":2}}`:   "at /deep/b: minimum: got 2, want 3",
		`{"a":1,"deep":{"b":3.5}}`: "at /deep/b: got number, want integer",
		`null`:                     "missing property 'a'",
		`[]`:                       "-32602",
	} {
		a := w.post("b", callBody("1", "add", arguments))
		if !strings.Contains(a.body, want) || (want[0] == 'a' || want[0] == 'm') != strings.Contains(a.body, `"isError":true`) {
			t.Errorf("%s: %s, want %s", arguments, a.body, want)
		}
	}
}

func TestProvidersOwnErrorsPassWithTheirData(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	for code, want := range map[int]int{
		-32602: -32602, -32603: -32603, -32000: -32000, -32019: -32019, 7: 7, -40000: -40000, -31999: -31999,
		-32601: -32603, -32600: -32603, -32700: -32603, -32020: -32603, -32042: -32042, -32002: -32002, -32768: -32603,
	} {
		got := make(chan answer, 1)
		go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
		f := p.want("callTool")
		p.send(fmt.Sprintf(`{"type":"toolError","callId":%q,"error":{"code":%d,"message":"no <way>","data":{"n":9007199254740993}}}`, f.CallID, code))
		a := <-got
		if wantBody := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"no \u003cway\u003e","data":{"n":9007199254740993}}}`, want); a.status != 200 || a.body != wantBody {
			t.Errorf("code %d: %d %s\nwant %s", code, a.status, a.body, wantBody)
		}
	}
	// Clients of 2026-07-28 must not see codes of the earlier revisions.
	for code, want := range map[int]int{-32042: -32603, -32002: -32602, -32021: -32021} {
		got := make(chan answer, 1)
		go func() { got <- w.modern("b", "tools/call", "a", `"name":"a","arguments":{}`) }()
		f := p.want("callTool")
		p.send(fmt.Sprintf(`{"type":"toolError","callId":%q,"error":{"code":%d,"message":"no"}}`, f.CallID, code))
		if a := <-got; !strings.Contains(a.body, fmt.Sprintf(`"error":{"code":%d,"message":"no"}`, want)) {
			t.Errorf("code %d to a modern client: %s, want %d", code, a.body, want)
		}
	}
	got := make(chan answer, 1)
	go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
	f := p.want("callTool")
	p.send(`{"type":"toolResult","callId":"` + f.CallID + `"}`)
	p.want("error")
	if a := <-got; !strings.Contains(a.body, `"code":-32603`) {
		t.Errorf("a result that is none: %s", a.body)
	}
}
