package api_test

import (
	"strings"
	"testing"
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
