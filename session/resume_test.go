package session_test

import (
	"errors"
	"testing"

	"mcpbridge/session"
)

func TestResumedInstanceAnswersWhatItWasGivenBefore(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	old, out := resumable(t, s, "p", "k")
	register(t, old, tool("a"))
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	old.Detach(epoch)
	pending(t, c)
	other, _ := resumable(t, s, "p", "other")
	_ = other.Finish(id, result(`{"of":"other"}`))
	pending(t, c)
	fresh, again := resumable(t, s, "p", "k")
	_ = old.Finish(id, result(`{"of":"old"}`))
	old.Forsake() // too late
	pending(t, c)
	if ids := again.write(); len(ids) != 0 {
		t.Fatalf("%q were delivered twice", ids)
	}
	_ = fresh.Finish(id, result(`{"of":"fresh"}`))
	if o := outcome(t, c); o.Err != nil || string(o.Result.Raw) != `{"of":"fresh"}` {
		t.Errorf("outcome %+v", o)
	}
}

func TestCallsOfAnInstanceThatIsNotResumedEndAsUnknown(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := resumable(t, s, "p", "k")
	register(t, i, tool("a"))
	given := begin(t, s, "a")
	out.write()
	waiting := begin(t, s, "a")
	i.Detach(epoch)
	pending(t, given)
	pending(t, waiting)
	i.Forsake()
	pending(t, waiting)
	s.Unpark(waiting, nil)
	if o := outcome(t, given); !errors.Is(o.Err, session.ErrProviderGone) {
		t.Errorf("what was delivered: %v", o.Err)
	}
	if o := outcome(t, waiting); !errors.Is(o.Err, session.ErrAway) {
		t.Errorf("what was not delivered: %v", o.Err)
	}
	fresh, _ := resumable(t, s, "p", "k")
	_ = fresh.Finish(given.AppendID(nil), result(`{}`)) // a stray
}

func TestWhatNoSocketHadIsDeliveredOnceTheInstanceResumes(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, _ := resumable(t, s, "p", "k")
	register(t, i, tool("a"))
	first, second := begin(t, s, "a"), begin(t, s, "a")
	i.Detach(epoch)
	fresh, out := resumable(t, s, "p", "k")
	ids := out.write()
	if len(ids) != 2 || ids[0] != string(first.AppendID(nil)) || ids[1] != string(second.AppendID(nil)) {
		t.Fatalf("delivered %q", ids)
	}
	_ = fresh.Finish([]byte(ids[0]), result(`{}`))
	_ = fresh.Finish([]byte(ids[1]), result(`{}`))
	outcome(t, first)
	outcome(t, second)
}

// TestResumingTakesTheOldConnectionsPlace: a peer may notice the end of a connection
// long before the bridge does.
func TestResumingTakesTheOldConnectionsPlace(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	old, out := resumable(t, s, "p", "k")
	register(t, old, tool("a"))
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	fresh, _ := resumable(t, s, "p", "k")
	if !errors.Is(out.closed, session.ErrResumed) {
		t.Errorf("the old connection was closed for %v", out.closed)
	}
	old.Detach(epoch)
	pending(t, c)
	if st, _ := s.Status(); st.Providers[0].Instances != 1 {
		t.Errorf("%d instances", st.Providers[0].Instances)
	}
	_ = fresh.Finish(id, result(`{}`))
	outcome(t, c)
	if o := begin(t, s, "a"); o == nil {
		t.Fatal("not begun")
	}
}

func TestAnAbandonedCallOfAnAbsentInstanceEnds(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := resumable(t, s, "p", "k")
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	out.write()
	i.Detach(epoch)
	if o := s.Abandon(c, session.ErrTimeout); !errors.Is(o.Err, session.ErrTimeout) {
		t.Errorf("outcome %+v", o)
	}
	if len(out.cancel) != 0 {
		t.Error("a closed connection was told of it")
	}
}
