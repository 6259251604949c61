package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
)

// TestWhatProvidersSayOfThemselvesReachesClients: instructions, extensions and
// experimental capabilities, of every era, while the provider is away and after a
// restart.
func TestWhatProvidersSayOfThemselvesReachesClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		const hello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"extensions":{"io.example/ui":{"mime":["a/b"],"n":9007199254740993},"io.modelcontextprotocol/tasks":{"theirs":1}},"experimental":{"x":{"y":1.0}}},` +
			`"serverInfo":{"name":"srv","title":"Server","version":"1"},"instructions":"Use <a> first.\nThen b."}`
		s := w.mcpServer(provider, answers{"initialize": always(hello)})
		w.listed("b", "tools/list")
		told := func(extensions, instructions string) {
			t.Helper()
			synctest.Wait()
			if a := w.modern("b", "server/discover", "", ""); !strings.Contains(a.body, extensions+`"io.modelcontextprotocol/tasks":{}},"experimental":{"x":{"y":1.0}}},`+instructions) {
				t.Errorf("discover: %s", a.body)
			}
			a := w.post("b", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
			if !strings.Contains(a.body, strings.TrimSuffix(extensions, ",")+`},"experimental":{"x":{"y":1.0}}},"serverInfo":`) || !strings.Contains(a.body, `,`+instructions+`}}`) {
				t.Errorf("initialize: %s", a.body)
			}
		}
		const alone, both = `"instructions":"Use \u003ca\u003e first.\nThen b."`, `"instructions":"# P\n\nCall me.\n\n# Server\n\nUse \u003ca\u003e first.\nThen b."`
		const extensions = `"extensions":{"io.example/ui":{"mime":["a/b"],"n":9007199254740993},`
		told(extensions, alone)
		p := w.provider("b", "p", `,"title":"P","instructions":"Call me."`)
		told(extensions, alone) // what offers nothing is not introduced
		p.register(tool("c"))
		told(extensions, both)
		_ = s.ws.CloseNow()
		_ = p.ws.CloseNow()
		told(extensions, both)
		w.restart()
		told(extensions, both)

		p = w.provider("b", "p", `,"title":"P","instructions":"Call me twice."`)
		told(extensions, strings.Replace(both, "Call me.", "Call me twice.", 1))
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestInstructionsAreBounded(t *testing.T) {
	w := start(t)
	p := w.dial("/b/b/provider")
	p.send(`{"type":"hello","protocol":1,"provider":"p","instructions":"` + strings.Repeat("x", 32<<10+1) + `"}`)
	if code, reason := p.closed(); code != 4400 || !strings.Contains(reason, "32768") {
		t.Errorf("closed with %d %q", code, reason)
	}
	for _, name := range []string{"p", "q", "r"} {
		w.provider("b", name, `,"instructions":"`+strings.Repeat("é", 16<<10)+`"`).register(tool(name))
	}
	a := w.modern("b", "server/discover", "", "")
	var told struct{ Result struct{ Instructions string } }
	if err := json.Unmarshal([]byte(a.body), &told); err != nil {
		t.Fatal(err)
	}
	text := told.Result.Instructions
	if len(text) > 64<<10 || len(text) < 64<<10-3 || !strings.HasPrefix(text, "# p\n\né") || !strings.HasSuffix(text, "é\n\n(The instructions were longer and are cut here.)") {
		t.Errorf("%d bytes of instructions end with %q", len(text), text[max(0, len(text)-60):])
	}
}

// TestServersThatSayTooMuchAreCut: an MCP server is taken all the same, cut between
// characters, and the log says so.
func TestServersThatSayTooMuchAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		long := strings.Repeat("x", 32<<10)
		w.mcpServer(provider, answers{"initialize": always(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},` +
			`"extensions":{"io.example/long":{"x":"` + long + `"}},"experimental":{"x":{}}},` +
			`"serverInfo":{"name":"srv","title":"A\n\n# B","version":"1"},"instructions":"\u200b` + strings.Repeat("é", 16<<10) + `"}`)})
		w.mcpServer(provider+"?provider=odd", answers{
			"initialize": always(`{"protocolVersion":"2025-11-25","capabilities":[],"serverInfo":{"name":"odd","version":"1"},"instructions":["a"]}`),
			"tools/list": always(`{"tools":[` + tool("odd") + `]}`),
		})
		w.provider("b", "p", `,"instructions":"a <!-- b -->"`).register(tool("p"))
		synctest.Wait()
		a := w.modern("b", "server/discover", "", "")
		if want := `"experimental":{"x":{}}},"instructions":"# p\n\na \u003c!-- b --\u003e\n\n# A # B\n\n` + "\u200b" + strings.Repeat("é", 16<<10-2) + `","ttlMs"`; !strings.Contains(a.body, want) || strings.Contains(a.body, "io.example/long") {
			t.Errorf("discover: %.300s ... %s", a.body, a.body[max(0, len(a.body)-300):])
		}
		for _, want := range []string{
			`provider=srv warning="instructions have 32771 bytes; the first 32768 are taken"`,
			`provider=srv warning="instructions have characters that people do not see (U+200B); models read them"`,
			`provider=srv warning="capabilities.extensions have 32796 bytes; at most 32768 are taken"`,
			`provider=p warning="instructions have a comment of HTML, which people do not see; models read it"`,
		} {
			if !strings.Contains(w.log.String(), `msg="provider taken with a warning" bridge=b `+want) {
				t.Errorf("the log does not say %s: %s", want, w.log)
			}
		}
		if got := w.names(w.mcpURL("b")); len(got) != 3 {
			t.Errorf("listed %v", got)
		}
		w.end()
	})
}

