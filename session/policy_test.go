package session_test

import (
	"errors"
	"strings"
	"testing"

	"mcpbridge/session"
)

func TestPolicyIsReadMemberByMember(t *testing.T) {
	for _, c := range []struct {
		text string
		want session.Policy
		says string
	}{
		{``, session.Policy{}, ""},
		{`{}`, session.Policy{}, ""},
		{`{"names":"reject","instances":"single","definitions":"trust"}`, session.Policy{Instances: "single", Names: "reject", Definitions: "trust"}, ""},
		{`{"team":7,"Names":"reject"}`, session.Policy{}, ""},
		{`{"names":"rejekt","instances":"reject"}`, session.Policy{Instances: "reject"}, `policy "names" is "rejekt", want one of suffix, reject`},
		{`{"definitions":null}`, session.Policy{}, `want one of pin, trust`},
		{`[]`, session.Policy{}, "JSON object"},
	} {
		got, err := session.ParsePolicy([]byte(c.text))
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want %+v and %q", c.text, got, err, c.want, c.says)
		}
	}
}

func TestNewestPolicyIsInForce(t *testing.T) {
	s := session.Start(session.Config{Bridge: "b", Saver: &disk{}, Policy: session.Policy{Names: session.Reject}, PolicyVersion: 3}, session.Snapshot{}, epoch)
	want := func(p session.Policy) {
		t.Helper()
		if st, err := s.Status(); err != nil || st.Policy != p {
			t.Errorf("policy %+v, %v; want %+v", st.Policy, err, p)
		}
	}
	want(session.Policy{Instances: "share", Names: "reject", Definitions: "pin"})
	s.SetPolicy(session.Policy{Instances: session.Single}, 5)
	s.SetPolicy(session.Policy{Definitions: session.Trust}, 4) // read before, told after
	want(session.Policy{Instances: "single", Names: "suffix", Definitions: "pin"})
}

func TestSingleLeavesAProviderItsNewestInstance(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	old, was := resumable(t, s, "p", "old")
	register(t, old, tools("a", "b")...)
	other, _ := attach(t, s, "q")
	register(t, other, tool("c"))
	second, out := attachAs(t, s, session.Hello{Provider: "p", Retain: -1, Key: "second"})
	register(t, second, tool("a"))
	given := begin(t, s, "b")
	was.write()
	waiting := begin(t, s, "b")
	s.SetPolicy(session.Policy{Instances: session.Single}, 1) // of those that are there, too
	if !errors.Is(was.closed, session.ErrReplaced) || out.closed != nil {
		t.Fatalf("the older was closed for %v, the newer for %v", was.closed, out.closed)
	}
	if o := outcome(t, given); !errors.Is(o.Err, session.ErrProviderGone) {
		t.Errorf("what the older had: %+v", o)
	}
	pending(t, waiting) // until somebody offers it again
	newest, last := attachAs(t, s, session.Hello{Provider: "p", Retain: -1, Key: "newest"})
	if !errors.Is(out.closed, session.ErrReplaced) {
		t.Fatalf("the second was closed for %v", out.closed)
	}
	register(t, newest, tool("b"))
	if ids := last.write(); len(ids) != 1 {
		t.Errorf("the newest was given %q", ids)
	}
	if listed(s) != "a b c" {
		t.Errorf("listed %q", listed(s))
	}
	old.Detach(epoch) // its connection ends late
	old.Forsake()
	again, _ := resumable(t, s, "p", "newest") // a resumed one is no further one
	_ = again.Finish(waiting.AppendID(nil), result(`{}`))
	if o := outcome(t, waiting); o.Err != nil {
		t.Error(o.Err)
	}
}

func TestRejectKeepsTheInstanceThatIsThere(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	s.SetPolicy(session.Policy{Instances: session.Reject}, 1)
	i, out := resumable(t, s, "p", "k")
	if _, err := s.Attach(session.Hello{Provider: "p", Key: "other"}, &outbox{}, epoch); !errors.Is(err, session.ErrTaken) {
		t.Fatalf("a second instance: %v", err)
	}
	if _, err := s.Attach(session.Hello{Provider: "p"}, &outbox{}, epoch); !errors.Is(err, session.ErrTaken) {
		t.Fatalf("one that cannot resume: %v", err)
	}
	attach(t, s, "q")
	resumable(t, s, "p", "k") // the same one, whose old connection nobody has missed yet
	if !errors.Is(out.closed, session.ErrResumed) {
		t.Errorf("the old connection was closed for %v", out.closed)
	}
	i.Detach(epoch)
	if _, err := s.Attach(session.Hello{Provider: "p", Key: "other"}, &outbox{}, epoch); !errors.Is(err, session.ErrTaken) {
		t.Fatalf("the end of the old connection let in %v", err)
	}
}

func TestRejectedInstanceMayComeOnceTheOtherHasLeft(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	s.SetPolicy(session.Policy{Instances: session.Reject}, 1)
	i, _ := attach(t, s, "p")
	i.Detach(epoch)
	attach(t, s, "p")
}

func TestInstanceThatResumesIsNoFurtherOne(t *testing.T) {
	s := start(t, &disk{}, session.Limits{Instances: 1})
	_, out := resumable(t, s, "p", "k")
	resumable(t, s, "p", "k")
	if !errors.Is(out.closed, session.ErrResumed) {
		t.Errorf("closed for %v", out.closed)
	}
}

func TestNamesOfOthersAreRefused(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	first, _ := attach(t, s, "p")
	register(t, first, tools("a", "c_d")...)
	s.SetPolicy(session.Policy{Names: session.Reject}, 1)
	second, _ := attach(t, s, "q")
	answer := register(t, second, tools("a", "b", "c d")...)
	if len(answer.Rejected) != 2 || answer.Rejected[0].Name != "a" || answer.Rejected[1].Name != "c d" {
		t.Fatalf("answer %+v", answer)
	}
	for _, r := range answer.Rejected {
		if !errors.Is(r.Err, session.ErrNameTaken) {
			t.Errorf("%s: %v", r.Name, r.Err)
		}
	}
	register(t, first, toolWith("a", "new")) // its own
	if listed(s) != "a b c_d" {
		t.Errorf("listed %q", listed(s))
	}
}
