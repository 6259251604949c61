package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mcpbridge/session"
)

// definition is a tool whose definition has these members beside its name.
func definition(name, members string) session.Tool {
	t := tool(name)
	t.Definition = []byte(fmt.Sprintf(`{"name":%q,%s}`, name, members))
	return t
}

// described tells what clients are listed: name=description of each tool.
func described(s *session.Session) string {
	var all []string
	for _, o := range s.Catalog().Of(session.KindTool).Offers {
		_, text, _ := strings.Cut(string(o.Tool.Definition), `"description":"`)
		text, _, _ = strings.Cut(text, `"`)
		all = append(all, o.Tool.Exposed+"="+text)
	}
	return strings.Join(all, " ")
}

// held tells what waits: name=description of each tool.
func held(t testing.TB, s *session.Session) string {
	t.Helper()
	list, err := s.Definitions(session.KindTool)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range list {
		if d.Held == nil {
			continue
		}
		_, text, _ := strings.Cut(string(d.Held.Definition), `"description":"`)
		text, _, _ = strings.Cut(text, `"`)
		if d.Rejected {
			text += "!"
		}
		all = append(all, d.Exposed+"="+text)
	}
	return strings.Join(all, " ")
}

func hash(u session.Tool) string {
	return session.PinKey{Provider: "p", Kind: u.Kind, Name: u.Name}.Token(&u)
}

func TestAChangedDefinitionIsHeldUntilItIsApproved(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, toolWith("a", "old"), tool("b"))
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	got := register(t, i, toolWith("a", "new"), tool("b"))
	if len(got.Tools) != 2 || len(got.Held) != 1 || got.Held[0].Exposed != "a" || !got.Held[0].Fresh || got.Held[0].Hash != hash(toolWith("a", "new")) ||
		!strings.Contains(string(got.Held[0].Was), "old") || !strings.Contains(string(got.Held[0].Now), "new") {
		t.Fatalf("answered %+v", got)
	}
	if described(s) != "a=old b=" || held(t, s) != "a=new" {
		t.Fatalf("listed %q, held %q", described(s), held(t, s))
	}
	saves := d.saves
	if got := register(t, i, toolWith("a", "new")); got.Held[0].Fresh || d.saves != saves {
		t.Errorf("registered again: %+v, %d commits", got.Held, d.saves-saves)
	}
	select {
	case <-w.Changed():
		t.Error("clients are told of a change that is held")
	default:
	}

	if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "other"))); !errors.Is(err, session.ErrNotHeld) {
		t.Errorf("approved what nobody offers: %v", err)
	}
	if err := s.Approve(t.Context(), session.KindTool, "c", hash(toolWith("a", "new"))); !errors.Is(err, session.ErrUnknownTool) {
		t.Errorf("approved a tool that nobody offers: %v", err)
	}
	d.manual = true
	done := make(chan error, 1)
	go func() { done <- s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))) }()
	for held(t, s) != "" {
	}
	if described(s) != "a=old b=" {
		t.Error("listed before it is durable")
	}
	s.Saved(d.seq)
	if err := <-done; err != nil || described(s) != "a=new b=" {
		t.Fatalf("approved: %v, listed %q", err, described(s))
	}
	<-w.Changed()
	d.manual = false
	if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))); err != nil {
		t.Errorf("approved again: %v", err)
	}
	if got := register(t, i, toolWith("a", "new")); len(got.Held) != 0 {
		t.Errorf("what was approved is held: %+v", got.Held)
	}
}

func TestWhatIsHeldIsDroppedWhenTheOldDefinitionIsBack(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, toolWith("a", "old"))
	register(t, i, toolWith("a", "new"))
	if got := register(t, i, toolWith("a", "old")); len(got.Held) != 0 || held(t, s) != "" || len(d.pins) != 0 {
		t.Errorf("answered %+v, held %q, stored %v", got, held(t, s), d.pins)
	}
}

