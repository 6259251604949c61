package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

// initializeAs opens a session of a revision and returns the headers of its requests.
func (w *world) initializeAs(bridge, version, caps string) []string {
	w.t.Helper()
	a := w.post(bridge, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":`+caps+`}}`)
	id := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || id == "" {
		w.t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	return []string{"Mcp-Session-Id", id}
}

// entries are an array's elements by their id.
func entries(t *testing.T, body string) map[string]string {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	found := map[string]string{}
	for _, raw := range all {
		var m struct{ ID json.RawMessage }
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		found[string(m.ID)] = string(raw)
	}
	if len(found) != len(all) {
		t.Errorf("two entries have one id: %s", body)
	}
	return found
}

const ping2 = `{"jsonrpc":"2.0","id":2,"method":"ping"}`

func TestBatchIsAnsweredByAnArray(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	p.answers(func(f frame) string { return `{"content":[],"echo":` + string(f.Params) + `}` })
	headers := w.initializeAs("b", "2025-03-26", "{}")
	for name, h := range map[string][]string{
		"session": headers, "session and version": append([]string{"Mcp-Protocol-Version", "2025-03-26"}, headers...),
		"no session": nil, "version alone": {"Mcp-Protocol-Version", "2025-03-26"},
		"no events": append([]string{"Accept", "application/json"}, headers...),
	} {
		t.Run(name, func(t *testing.T) {
			a := w.post("b", "\n [ "+strings.Join([]string{
				callBody(`"x"`, "a", `{"n":9007199254740993}`), ping2,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				`{"jsonrpc":"2.0","id":"bridge-7","result":{}}`,
				`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}`,
				`{"jsonrpc":"2.0","id":4,"method":"no/such"}`,
				`{"jsonrpc":"2.0","id":5,"id":5,"method":"ping"}`,
				callBody("6", "z", "{}"),
				`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`,
			}, ", ")+"]", h...)
			if a.status != 200 || a.header.Get("Content-Type") != "application/json" || a.header.Get("Mcp-Session-Id") != "" {
				t.Errorf("%d %v", a.status, a.header)
			}
			got := entries(t, a.body)
			for id, want := range map[string]string{
				`"x"`: `{"jsonrpc":"2.0","id":"x","result":{"content":[],"echo":{"n":9007199254740993}}}`,
				`2`:   `{"jsonrpc":"2.0","id":2,"result":{}}`,
				`3`:   `"error":{"code":-32600`, `4`: `"error":{"code":-32601`,
				`5`: `"error":{"code":-32600`,
				`6`: `"error":{"code":-32602`, `7`: `"name":"a"`,
			} {
				if !strings.Contains(got[id], want) {
					t.Errorf("%s: %q, want %s", id, got[id], want)
				}
			}
			if len(got) != 7 {
				t.Errorf("%d entries: %s", len(got), a.body)
			}
		})
	}
	if a := w.post("b", `[7,null,"x",[]]`, headers...); a.status != 200 || strings.Count(a.body, `"id":null,"error":{"code":-32600`) != 4 {
		t.Errorf("entries that are no messages: %d %s", a.status, a.body)
	}
	if a := w.post("b", `[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":1,"result":{}}]`, headers...); a.status != 202 || a.body != "" {
		t.Errorf("nothing to answer: %d %s", a.status, a.body)
	}
}

func TestBatchIsRefusedAsAWhole(t *testing.T) {
	w := start(t)
	headers := w.initializeAs("b", "2025-03-26", "{}")
	many := "[" + strings.Repeat(ping2+",", 64) + ping2 + "]"
	for body, want := range map[string]string{
		`[]`:                            `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600`,
		`[` + ping2:                     `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700`,
		`[` + ping2 + `]x`:              `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32700`,
		`[` + ping2 + `,` + ping2 + `]`: `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"two requests of the batch have the same id"`,
		"[" + strings.Repeat(ping2+",", 65) + "what follows is not looked at": `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a batch may have at most 64 messages"`,
		many: `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a batch may have at most 64 messages"`,
		`[` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `]`: `400 {"jsonrpc":"2.0","id":null,"error":{"code":-32600`,
	} {
		if a := w.post("b", body, headers...); !strings.HasPrefix(fmt.Sprint(a.status, " ", a.body), want) {
			t.Errorf("%.80s: %d %s, want %s", body, a.status, a.body, want)
		}
	}
	_, modern := modernRequest("ping", "", "")
	for name, h := range map[string][]string{
		"2025-11-25": w.initialize("b"), "2025-06-18": w.initializeAs("b", "2025-06-18", "{}"),
		"2024-11-05": w.initializeAs("b", "2024-11-05", "{}"), "modern": modern,
		"a version without a session": {"Mcp-Protocol-Version", "2025-11-25"},
	} {
		if a := w.post("b", `[`+ping2+`]`, h...); a.status != 400 || !strings.Contains(a.body, `"code":-32600`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := w.post("b", `[`+ping2+`]`, "Mcp-Session-Id", "x"); a.status != 404 {
		t.Errorf("no such session: %d", a.status)
	}
}

func TestBatchWithProgressIsAnsweredByAStream(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initializeAs("b", "2025-03-26", `{"elicitation":{}}`)
	type reply struct{ e *events }
	got := make(chan reply, 1)
	go func() {
		got <- reply{w.stream("POST", w.mcpURL("b"), `[`+ping2+`,`+progressCall("3", `"t"`)+`,`+callBody("4", "a", "{}")+`]`, headers...)}
	}()
	first, second := p.want("callTool"), p.want("callTool")
	if strings.Contains(second.raw, `"progress":true`) {
		first, second = second, first
	}
	p.send(`{"type":"progress","callId":"` + first.CallID + `","progress":1}`)
	e := (<-got).e
	seen := []string{e.want(""), e.want("")}
	if !slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, `"id":2,"result":{}`) }) ||
		!slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, `"progressToken":"t"`) }) {
		t.Errorf("first came %q", seen)
	}
	p.result(second.CallID, askingResult) // the other call asks for input
	var request struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(e.want("elicitation/create")), &request); err != nil {
		t.Fatal(err)
	}
	if a := w.post("b", `[{"jsonrpc":"2.0","id":`+string(request.ID)+`,"result":{"action":"decline"}}]`, headers...); a.status != 202 {
		t.Errorf("%d", a.status)
	}
	p.result(p.want("callTool").CallID, done)
	e.want(`"id":4,"result":` + done)
	p.result(first.CallID, done)
	e.want(`"id":3,"result":` + done)
	if data, err := e.next(); err == nil {
		t.Errorf("the stream goes on with %s", data)
	}
}

func TestBatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Calls: 100}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		calls := make(chan frame, 100)
		p.answers(func(f frame) string { calls <- f; return "" })
		var all []string
		for n := range 64 {
			all = append(all, callBody(fmt.Sprint(n), "a", "{}"))
		}
		got := make(chan answer, 1)
		go func() { got <- w.post("b", `[`+strings.Join(all, ",")+`]`, "Accept", "application/json") }()
		for range 4 {
			time.Sleep(time.Second)
			synctest.Wait()
			if n := len(calls); n != 16 {
				t.Errorf("%d calls at once, want 16", n)
			}
			for range 16 {
				p.result((<-calls).CallID, done)
			}
		}
		if a := <-got; len(entries(t, a.body)) != 64 || strings.Count(a.body, done) != 64 {
			t.Errorf("%s", a.body)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}
