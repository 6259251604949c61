package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpbridge/session"
)

func TestRegistrationIsToldAndListedOnceDurable(t *testing.T) {
	d := &disk{manual: true}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, name := range []string{"a", "b"} {
		if err := i.Register(tools(name), func(r session.Registered) {
			if told++; r.Err != nil || int(r.Revision) != told {
				t.Errorf("answer %d: %+v", told, r)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func() bool {
		select {
		case <-w.Changed():
			return false
		default:
			return true
		}
	}
	if told != 0 || listed(s) != "" || !quiet() {
		t.Fatal("the registration shows before it is durable")
	}
	if st, err := s.Status(); err != nil || len(st.Providers) != 1 || len(st.Providers[0].Tools) != 0 {
		t.Errorf("the status shows %+v, %v", st, err)
	}
	s.Saved(1)
	if told != 1 || listed(s) != "a" || quiet() {
		t.Errorf("after the first commit: told %d, listed %q", told, listed(s))
	}
	_ = i.Register(tools("b"), func(session.Registered) { told++ }) // changes nothing, but is not durable yet
	if told != 1 {
		t.Error("a repeated registration was acknowledged before the first was durable")
	}
	s.Saved(2)
	if told != 3 || listed(s) != "a b" || quiet() {
		t.Errorf("after the second: told %d, listed %q", told, listed(s))
	}
	_ = i.Register(tools("a", "b"), func(session.Registered) { told++ })
	if told != 4 || !quiet() || d.saves != 2 {
		t.Errorf("a registration that changes nothing: told %d, %d saves", told, d.saves)
	}
}

func TestToolsBelongToTheirProvider(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	p, _ := attach(t, s, "p")
	q, _ := attach(t, s, "q")
	register(t, p, tool("a"))
	got := register(t, q, toolWith("a", "q's"))
	if want := (session.Exposure{Name: "a", Exposed: "a-8e35"}); got.Tools[0] != want {
		t.Errorf("q's tool: %+v, want %+v", got.Tools[0], want)
	}
	_ = q.Unregister([]string{"a", "nothing"}, nil)
	if listed(s) != "a" {
		t.Errorf("listed %q after q took back its own", listed(s))
	}
	_ = q.Unregister([]string{"a"}, nil)
	_ = q.Replace(session.KindTool, nil, nil, nil)
	if listed(s) != "a" {
		t.Errorf("listed %q: q took p's tool", listed(s))
	}
}

func TestNamesStayWhileKnown(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	p, _ := attach(t, s, "p")
	q, _ := attach(t, s, "q")
	register(t, p, tool("a"))
	register(t, q, tool("a"))
	_ = p.Unregister([]string{"a"}, nil) // the bare name is free now, but q's stays
	if listed(s) != "a-8e35" {
		t.Fatalf("listed %q", listed(s))
	}
	q.Detach(epoch)
	s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch.Add(time.Hour))
	if listed(s) != "a-8e35" {
		t.Errorf("after a restart: %q", listed(s))
	}
	q, _ = attach(t, s, "q")
	if got := register(t, q, toolWith("a", "changed")); got.Tools[0].Exposed != "a-8e35" {
		t.Errorf("registered again: %+v", got)
	}
}

func TestNamesAreMadeSafe(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	p, _ := attach(t, s, "p")
	long := strings.Repeat("x", 200)
	got := register(t, p, tools("say hello", "say_hello", "été", "ok.Name-1", long)...)
	seen := map[string]bool{}
	for _, e := range got.Tools {
		if e.Exposed == "" || len(e.Exposed) > 128 || strings.ContainsFunc(e.Exposed, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", r)
		}) || seen[e.Exposed] {
			t.Errorf("%q is exposed as %q", e.Name, e.Exposed)
		}
		seen[e.Exposed] = true
	}
	if got.Tools[3].Exposed != "ok.Name-1" || got.Tools[0].Exposed != "say_hello" {
		t.Errorf("exposed %+v", got.Tools)
	}
	for _, o := range s.Catalog().Of(session.KindTool).Offers {
		want := `{"name":"` + o.Tool.Exposed + `","description":""}`
		i, _ := slices.BinarySearchFunc(s.Catalog().Of(session.KindTool).Offers, o.Tool.Exposed, func(o *session.Offer, n string) int { return strings.Compare(o.Tool.Exposed, n) })
		if got := string(s.Catalog().Of(session.KindTool).JSON(i, i+1)); got != want {
			t.Errorf("definition %s, want %s", got, want)
		}
	}
}

func TestReplaceSwapsTheWholeSetAtOnce(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	p, _ := attach(t, s, "p")
	register(t, p, tools("a", "b", "c")...)
	before := d.saves
	if err := p.Replace(session.KindTool, append(tools("d"), toolWith("a", "new")), []string{"b"}, nil); err != nil {
		t.Fatal(err)
	}
	if listed(s) != "a b d" || d.saves != before+1 {
		t.Errorf("listed %q in %d commits", listed(s), d.saves-before)
	}
}

func TestInstancesShareTheProvidersTools(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	one, outOne := attach(t, s, "p")
	two, outTwo := attach(t, s, "p")
	register(t, one, tool("a"))
	register(t, two, tools("a", "b")...)
	_ = two.Unregister([]string{"a", "b"}, nil)
	if listed(s) != "a" {
		t.Errorf("listed %q: the other instance's tool must stay", listed(s))
	}
	begin(t, s, "a")
	if len(outOne.calls) != 1 || len(outTwo.calls) != 0 {
		t.Error("the call went to the instance that took the tool back")
	}
}

func TestAdoptingInstanceAnswersForKnownTools(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, tool("a"))
	i.Detach(epoch)
	o := &outbox{}
	if _, err := s.Attach(session.Hello{Provider: "p", Retain: -1, Adopt: true}, o, epoch); err != nil {
		t.Fatal(err)
	}
	pending(t, begin(t, s, "a"))
	if len(o.calls) != 1 {
		t.Error("the call did not reach the connection")
	}
}

func TestToolsStayForTheirRetention(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	for name, retain := range map[session.ProviderID]time.Duration{"keep": -1, "hour": time.Hour, "none": 0} {
		i, err := s.Attach(session.Hello{Provider: name, Retain: retain}, &outbox{}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		register(t, i, tool(string(name)))
		i.Detach(epoch)
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "hour keep"}, {time.Hour - 1, "hour keep"}, {time.Hour, "keep"}, {24*time.Hour - 1, "keep"}, {24 * time.Hour, ""}} {
		s.Tick(epoch.Add(step.after))
		if got := listed(s); got != step.want {
			t.Errorf("after %v: %q, want %q", step.after, got, step.want)
		}
		fresh := session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch.Add(step.after))
		if got := listed(fresh); got != step.want {
			t.Errorf("activated after %v: %q, want %q", step.after, got, step.want)
		}
	}
}