func TestARejectedDefinitionIsNotHeldAnew(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, toolWith("a", "old"))
	register(t, i, toolWith("a", "new"))
	for range 2 {
		if err := s.Reject(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))); err != nil {
			t.Fatal(err)
		}
	}
	i.Detach(epoch)
	s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
	i, _ = attach(t, s, "p")
	if got := register(t, i, toolWith("a", "new")); !got.Held[0].Rejected || got.Held[0].Fresh || held(t, s) != "a=new!" {
		t.Errorf("answered %+v, held %q", got.Held, held(t, s))
	}
	if got := register(t, i, toolWith("a", "newer")); got.Held[0].Rejected || held(t, s) != "a=newer" {
		t.Errorf("another one: %+v, held %q", got.Held, held(t, s))
	}
	register(t, i, toolWith("a", "new"))
	if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))); err != nil || described(s) != "a=new" {
		t.Errorf("approved after all: %v, listed %q", err, described(s))
	}
}

func TestInstancesWithDifferentDefinitions(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	old, outOld := attach(t, s, "p")
	register(t, old, toolWith("a", "old"))
	fresh, outFresh := attach(t, s, "p")
	register(t, fresh, toolWith("a", "new"))
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		register(t, old, toolWith("a", "old"))
		if held(t, s) != "a=new" {
			t.Fatalf("held %q, while an instance offers it", held(t, s))
		}
		register(t, fresh, toolWith("a", "new"))
	}
	select {
	case <-w.Changed():
		t.Error("clients are told of a change")
	default:
	}
	begin(t, s, "a")
	if len(outOld.calls) != 1 || len(outFresh.calls) != 0 {
		t.Error("the call went to the instance that offers something else than is listed")
	}
	if err := s.Approve(t.Context(), session.KindTool, "a", hash(toolWith("a", "new"))); err != nil {
		t.Fatal(err)
	}
	begin(t, s, "a")
	if len(outFresh.calls) != 1 {
		t.Error("approved, the call went to the instance of the earlier definition")
	}
	_ = fresh.Unregister([]string{"a"}, nil)
	begin(t, s, "a")
	if len(outOld.calls) != 2 {
		t.Error("the call did not go to the instance that is left")
	}
	register(t, old, toolWith("a", "old"))
	if described(s) != "a=new" || held(t, s) != "a=old" {
		t.Errorf("listed %q, held %q", described(s), held(t, s))
	}
	fresh.Detach(epoch)
	old.Detach(epoch)
	if old, _ = attach(t, s, "p"); len(register(t, old, toolWith("a", "new")).Held) != 0 || held(t, s) != "" {
		t.Errorf("nobody offers it any more, held %q", held(t, s))
	}
}

func TestTrustListsWhatIsHeldAndForgets(t *testing.T) {
	for name, trust := range map[string]func(s *session.Session, d *disk) *session.Session{
		"while it is live": func(s *session.Session, _ *disk) *session.Session {
			s.SetPolicy(session.Policy{Definitions: session.Trust}, 2)
			return s
		},
		"before it is activated": func(_ *session.Session, d *disk) *session.Session {
			return session.Start(session.Config{Bridge: "b", Saver: d, Policy: session.Policy{Definitions: session.Trust}}, d.snapshot(), epoch)
		},
	} {
		d := &disk{}
		s := start(t, d, session.Limits{})
		i, _ := attach(t, s, "p")
		register(t, i, toolWith("a", "old"), toolWith("b", "old"))
		_ = i.Unregister([]string{"b"}, nil)
		register(t, i, toolWith("a", "new"))
		s = trust(s, d)
		if described(s) != "a=new" || held(t, s) != "" || len(d.pins) != 0 {
			t.Errorf("%s: listed %q, held %q, stored %v", name, described(s), held(t, s), d.pins)
		}
		i, _ = attach(t, s, "p")
		if got := register(t, i, toolWith("a", "newer"), toolWith("b", "new")); len(got.Held) != 0 || described(s) != "a=newer b=new" {
			t.Errorf("%s: answered %+v, listed %q", name, got, described(s))
		}
		_ = i.Unregister([]string{"b"}, nil)
		if len(d.pins) != 0 {
			t.Errorf("%s: remembers %v", name, d.pins)
		}
	}
}
