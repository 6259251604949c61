package api_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/session"
)

func TestSinglePolicyClosesTheOlderInstance(t *testing.T) {
	w := start(t, withPolicy(session.Policy{Instances: session.Single}))
	old := w.provider("b", "p", `,"instance":"laptop"`)
	old.register(tool("a"))
	newer := w.provider("b", "p", `,"instance":"desktop"`)
	if code, reason := old.closed(); code != 4409 || !strings.Contains(reason, "another instance") {
		t.Errorf("closed with %d %q", code, reason)
	}
	newer.register(tool("a"))
	newer.answers(func(frame) string { return done })
	if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "done") {
		t.Errorf("answered %s", a.body)
	}
}

// TestRejectPolicyRefusesASecondInstance: as long as the first lives. What only looks
// alive is cut after two ping intervals, so that it locks nobody out.
func TestRejectPolicyRefusesASecondInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withPolicy(session.Policy{Instances: session.Reject}))
		first := w.provider("b", "p", "") // answers no ping
		first.register(tool("a"))
		dialed, begun := 0, time.Now()
		for {
			dialed++
			p := w.dial("/b/b/provider")
			p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
			f, err := p.tryNext(t.Context())
			if err == nil {
				if f.Type != "welcome" || dialed == 1 {
					t.Errorf("attempt %d was answered %s", dialed, f.raw)
				}
				_ = p.ws.CloseNow()
				break
			}
			if code, reason := websocket.CloseStatus(err), err.Error(); code != 1008 || !strings.Contains(reason, "live instance") {
				t.Fatalf("closed with %d %q", code, reason)
			}
			time.Sleep(5 * time.Second)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("let in after %v", took)
		}
		w.end()
	})
}

func TestNamesPolicyRefusesWhatAnotherHolds(t *testing.T) {
	w := start(t, withPolicy(session.Policy{Names: session.Reject}))
	w.provider("b", "p", "").register(tool("a"))
	q := w.provider("b", "q", "")
	q.send(`{"type":"registerTools","id":"1","tools":[` + tool("a") + `,` + tool("b") + `]}`)
	if f := q.want("registered"); !strings.Contains(f.raw, `"rejected":[{"name":"a","code":"name_taken","message":"another provider holds the name`) || !strings.Contains(f.raw, `"exposedAs":"b"`) {
		t.Errorf("answered %s", f.raw)
	}
}

// TestAPageThatNavigatesAwayMidCall holds case O16: two tabs offer the same tool, and the
// one that has the call goes. The call's end says so, since the page may have acted; one
// that it had not been handed, and the next, go to the other tab.
func TestAPageThatNavigatesAwayMidCall(t *testing.T) {
	w := start(t)
	stays := w.provider("b", "page", `,"instance":"one"`)
	stays.register(tool("a"))
	goes := w.dial("/b/b/provider?provider=page") // it says no hello, so it cannot resume
	goes.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
	until(t, "the second tab is there", func() bool {
		return strings.Contains(w.do("GET", w.url("/b/b/health"), "").body, `"instances":2`)
	})
	got := make(chan answer, 1)
	go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
	goes.want("callTool")
	_ = goes.ws.CloseNow()
	if a := <-got; !strings.Contains(a.body, "disconnected during the call; the outcome is unknown") || !strings.Contains(a.body, `"isError":true`) {
		t.Errorf("the call ended with %s", a.body)
	}
	stays.answers(func(frame) string { return done })
	if a := w.post("b", callBody("2", "a", "{}")); !strings.Contains(a.body, "done") {
		t.Errorf("the next call: %s", a.body)
	}
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); strings.Count(a.body, `"name":"a"`) != 1 {
		t.Errorf("listed %s", a.body)
	}
}
