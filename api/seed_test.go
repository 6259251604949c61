package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSeedExample holds the wire of mcp-bridge-cf: its provider and its client
// work after changing only the base URL.
func TestSeedExample(t *testing.T) {
	w := start(t)
	var room struct {
		Room         string `json:"room"`
		ExtensionURL string `json:"extension_url"`
		MCPURL       string `json:"mcp_url"`
		HealthURL    string `json:"health_url"`
	}
	a := w.do("GET", w.url("/new"), "")
	if err := json.Unmarshal([]byte(a.body), &room); err != nil || len(room.Room) != 26 {
		t.Fatalf("/new: %d %s", a.status, a.body)
	}
	for name, id := range map[string]string{"a room": room.Room, "no room": ""} {
		t.Run(name, func(t *testing.T) {
			query := ""
			if id != "" {
				query = "?room=" + id
				if !strings.HasSuffix(room.ExtensionURL, "/ws/extension"+query) || !strings.HasPrefix(room.ExtensionURL, "ws://") ||
					room.MCPURL != w.url("/mcp"+query) || room.HealthURL != w.url("/health"+query) {
					t.Errorf("URLs of the room: %+v", room)
				}
			}
			p := w.dial("/ws/extension" + query)
			p.send(`{"type":"registerTools","tools":[{"name":"get_page_content","description":"Reads the page","inputSchema":{"type":"object","properties":{}}}]}`)
			p.send(`{"type":"pong"}`)
			list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
			const listed = `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"get_page_content","description":"Reads the page","inputSchema":{"type":"object","properties":{}}}]}}`
			for w.do("POST", w.url("/mcp"+query), list).body != listed {
				if t.Context().Err() != nil {
					t.Fatal("the tool was never listed")
				}
			}
			if a := w.do("GET", w.url("/health"+query), ""); !strings.Contains(a.body, `"connected":true`) || !strings.Contains(a.body, `"get_page_content"`) {
				t.Errorf("health: %s", a.body)
			}
			p.answers(func(f frame) string {
				if f.Name != "get_page_content" || string(f.Params) != `{"tabId":7}` || f.CallID == "" {
					t.Errorf("callTool: %s", f.raw)
				}
				return `{"content":[{"type":"text","text":"hello"}],"isError":false}`
			})
			got := w.do("POST", w.url("/mcp"+query), callBody("3", "get_page_content", `{"tabId":7}`))
			if want := `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"hello"}],"isError":false}}`; got.body != want {
				t.Errorf("tools/call:\n got %s\nwant %s", got.body, want)
			}
		})
	}
}