func TestRetentionOfAReconnectedProviderStartsAnew(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, tool("a"))
	i.Detach(epoch)
	attach(t, s, "p")
	// The process ends without seeing it leave, long after it first had.
	later := epoch.Add(48 * time.Hour)
	s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), later)
	s.Tick(later.Add(24*time.Hour - 1))
	if listed(s) != "a" {
		t.Errorf("listed %q", listed(s))
	}
}

func TestRetentionAfterACrashIsCountedOnce(t *testing.T) {
	d := &disk{}
	i, _ := attach(t, start(t, d, session.Limits{}), "p")
	register(t, i, tool("a"))
	// The process ends without seeing it leave. The bridge wakes now and then.
	for hours, want := range map[int]string{0: "a", 23: "a", 24: ""} {
		fresh := &disk{records: map[session.ProviderID]session.Registration{}}
		for _, r := range d.snapshot().Registrations {
			fresh.records[r.Provider] = r
		}
		session.Start(session.Config{Bridge: "b", Saver: fresh}, fresh.snapshot(), epoch)
		s := session.Start(session.Config{Bridge: "b", Saver: fresh}, fresh.snapshot(), epoch.Add(time.Duration(hours)*time.Hour))
		if got := listed(s); got != want {
			t.Errorf("%d hours after the first activation: listed %q, want %q", hours, got, want)
		}
	}
}

func TestToolOfAGoneInstanceLeavesWhileOthersStay(t *testing.T) {
	s := start(t, &disk{}, session.Limits{Park: -1})
	one, _ := attach(t, s, "p")
	two, _ := attach(t, s, "p")
	register(t, one, tool("a"))
	register(t, two, tool("b"))
	one.Detach(epoch)
	if o := outcome(t, begin(t, s, "a")); !errors.Is(o.Err, session.ErrAway) {
		t.Errorf("call of the gone instance's tool: %+v", o)
	}
	s.Tick(epoch.Add(24 * time.Hour))
	if listed(s) != "b" {
		t.Errorf("listed %q", listed(s))
	}
}

