package api_test

import (
	"strings"
	"testing"
)

// open opens a session of a revision for a client of that name.
func (w *world) open(bridge, revision, name string) []string {
	w.t.Helper()
	a := w.post(bridge, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"`+name+`","version":"1"}}}`)
	return []string{"Mcp-Session-Id", a.header.Get("Mcp-Session-Id")}
}

func TestClientsGetWhatTheyCanDigest(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	canonical := `{"name":"a","description":"d","inputSchema":{},"outputSchema":{"type":"array"}}`
	p.register(canonical, tool("z"))
	result := `{"content":[{"type":"resource_link","name":"n","uri":"u://x"}],"structuredContent":[1]}`
	p.answers(func(frame) string { return result })
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, c := range []struct{ revision, client, query, tool, result string }{
		{"2025-11-25", "test", "", `{"name":"a","description":"d","inputSchema":{}}`, `{"content":[{"type":"resource_link","name":"n","uri":"u://x"}]}`},
		{"2025-11-25", "claude-code", "", `{"name":"a","description":"d","inputSchema":{"type":"object","properties":{}}}`, `{"content":[{"type":"resource_link","name":"n","uri":"u://x"}]}`},
		{"2025-03-26", "test", "", `{"name":"a","description":"d","inputSchema":{}}`, `{"content":[{"type":"text","text":"n u://x"}]}`},
		{"2025-03-26", "claude-code", "?raw=1", canonical, result},
	} {
		h := w.open("b", c.revision, c.client)
		if a := w.do("POST", w.mcpURL("b")+c.query, list, h...); !strings.HasPrefix(a.body, `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+c.tool+`,{"name":"z"`) {
			t.Errorf("%s %s%s: %s", c.revision, c.client, c.query, a.body)
		}
		if a := w.do("POST", w.mcpURL("b")+c.query, callBody("1", "a", "{}"), h...); a.body != `{"jsonrpc":"2.0","id":1,"result":`+c.result+`}` {
			t.Errorf("%s %s%s: %s", c.revision, c.client, c.query, a.body)
		}
	}
	if a := w.post("b", list); !strings.Contains(a.body, canonical) {
		t.Errorf("without a session: %s", a.body)
	}
	if a := w.modern("b", "tools/list", "", ""); !strings.Contains(a.body, canonical) {
		t.Errorf("modern: %s", a.body)
	}
	if a := w.modern("b", "tools/call", "a", `"name":"a"`); !strings.Contains(a.body, `"structuredContent":[1]`) {
		t.Errorf("modern: %s", a.body)
	}
}
