package api_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestIconsPassByteForByte: icons of what an MCP server offers, and of resources that its
// results link to, reach clients of every revision; a client does not mind what its own
// revision does not know. Where a revision has no links there is text instead.
func TestIconsPassByteForByte(t *testing.T) {
	const icons = `"icons": [ {"src":"data:image/png;base64,AA==","mimeType":"image/png","sizes":["48x48","any"],"theme":"dark","n":9007199254740993},{"src":"https://e.example/i.svg?a=<&>é\u00e9"} ]`
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		offers := map[string]string{
			"tools":             `{"name":"a","description":"d",` + icons + `,"inputSchema":{"type":"object","properties":{}}}`,
			"prompts":           `{"name":"p","description":"d",` + icons + `}`,
			"resources":         `{"uri":"test://r","name":"r",` + icons + `}`,
			"resourceTemplates": `{"uriTemplate":"test://{x}","name":"x",` + icons + `}`,
		}
		methods := map[string]string{
			"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list", "resourceTemplates": "resources/templates/list",
		}
		const result = `{"content":[{"type":"resource_link","name":"r","uri":"test://r",` + icons + `}]}`
		special := answers{"tools/call": always(result), "logging/setLevel": always("{}")}
		for member, method := range methods {
			special[method] = always(`{"` + member + `":[` + offers[member] + `]}`)
		}
		w.mcpServer(provider, special)
		synctest.Wait()
		for _, revision := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
			for _, client := range []string{"test", "claude-code"} { // the latter gets the shield
				h := w.open("b", revision, client)
				for member, method := range methods {
					if a := w.post("b", rpc(method, ""), h...); a.body != listOf(member, offers[member]) {
						t.Errorf("%s, %s, %s: %s", revision, client, method, a.body)
					}
				}
				want := `{"jsonrpc":"2.0","id":1,"result":` + result + `}`
				if revision < "2025-06-18" {
					want = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"r test://r"}]}}`
				}
				if a := w.post("b", callBody("1", "a", "{}"), h...); a.body != want {
					t.Errorf("%s, %s, call: %s", revision, client, a.body)
				}
			}
		}
		for member, method := range methods {
			if a := w.modern("b", method, "", ""); !strings.Contains(a.body, `"result":{"`+member+`":[`+offers[member]+`],`) {
				t.Errorf("2026-07-28, %s: %s", method, a.body)
			}
		}
		if a := w.modern("b", "tools/call", "a", `"name":"a"`); !strings.Contains(a.body, `"result":`+strings.TrimSuffix(result, "}")+`,`) {
			t.Errorf("2026-07-28, call: %s", a.body)
		}
		w.end()
	})
}