// TestToolThatDoesNotComeBackWithItsProviderLeaves: its retention counts from when its
// last instance left, across a restart too, though the provider is connected.
func TestToolThatDoesNotComeBackWithItsProviderLeaves(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{Park: -1})
	one, _ := attach(t, s, "p")
	register(t, one, tools("a", "b")...)
	one.Detach(epoch)
	restarted := session.Start(session.Config{Bridge: "b", Saver: &disk{}, Limits: session.Limits{Park: -1}}, d.snapshot(), epoch.Add(time.Hour))
	for name, s := range map[string]*session.Session{"same": s, "restarted": restarted} {
		two, _ := attach(t, s, "p")
		register(t, two, tool("a"))
		if away, ok := errors.AsType[*session.AwayError](outcome(t, begin(t, s, "b")).Err); !ok || !away.Since.Equal(epoch) {
			t.Errorf("%s: call of the tool that did not come back: %v", name, away)
		}
		s.Tick(epoch.Add(24*time.Hour - 1))
		if got := listed(s); got != "a b" {
			t.Errorf("%s: before its time, listed %q", name, got)
		}
		s.Tick(epoch.Add(24 * time.Hour))
		if got := listed(s); got != "a" {
			t.Errorf("%s: listed %q", name, got)
		}
	}
}

// TestToolsThatDoNotStayLeaveWithTheirInstance: at once, but not before the instance that
// may come in its place has said what it offers.
func TestToolsThatDoNotStayLeaveWithTheirInstance(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	join := func() *session.Instance {
		i, err := s.Attach(session.Hello{Provider: "p"}, &outbox{}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	one, two := join(), join()
	register(t, one, tool("a"))
	register(t, two, tools("a", "b")...)
	two.Detach(epoch)
	if got := listed(s); got != "a" {
		t.Errorf("one of two left: listed %q", got)
	}
	three := join()
	one.Detach(epoch)
	if got := listed(s); got != "a" {
		t.Errorf("the next has not spoken: listed %q", got)
	}
	register(t, three, tool("c"))
	if got := listed(s); got != "c" {
		t.Errorf("the next has another tool: listed %q", got)
	}
}

func TestRegistryIsBounded(t *testing.T) {
	s := start(t, &disk{manual: true}, session.Limits{Tools: 2, Providers: 2, Instances: 2, Streams: 1, Registrations: 3, CatalogBytes: 100})
	p, _ := attach(t, s, "p")
	attach(t, s, "p")
	attach(t, s, "q")
	limit := func(err error, what string) {
		t.Helper()
		if e, ok := errors.AsType[*session.LimitError](err); !ok || !strings.Contains(e.Error(), fmt.Sprint(e.Max)) {
			t.Errorf("%s: %v, want a LimitError that names the bound", what, err)
		}
	}
	_, err := s.Attach(session.Hello{Provider: "p"}, &outbox{}, epoch)
	limit(err, "third instance")
	_, err = s.Attach(session.Hello{Provider: "r"}, &outbox{}, epoch)
	limit(err, "third provider")
	if _, err = s.Watch(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Watch()
	limit(err, "second stream")

	var answers []session.Registered
	ack := func(r session.Registered) { answers = append(answers, r) }
	_ = p.Register([]session.Tool{tool("a"), tool("b"), tool("c")}, ack)
	_ = p.Register([]session.Tool{toolWith("a", strings.Repeat("x", 100))}, ack)
	_ = p.Register(nil, ack)
	_ = p.Register(nil, ack)
	if len(answers) != 1 {
		t.Fatalf("%d answers before anything is durable, want the one that is refused", len(answers))
	}
	limit(answers[0].Err, "fourth registration")
	s.Saved(9)
	if len(answers) != 4 || listed(s) != "a b" {
		t.Fatalf("%d answers, listed %q", len(answers), listed(s))
	}
	limit(answers[1].Rejected[0].Err, "third tool")
	limit(answers[2].Rejected[0].Err, "too many bytes")
}

func TestProviderWithoutToolsIsForgotten(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{Providers: 1})
	for n := range 3 {
		i, _ := attach(t, s, session.ProviderID(fmt.Sprint("p", n)))
		register(t, i, tool("a"))
		_ = i.Unregister([]string{"a"}, nil)
		i.Detach(epoch)
	}
	if len(d.records) != 0 {
		t.Errorf("records of nobody: %v", d.records)
	}
}

func TestStatusTellsWhoOffersWhat(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	p, _ := attach(t, s, "p")
	q, _ := attach(t, s, "q")
	register(t, p, tools("b", "a")...)
	register(t, q, tool("a"))
	q.Detach(epoch)
	begin(t, s, "a")
	st, err := s.Status()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(st.Calls, st.Providers[0].ID, st.Providers[0].Instances, st.Providers[0].Tools, st.Providers[1].ID, st.Providers[1].LeftAt.Equal(epoch), st.Providers[1].Tools),
		"1 p 1 [{a a} {b b}] q true [{a a-8e35}]\n"; got != want {
		t.Errorf("status %s, want %s", got, want)
	}
}
