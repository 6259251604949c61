package api_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

func (w *world) subscribe(method, uri string, headers []string) {
	w.t.Helper()
	if a := w.post("b", rpc(method, `"uri":"`+uri+`"`), headers...); !strings.Contains(a.body, `"result":{}`) {
		w.t.Fatalf("%s %s: %s", method, uri, a.body)
	}
}

// wantOnly reads what a stream has before the provider's next change of its tools.
func (e *events) wantOnly(p *actor, uris ...string) {
	e.t.Helper()
	synctest.Wait()
	_ = p.i.Register([]session.Tool{offer(session.KindTool, "name", fmt.Sprint("n", time.Now().UnixNano()))}, nil)
	time.Sleep(time.Millisecond)
	var got []string
	for {
		data, err := e.next()
		if err != nil {
			e.t.Fatal(err)
		}
		if strings.Contains(data, "tools/list_changed") {
			break
		}
		got = append(got, data)
	}
	var want []string
	for _, uri := range uris {
		want = append(want, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"`+uri+`"}}`)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		e.t.Errorf("the stream says\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestUpdatesAreNotMissedWhileTheStreamIsAway: what is updated while a session has no
// GET stream is told by the next, whether or not that goes on with the last; once.
func TestUpdatesAreNotMissedWhileTheStreamIsAway(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		for _, comesBack := range []bool{true, false} {
			t.Run(fmt.Sprint(version, comesBack), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, inBubble)
					p := w.actor("b", "p", everything()...)
					h := append(w.initializeAs("b", version, "{}"), "Mcp-Protocol-Version", version)
					e := w.stream("GET", w.mcpURL("b"), "", h...)
					w.subscribe("resources/subscribe", "test://r", h)
					w.subscribe("resources/subscribe", "test://t/1/x", h)
					w.subscribe("resources/subscribe", "test://t/2/x", h)
					var last string
					if version != "2024-11-05" && comesBack {
						_ = p.i.Updated("test://r")
						for ev := (whole{}); ev.data == ""; last = ev.id {
							ev = e.wantWhole("")
						}
					}
					e.close()
					synctest.Wait()
					_ = p.i.Updated("test://t/1/x")
					_ = p.i.Updated("test://t/2/x")
					_ = p.i.Updated("test://r")
					_ = p.i.Updated("test://t/1/x")
					_ = p.i.Updated("test://t/9/x") // nobody asked for it
					w.subscribe("resources/unsubscribe", "test://t/2/x", h)
					if last != "" {
						e = w.resume(last, h...)
					} else {
						e = w.stream("GET", w.mcpURL("b"), "", h...)
					}
					e.wantOnly(p, "test://r", "test://t/1/x")
					e.close()
					synctest.Wait()
					e = w.stream("GET", w.mcpURL("b"), "", h...)
					e.wantOnly(p) // told once

					// Long after, nobody knows any more: all may have been updated.
					e.close()
					synctest.Wait()
					time.Sleep(6 * time.Minute)
					_ = p.i.Updated("test://r")
					e = w.stream("GET", w.mcpURL("b"), "", h...)
					e.wantOnly(p, "test://r", "test://t/1/x")
					w.end()
				})
			})
		}
	}
}

func TestUpdatesBeforeTheFirstStreamAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.actor("b", "p", everything()...)
		h := w.initialize("b")
		w.subscribe("resources/subscribe", "test://r", h)
		w.subscribe("resources/subscribe", "test://t/1/x", h)
		_ = p.i.Updated("test://r")
		e := w.stream("GET", w.mcpURL("b"), "", h...)
		e.wantOnly(p, "test://r")
		w.end()
	})
}

// TestStreamsThatAreAwayGiveWay: what is kept for a stream to come takes no stream's
// place.
func TestStreamsThatAreAwayGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Streams: 1}))
		p := w.actor("b", "p", everything()...)
		one, two := w.initialize("b"), w.initialize("b")
		e := w.stream("GET", w.mcpURL("b"), "", one...)
		w.subscribe("resources/subscribe", "test://r", one)
		e.close()
		synctest.Wait()
		e = w.stream("GET", w.mcpURL("b"), "", two...)
		if a := w.do("GET", w.mcpURL("b"), "", one...); a.status != 429 {
			t.Errorf("a second stream: %d %s", a.status, a.body)
		}
		e.close()
		synctest.Wait()
		_ = p.i.Updated("test://r")
		e = w.stream("GET", w.mcpURL("b"), "", one...)
		e.wantOnly(p, "test://r")
		w.do("DELETE", w.mcpURL("b"), "", one...)
		w.end()
	})
}

// TestUpdatesSurviveAHandOver: a stream that replaces another, while resources are
// updated, says what the other did not.
func TestUpdatesSurviveAHandOver(t *testing.T) {
	w := start(t)
	p := w.actor("b", "p", everything()...)
	h := w.initialize("b")
	const n = 100
	uri := func(i int) string { return fmt.Sprintf("test://t/%d/x", i) }
	for i := range n {
		w.subscribe("resources/subscribe", uri(i), h)
	}
	seen := map[string]bool{}
	note := func(data string) {
		for i := range n {
			if strings.Contains(data, `"`+uri(i)+`"`) {
				seen[uri(i)] = true
			}
		}
	}
	e := w.stream("GET", w.mcpURL("b"), "", h...)
	for i := range n {
		updated := make(chan struct{})
		go func() { defer close(updated); _ = p.i.Updated(uri(i)) }()
		newer := w.stream("GET", w.mcpURL("b"), "", h...)
		<-updated
		for {
			data, err := e.next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			note(data)
		}
		for e = newer; !seen[uri(i)]; {
			data, err := e.next()
			if err != nil {
				t.Fatalf("%s: %v", uri(i), err)
			}
			note(data)
		}
	}
}
