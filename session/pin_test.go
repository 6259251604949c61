package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/session"
)

func TestWhatIsHeldSurvivesConnectionProcessAndRetention(t *testing.T) {
	for name, retain := range map[string]time.Duration{"kept": -1, "not kept": 0} {
		d := &disk{}
		s := start(t, d, session.Limits{})
		i, _ := attachAs(t, s, session.Hello{Provider: "p", Retain: retain})
		register(t, i, toolWith("a", "old"))
		register(t, i, toolWith("a", "new"))
		i.Detach(epoch)
		if !s.Release() {
			t.Fatal("it does not hibernate")
		}
		s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
		want := map[string]string{"kept": "a=old", "not kept": ""}[name]
		if held(t, s) != "a=new" || described(s) != want {
			t.Fatalf("%s: held %q, listed %q", name, held(t, s), described(s))
		}
		if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = "a=new" // though its provider is away
		}
		if described(s) != want {
			t.Errorf("%s: approved, listed %q", name, described(s))
		}
		i, _ = attach(t, s, "p")
		if got := register(t, i, toolWith("a", "new")); len(got.Held) != 0 || described(s) != "a=new" {
			t.Errorf("%s: back, answered %+v, listed %q", name, got, described(s))
		}
	}
}

func TestNoWayRoundAPin(t *testing.T) {
	for name, off := range map[string]func(t *testing.T, s *session.Session, d *disk, i *session.Instance) (*session.Session, *session.Instance){
		"unregister": func(_ *testing.T, s *session.Session, _ *disk, i *session.Instance) (*session.Session, *session.Instance) {
			_ = i.Unregister([]string{"a"}, nil)
			return s, i
		},
		"replace": func(_ *testing.T, s *session.Session, _ *disk, i *session.Instance) (*session.Session, *session.Instance) {
			_ = i.Replace(session.KindTool, nil, nil, nil)
			return s, i
		},
		"no retention": func(t *testing.T, s *session.Session, _ *disk, i *session.Instance) (*session.Session, *session.Instance) {
			i.Detach(epoch)
			i, _ = attachAs(t, s, session.Hello{Provider: "p"})
			i.Detach(epoch)
			i, _ = attach(t, s, "p")
			return s, i
		},
		"retention": func(t *testing.T, s *session.Session, _ *disk, i *session.Instance) (*session.Session, *session.Instance) {
			i.Detach(epoch)
			s.Tick(epoch.Add(25 * time.Hour))
			i, _ = attach(t, s, "p")
			return s, i
		},
		"retention over a restart": func(t *testing.T, s *session.Session, d *disk, i *session.Instance) (*session.Session, *session.Instance) {
			i.Detach(epoch)
			s.Stop(session.ErrShutdown)
			s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch.Add(25*time.Hour))
			s.Stop(session.ErrShutdown)
			s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch.Add(25*time.Hour))
			i, _ = attach(t, s, "p")
			return s, i
		},
		"unregister over a restart": func(t *testing.T, s *session.Session, d *disk, i *session.Instance) (*session.Session, *session.Instance) {
			_ = i.Unregister([]string{"a"}, nil)
			s.Stop(session.ErrShutdown)
			s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
			i, _ = attach(t, s, "p")
			return s, i
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{}
			s := start(t, d, session.Limits{})
			i, _ := attach(t, s, "p")
			register(t, i, toolWith("a", "old"))
			s, i = off(t, s, d, i)
			if listed(s) != "" {
				t.Fatalf("listed %q", listed(s))
			}
			got := register(t, i, toolWith("a", "new"))
			if len(got.Held) != 1 || len(got.Tools) != 0 || got.Held[0].Was != nil || listed(s) != "" || held(t, s) != "a=new" {
				t.Fatalf("answered %+v, listed %q, held %q", got, described(s), held(t, s))
			}
			if got := register(t, i, toolWith("a", "old")); len(got.Held) != 0 || described(s) != "a=old" || held(t, s) != "" {
				t.Fatalf("the old one: %+v, listed %q, held %q", got, described(s), held(t, s))
			}
			_ = i.Unregister([]string{"a"}, nil)
			register(t, i, toolWith("a", "new"))
			if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))); err != nil || described(s) != "a=new" {
				t.Errorf("approved: %v, listed %q", err, described(s))
			}
			c := begin(t, s, "a")
			pending(t, c)
			s.Abandon(c, session.ErrCancelled)
		})
	}
}

