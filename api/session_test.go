package api_test

import (
	"strings"
	"testing"

	"mcpbridge/session"
)

// TestSessionsInMemoryAreBounded: of more MCP sessions than fit the least recently used
// falls out of memory, not one that is in use; its ID brings it back.
func TestSessionsInMemoryAreBounded(t *testing.T) {
	w := start(t, withLimits(session.Limits{MCPSessions: 3}))
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	level := func(headers []string, level string) {
		if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"`+level+`"}}`, headers...); a.status != 200 {
			t.Fatalf("setLevel: %d %s", a.status, a.body)
		}
	}
	// What is in memory alone shows in the level of what the provider is asked to log.
	levels := make(chan string, 1)
	p.answers(func(f frame) string {
		_, level, _ := strings.Cut(f.raw, `"logLevel":"`)
		level, _, _ = strings.Cut(level, `"`)
		levels <- level
		return done
	})
	asked := func(headers []string) string {
		if a := w.post("b", callBody("2", "a", "{}"), headers...); !strings.Contains(a.body, done) {
			t.Fatalf("call: %d %s", a.status, a.body)
		}
		return <-levels
	}
	inUse, first, second := w.initialize("b"), w.initialize("b"), w.initialize("b")
	stream := w.stream("GET", w.mcpURL("b"), "", inUse...)
	stream.wantWhole("")
	for _, s := range [][]string{inUse, first, second} {
		level(s, "error")
	}
	if got := asked(first); got != "error" { // now second is the one that was not used for longest
		t.Fatalf("level %q", got)
	}
	w.initialize("b")
	for _, c := range []struct {
		who     string
		headers []string
		want    string
	}{
		{"the one with a stream", inUse, "error"}, {"the one used since", first, "error"}, {"the least recently used", second, "info"},
	} {
		if got := asked(c.headers); got != c.want {
			t.Errorf("%s: level %q, want %q", c.who, got, c.want)
		}
	}
	w.provider("b", "q", "").register(tool("b"))
	stream.wantWhole("tools/list_changed")
	stream.close()
	if a := w.do("DELETE", w.mcpURL("b"), "", second...); a.status != 204 {
		t.Errorf("DELETE: %d %s", a.status, a.body)
	}
	for range 3 {
		w.initialize("b")
	}
	if a := w.post("b", callBody("2", "a", "{}"), second...); a.status != 404 {
		t.Errorf("a deleted session that fell out of memory is answered %d %s", a.status, a.body)
	}
}
