package session_test

import (
	"errors"
	"testing"

	"mcpbridge/session"
)

func offerOf(kind session.Kind, name string) session.Tool {
	t := tool(name)
	t.Kind = kind
	return t
}

func TestKindsAreKeptApart(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{Tools: 2})
	i, out := attach(t, s, "p")
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	got := register(t, i, offerOf(session.KindTool, "a"), offerOf(session.KindPrompt, "a"), offerOf(session.KindResource, "a b"), offerOf(session.KindResource, "c"), offerOf(session.KindResource, "d"))
	if len(got.Tools) != 4 || len(got.Rejected) != 1 {
		t.Errorf("taken %v, rejected %v: the limit is for each kind", got.Tools, got.Rejected)
	}
	<-w.Changed()
	if kinds, _ := w.Take(); kinds != session.KindTool.Set()|session.KindPrompt.Set()|session.KindResource.Set() {
		t.Errorf("changed %b", kinds)
	}
	if s.Catalog().Of(session.KindResource).Find("a b") == nil {
		t.Error("a URI was changed")
	}
	if err := i.Replace(session.KindPrompt, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	<-w.Changed()
	if kinds, _ := w.Take(); kinds != session.KindPrompt.Set() {
		t.Errorf("changed %b, want the prompts alone", kinds)
	}
	c := &session.Call{Kind: session.KindResource, Tool: "c", Method: "resources/read"}
	if err := s.Begin(c); err != nil {
		t.Fatal(err)
	}
	if len(out.calls) != 1 || c.Name() != "c" {
		t.Errorf("%d calls, name %q", len(out.calls), c.Name())
	}
	if o := outcome(t, begin(t, s, "c")); o.Reason != session.ReasonUnknownTool {
		t.Errorf("a resource was called as a tool: %+v", o)
	}
	next := session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
	for k, want := range map[session.Kind]int{session.KindTool: 1, session.KindPrompt: 0, session.KindResource: 2, session.KindTemplate: 0} {
		if n := len(next.Catalog().Of(k).Offers); n != want {
			t.Errorf("after a restart: %d %s, want %d", n, k, want)
		}
	}
}

func TestUpdatesOfASlowStreamAreBounded(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, offerOf(session.KindResource, "r"))
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		_ = i.Updated(string(rune('a'+n%26)) + string(rune('a'+n/26)))
	}
	kinds, uris := w.Take()
	if len(uris) != 256 || !kinds.Has(session.KindResource) {
		t.Errorf("%d URIs, kinds %b; want 256, and the list as changed", len(uris), kinds)
	}
}

// TestASubscriptionEndsThoughItsProviderIsAway: what nobody wants any more is not begun
// again when the provider comes back.
func TestASubscriptionEndsThoughItsProviderIsAway(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, offerOf(session.KindResource, "x:1"))
	ask := func(method string) *session.Call {
		c := &session.Call{Kind: session.KindResource, Tool: "x:1", Method: method}
		if err := s.Begin(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 2 {
		c := ask("resources/subscribe")
		_ = i.Finish([]byte(out.write()[0]), result(`{}`))
		outcome(t, c)
	}
	i.Detach(epoch)
	back := func() map[string]int {
		i, _ := attach(t, s, "p")
		defer i.Detach(epoch)
		return i.Subscriptions()
	}
	if subs := back(); len(subs) != 1 || subs["x:1"] != 2 {
		t.Errorf("two subscriptions are known as %v", subs)
	}
	for range 2 {
		c := ask("resources/unsubscribe")
		s.Unpark(c, nil)
		if o := outcome(t, c); !errors.Is(o.Err, session.ErrAway) {
			t.Errorf("outcome %+v", o)
		}
	}
	if subs := back(); len(subs) != 0 {
		t.Errorf("none is known as %v", subs)
	}
}