func TestCallsWaitForApprovalOnlyWhereAPromiseIsTakenBack(t *testing.T) {
	for _, c := range []struct {
		was, now string
		blocks   bool
	}{
		{`"annotations":{"readOnlyHint":true}`, `"annotations":{"readOnlyHint":false}`, true},
		{`"annotations":{"readOnlyHint":true}`, `"annotations":{}`, true},
		{`"annotations":{"readOnlyHint":true}`, `"description":"d"`, true},
		{`"annotations":{"destructiveHint":false}`, `"annotations":{"readOnlyHint":true}`, true},
		{`"annotations":{"openWorldHint":false}`, `"annotations":{"openWorldHint":true}`, true},
		{`"annotations":{"idempotentHint":true}`, `"annotations":1`, true},
		{`"annotations":{"readOnlyHint":true}`, `"annotations":{"readOnlyHint":true},"description":"e"`, false},
		{`"description":"d"`, `"annotations":{"readOnlyHint":true}`, false},
	} {
		d := &disk{}
		s := start(t, d, session.Limits{})
		i, out := attach(t, s, "p")
		register(t, i, definition("a", c.was))
		got := register(t, i, definition("a", c.now))
		try := func(when string) {
			t.Helper()
			call := begin(t, s, "a")
			if !c.blocks {
				pending(t, call)
				return
			}
			if o := outcome(t, call); !errors.Is(o.Err, session.ErrHeld) || o.Reason != session.ReasonHeld || len(out.calls) != 0 {
				t.Errorf("%s to %s, %s: %+v", c.was, c.now, when, o)
			}
		}
		if got.Held[0].Blocks != c.blocks {
			t.Errorf("%s to %s: %+v", c.was, c.now, got.Held)
		}
		try("held")
		if err := s.Reject(t.Context(), session.KindTool, "a", hash(definition("a", c.now))); err != nil {
			t.Fatal(err)
		}
		try("rejected")
		i.Detach(epoch)
		s.Stop(session.ErrShutdown)
		s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
		call := begin(t, s, "a") // waits for its provider
		pending(t, call)
		_, out = attachAs(t, s, session.Hello{Provider: "p", Retain: -1, Adopt: true})
		if ended := len(call.Done()) == 1; ended != c.blocks {
			t.Errorf("%s to %s, parked: ended %t", c.was, c.now, ended)
		}
		out.write()
		try("after a restart")
		if err := s.Approve(t.Context(), session.KindTool, "a", hash(definition("a", c.now))); err != nil {
			t.Fatal(err)
		}
		c.blocks = false
		try("approved")
	}
}

func TestRememberedNamesAreBounded(t *testing.T) {
	now := epoch
	d := &disk{}
	s := session.Start(session.Config{Bridge: "b", Saver: d, Limits: session.Limits{Tools: 2}, Clock: func() time.Time { return now }}, session.Snapshot{}, epoch)
	i, _ := attach(t, s, "p")
	for n := range 8 { // 4 names for each of 2 tools
		name := fmt.Sprint("t", n)
		register(t, i, toolWith(name, "old"))
		_ = i.Unregister([]string{name}, nil)
	}
	if len(d.pins) != 8 {
		t.Fatalf("%d pins", len(d.pins))
	}
	if got := register(t, i, tool("one-more")); len(got.Rejected) != 1 || !errors.Is(got.Rejected[0].Err, session.ErrBusy) {
		t.Errorf("a ninth name: %+v", got)
	}
	if got := register(t, i, toolWith("t0", "new")); len(got.Held) != 1 {
		t.Errorf("a known name: %+v", got)
	}
	if got := register(t, i, toolWith("t1", "old")); len(got.Tools) != 1 {
		t.Errorf("a known definition: %+v", got)
	}
	now = now.Add(31 * 24 * time.Hour)
	if got := register(t, i, tool("one-more")); len(got.Tools) != 1 || len(d.pins) != 6 {
		t.Errorf("after a month: %+v, %d pins", got, len(d.pins))
	}
}

