package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"mcpbridge/session"
)

// again dials again with the token that a welcome gave.
func (w *world) again(bridge, name string, welcome frame) (*peer, frame) {
	w.t.Helper()
	var token struct{ Resume string }
	if err := json.Unmarshal([]byte(welcome.raw), &token); err != nil || token.Resume == "" {
		w.t.Fatalf("no token in %s", welcome.raw)
	}
	return w.greeted(bridge, name, `,"resume":"`+token.Resume+`"`)
}

// greeted connects as provider does, and returns the welcome too.
func (w *world) greeted(bridge, name, rest string) (*peer, frame) {
	w.t.Helper()
	p := w.dial("/b/" + bridge + "/provider")
	p.send(`{"type":"hello","protocol":1,"provider":"` + name + `"` + rest + `}`)
	return p, p.want("welcome")
}

// TestAProviderThatResumesAnswersItsOldCalls: a call in flight outlives the connection
// that it was given to, again and again, and is answered once.
func TestAProviderThatResumesAnswersItsOldCalls(t *testing.T) {
	w := start(t)
	p, welcome := w.greeted("b", "p", "")
	p.register(tool("a"))
	got := make(chan answer, 1)
	go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
	id := p.want("callTool").CallID
	for range 3 {
		_ = p.ws.CloseNow()
		p, welcome = w.again("b", "p", welcome)
	}
	p.result(id, `{"content":[],"late":true}`)
	p.result(id, `{"content":[],"twice":true}`)
	if a := <-got; !strings.Contains(a.body, `"late":true`) {
		t.Errorf("the call ended with %s", a.body)
	}
	go func() { got <- w.post("b", callBody("2", "a", "{}")) }()
	p.result(p.want("callTool").CallID, `{"content":[],"next":true}`)
	if a := <-got; !strings.Contains(a.body, `"next":true`) {
		t.Errorf("the next call ended with %s", a.body)
	}
}

// TestWelcomeComesBeforeTheCallsThatWait: for one that resumes, calls are there at once.
func TestWelcomeComesBeforeTheCallsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Park: parkFor}))
		p, welcome := w.greeted("b", "p", "")
		p.register(tool("a"))
		_ = p.ws.CloseNow()
		synctest.Wait()
		got := make(chan answer, 1)
		go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
		synctest.Wait()
		p, _ = w.again("b", "p", welcome) // which wants the welcome first
		p.result(p.want("callTool").CallID, done)
		if a := <-got; !strings.Contains(a.body, "done") {
			t.Errorf("the call ended with %s", a.body)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}
