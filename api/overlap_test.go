package api_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

// TestToolsNeverVanishWhileAProviderReconnects holds case O15: a hundred times in the
// middle of a call a provider opens its new connection before the end of the old one has
// arrived, and then the old one takes its tools back and ends. The call is answered by who
// resumes, or ends in the grace. A stream hears of every catalog, as nothing is gathered.
func TestToolsNeverVanishWhileAProviderReconnects(t *testing.T) {
	for name, c := range map[string]struct {
		policy  session.Policy
		resumes bool
		code    int           // that ends the old connection; 0 where it ends itself
		within  time.Duration // of the old connection's end, the call's own
	}{
		"resumed":         {resumes: true, code: 4409},
		"anew":            {within: 10 * time.Second},
		"resumed, single": {policy: session.Policy{Instances: session.Single}, resumes: true, code: 4409},
		"anew, single":    {policy: session.Policy{Instances: session.Single}, code: 4409},
		"resumed, reject": {policy: session.Policy{Instances: session.Reject}, resumes: true, code: 4409},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble, withPolicy(c.policy), withLimits(session.Limits{Coalesce: -1}))
				old, welcome := w.greeted("b", "p", "")
				old.register(tool("a"), tool("b"))
				told := w.stream("GET", w.mcpURL("b"), "", w.initialize("b")...).all()
				for n := range 100 {
					listed := func(when string) {
						t.Helper()
						if got := w.listed("b", "tools/list"); !strings.Contains(got, `"name":"a"`) || !strings.Contains(got, `"name":"b"`) {
							t.Fatalf("round %d, %s: listed %s", n, when, got)
						}
					}
					got := w.later(func() answer { return w.post("b", callBody("1", "a", "{}")) })
					id := old.want("callTool").CallID
					var next *peer
					if c.resumes {
						next, welcome = w.again("b", "p", welcome)
					} else {
						next, welcome = w.greeted("b", "p", "")
					}
					listed("with the new connection")
					next.register(tool("a"), tool("b"))
					listed("registered anew")
					old.send(`{"type":"unregisterTools","names":["a","b"]}`)
					listed("taken back")
					if c.code != 0 {
						if code, reason := old.closed(); code != c.code {
							t.Fatalf("round %d: the old connection was closed with %d %q", n, code, reason)
						}
					}
					_ = old.ws.CloseNow()
					listed("without the old connection")
					if c.resumes {
						next.result(id, done)
					}
					ended := time.Now()
					a := <-got
					switch took := time.Since(ended); {
					case took > c.within:
						t.Fatalf("round %d: the call ended after %v", n, took)
					case c.resumes && !strings.Contains(a.body, "done"):
						t.Fatalf("round %d: the call was answered %s", n, a.body)
					case !c.resumes && !strings.Contains(a.body, "outcome is unknown"):
						t.Fatalf("round %d: the call ended with %s", n, a.body)
					}
					listed("after the call")
					old = next
				}
				if len(told) != 0 {
					t.Errorf("told %s", <-told)
				}
				_ = old.ws.CloseNow()
				w.end()
			})
		})
	}
}

// TestAPageThatNavigatesIsFollowed holds case O16, for pages that say hello: of two tabs
// that offer the same tool, the newest has two calls, one not yet written to it, and
// navigates. That one goes to the other tab at once, the first ends in the grace and says
// that the page left. What the page alone offered goes with it.
func TestAPageThatNavigatesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		stays := w.provider("b", "page", `,"instance":"one","retainSeconds":0`)
		stays.register(tool("a"))
		seen := stays.frames()
		goes := w.provider("b", "page", `,"instance":"two","retainSeconds":0`)
		goes.register(tool("a"), tool("checkout"))
		told := w.stream("GET", w.mcpURL("b"), "", w.initialize("b")...).all()
		handed := w.later(func() answer { return w.post("b", callBody("1", "a", `{"n":1}`)) })
		synctest.Wait() // its write has begun: the page may read it
		waits := w.later(func() answer { return w.post("b", callBody("2", "a", `{"n":2}`)) })
		synctest.Wait()
		_ = goes.ws.CloseNow()
		left := time.Now()
		f := <-seen
		if string(f.Params) != `{"n":2}` || time.Since(left) != 0 {
			t.Errorf("after %v the other tab was asked %s", time.Since(left), f.raw)
		}
		stays.result(f.CallID, done)
		if a := <-waits; !strings.Contains(a.body, "done") {
			t.Errorf("the call that was not handed over ended with %s", a.body)
		}
		if got := w.listed("b", "tools/list"); !strings.Contains(got, `"name":"a"`) || strings.Contains(got, "checkout") {
			t.Errorf("listed %s", got)
		}
		a := <-handed
		if took := time.Since(left); !strings.Contains(a.body, "disconnected during the call; the outcome is unknown") || took > 10*time.Second {
			t.Errorf("after %v the call that was handed over ended with %s", took, a.body)
		}
		if len(told) != 1 {
			t.Errorf("told %d times of one tool that went", len(told))
		}
		if len(seen) != 0 {
			t.Errorf("the other tab was asked too: %s", (<-seen).raw)
		}
		_ = stays.ws.CloseNow()
		w.end()
	})
}