func TestWhatIsHeldCountsAndIsGivenBack(t *testing.T) {
	one := toolWith("a", strings.Repeat("x", 100))
	limits := session.Limits{CatalogBytes: 3 * len(one.Definition)}
	s := start(t, &disk{}, limits)
	i, _ := attach(t, s, "p")
	register(t, i, one)
	for n := range 20 {
		if got := register(t, i, toolWith("a", fmt.Sprintf("%0100d", n))); len(got.Held) != 1 {
			t.Fatalf("round %d: %+v", n, got)
		}
		switch n % 4 {
		case 0:
			register(t, i, one)
		case 1:
			_ = i.Unregister([]string{"a"}, nil)
			register(t, i, one)
		case 2:
			if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", fmt.Sprintf("%0100d", n)))); err != nil {
				t.Fatal(err)
			}
			one = toolWith("a", fmt.Sprintf("%0100d", n))
		}
	}
	if got := register(t, i, toolWith("a", strings.Repeat("y", 300))); len(got.Rejected) != 1 {
		t.Errorf("what does not fit is held: %+v", got)
	}
	_ = i.Unregister([]string{"a"}, nil)
	register(t, i, one)
	if got := register(t, i, toolWith("b", strings.Repeat("z", 100)), toolWith("c", strings.Repeat("z", 100))); len(got.Tools) != 2 {
		t.Errorf("the room was not given back: %+v", got)
	}
}

// TestNothingIsListedThatWasNotSeenFirstOrApproved drives one bridge with anything that
// providers may do.
func TestNothingIsListedThatWasNotSeenFirstOrApproved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &disk{}
		begun := func() *session.Session {
			return session.Start(session.Config{Bridge: "b", Saver: d, Limits: session.Limits{Coalesce: -1}}, d.snapshot(), epoch)
		}
		a := &actor{stats: &session.Stats{}, disk: d, s: begun()}
		agreed := map[session.PinKey]string{}
		decide := func(t *rapid.T, approve bool) {
			list, err := a.s.Definitions(session.KindTool)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range list {
				if w.Held == nil || !rapid.Bool().Draw(t, "this") {
					continue
				}
				if approve {
					err = a.s.Approve(t.Context(), session.KindTool, w.Exposed, w.Token(w.Held))
					agreed[w.PinKey] = string(w.Held.Definition)
				} else {
					err = a.s.Reject(t.Context(), session.KindTool, w.Exposed, w.Token(w.Held))
				}
				if err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"attach":     a.attach,
			"detach":     a.detach,
			"register":   a.register,
			"unregister": a.unregister,
			"approve":    func(t *rapid.T) { decide(t, true) },
			"reject":     func(t *rapid.T) { decide(t, false) },
			"tick":       func(*rapid.T) { a.s.Tick(epoch.Add(25 * time.Hour)) },
			"restart": func(*rapid.T) {
				a.s.Stop(session.ErrShutdown)
				a.s, a.instances = begun(), nil
			},
			"": func(t *rapid.T) {
				for _, o := range a.s.Catalog().Of(session.KindTool).Offers {
					key := session.PinKey{Provider: o.Provider, Kind: session.KindTool, Name: o.Tool.Name}
					if first, ok := agreed[key]; !ok {
						agreed[key] = string(o.Tool.Definition)
					} else if first != string(o.Tool.Definition) {
						t.Fatalf("%s of %s is listed as %s, agreed is %s", o.Tool.Name, o.Provider, o.Tool.Definition, first)
					}
				}
			},
		})
	})
}