// TestClientsExtensionsReachProviders: with each call, byte for byte, in both dialects,
// but for tasks, which are between the client and the bridge.
func TestClientsExtensionsReachProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, answers{"server/discover": always(strings.Replace(modernHello, `"tools":{"listChanged":true}`, `"tools":{}`, 1))})
		p := w.provider("b", "p", "")
		p.register(tool("z"))
		synctest.Wait()
		const ui = `"io.example/ui":{"mime":["a/b"],"n":9007199254740993}`
		for caps, want := range map[string]string{
			`{ "extensions":{` + ui + `} ,"later":1.0}`:                                                                                "",
			`{"extensions":[],"elicitation":{},"io.modelcontextprotocol/tasks":{}}`:                                                    "",
			`{"elicitation":{}, "extensions":{"io.modelcontextprotocol\/tasks":{"x":1}, ` + ui + `}, "later":1.0}`:                     `{"elicitation":{}, "extensions":{` + ui + `}, "later":1.0}`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`:                                                                      `{"extensions":{}}`,
			`{"extensions":{"io.modelcontextprotocol/tasks":{}},"x":2,"extensions":{"io.modelcontextprotocol/tasks":{},"io.x/y":{}} }`: `{"extensions":{},"x":2,"extensions":{"io.x/y":{}} }`,
		} {
			if want == "" {
				want = caps
			}
			opened := w.post("b", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+caps+`}}`)
			session := []string{"Mcp-Session-Id", opened.header.Get("Mcp-Session-Id")}
			for era, call := range map[string]func(name string) answer{
				"modern": func(name string) answer {
					body, h := modernRequest("tools/call", name, `"name":"`+name+`"`)
					return w.post("b", strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":`+caps, 1), h...)
				},
				"legacy": func(name string) answer { return w.post("b", callBody("1", name, "{}"), session...) },
			} {
				c := w.later(func() answer { return call("a") })
				q := s.next("tools/call")
				s.send(q.reply(done))
				<-c
				if got := string(q.Params.Meta["io.modelcontextprotocol/clientCapabilities"]); got != want {
					t.Errorf("%s, dialect mcp: %s came as %s", era, caps, got)
				}
				c = w.later(func() answer { return call("z") })
				f := p.want("callTool")
				p.result(f.CallID, done)
				<-c
				if !strings.Contains(f.raw, `"clientCapabilities":`+want) {
					t.Errorf("%s, bridge.v1: %s came in %s", era, caps, f.raw)
				}
			}
		}
		w.end()
	})
}

// TestWhatIsTheBridgesOwnToDeclare: what a provider declares of tasks, of tokens, and of
// notifications that it would send to somebody else's client is not declared to that.
func TestWhatIsTheBridgesOwnToDeclare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		w.mcpServer(provider, answers{"initialize": always(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},` +
			`"extensions":{"io.modelcontextprotocol/ui":{},"io.modelcontextprotocol/oauth-client-credentials":{},"io.modelcontextprotocol/enterprise-managed-authorization":{},"io.modelcontextprotocol/tasks":{"theirs":1}},` +
			`"experimental":{"claude/channel":{},"claude/channel/permission":{},"x":{}}},"serverInfo":{"name":"srv","version":"1"}}`)})
		synctest.Wait()
		if a := w.modern("b", "server/discover", "", ""); !strings.Contains(a.body, `"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}},"experimental":{"x":{}}}`) {
			t.Errorf("discover: %s", a.body)
		}
		a := w.post("b", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
		if !strings.Contains(a.body, `"extensions":{"io.modelcontextprotocol/ui":{}},"experimental":{"x":{}}}`) {
			t.Errorf("initialize: %s", a.body)
		}
		// Some clients write a slash as \/.
		body, h := taskRequest("tasks/get", "none", `"taskId":"none"`)
		if a := w.post("b", strings.Replace(body, "protocol/tasks", `protocol\/tasks`, 1), h...); !strings.Contains(a.body, `"code":-32602`) {
			t.Errorf("tasks/get: %s", a.body)
		}
		w.end()
	})
}
