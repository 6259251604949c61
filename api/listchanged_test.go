package api_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The seed's extension takes its tools off and registers them anew: clients are not told,
// unless something is different in the end.
func TestToolsThatComeBackAreNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"), tool("b"))
		time.Sleep(time.Second)
		legacy := w.stream("GET", w.mcpURL("b"), "", w.initialize("b")...)
		body, headers := modernRequest("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
		modern := w.stream("POST", w.mcpURL("b"), body, headers...)
		modern.want("acknowledged")
		told := map[string]<-chan string{"legacy": legacy.all(), "modern": modern.all()}
		seen := p.frames()
		anew := func(description string) {
			p.send(`{"type":"unregisterTools","names":["a","b"]}`)
			time.Sleep(50 * time.Millisecond)
			p.send(`{"type":"registerTools","tools":[` + tool("a") + `,` + strings.Replace(tool("b"), "does b", description, 1) + `]}`)
			for f := range seen {
				if f.Type == "registered" {
					break
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		anew("does b")
		anew("does b")
		for name, c := range told {
			if len(c) != 0 {
				t.Errorf("%s: told %s", name, <-c)
			}
		}
		anew("does more")
		for name, c := range told {
			if len(c) != 1 {
				t.Fatalf("%s: told %d times of a change", name, len(c))
			}
			if data := <-c; !strings.Contains(data, "tools/list_changed") {
				t.Errorf("%s: told %s", name, data)
			}
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}
