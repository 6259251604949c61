package api_test

import (
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
	if n := strings.Count(a.body, "é"); n < 30<<10 || n > 32<<10 || !strings.Contains(a.body, "are cut here") {
		t.Errorf("%d characters of instructions", n)
	}
}
