package session_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"mcpbridge/session"
)

func TestParkedCallsAreDeliveredInOrderAndOnce(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, tool("a"), tool("b"))
	i.Detach(epoch)
	var calls []*session.Call
	for _, name := range []string{"a", "b", "a", "a"} {
		calls = append(calls, begin(t, s, name))
	}
	s.Unpark(calls[2], nil)
	if o := outcome(t, calls[2]); !errors.Is(o.Err, session.ErrAway) {
		t.Errorf("one that was given up: %+v", o)
	}
	if o := s.Abandon(calls[3], session.ErrTimeout); !errors.Is(o.Err, session.ErrAway) || o.Reason != session.ReasonAway {
		t.Errorf("one whose deadline passed: %+v", o)
	}
	i, out := attach(t, s, "p")
	if n := len(out.write()); n != 0 {
		t.Fatalf("%d calls were delivered before anything was registered", n)
	}
	register(t, i, tool("a"), tool("b"))
	ids := out.write()
	if len(ids) != 2 || ids[0] != string(calls[0].AppendID(nil)) || ids[1] != string(calls[1].AppendID(nil)) {
		t.Fatalf("delivered %q", ids)
	}
	s.Unpark(calls[0], nil) // too late
	register(t, i, tool("a"), tool("b"))
	if n := len(out.write()); n != 0 {
		t.Fatalf("%d calls were delivered twice", n)
	}
	for n, id := range ids {
		_ = i.Finish([]byte(id), result(`{}`))
		if o := outcome(t, calls[n]); o.Err != nil {
			t.Errorf("call %d: %v", n, o.Err)
		}
	}
}

func TestParkedCallsForWhatIsNoLongerOfferedEnd(t *testing.T) {
	s := start(t, &disk{}, session.Limits{Retain: time.Hour})
	i, _ := attach(t, s, "p")
	register(t, i, tool("a"), tool("b"))
	i.Detach(epoch)
	c, kept := begin(t, s, "a"), begin(t, s, "b")
	i, _ = attach(t, s, "p")
	if err := i.Replace(session.KindTool, tools("c"), []string{"b"}, nil); err != nil {
		t.Fatal(err)
	}
	if o := outcome(t, c); !errors.Is(o.Err, session.ErrUnknownTool) {
		t.Errorf("outcome %+v", o)
	}
	pending(t, kept)
	i.Detach(epoch)
	s.Tick(epoch.Add(2 * time.Hour))
	if o := outcome(t, kept); !errors.Is(o.Err, session.ErrUnknownTool) {
		t.Errorf("outcome %+v", o)
	}
}

func TestAParkedTaskIsMadeByTheNextProcess(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	register(t, i, tool("a"))
	i.Detach(epoch)
	c := &session.Call{Tool: "a", Arguments: json.RawMessage(`{"x":1}`)}
	if err := s.Begin(c); err != nil {
		t.Fatal(err)
	}
	k, err := s.Keep(t.Context(), c, terms)
	if err != nil {
		t.Fatal(err)
	}
	s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
	if now := task(t, s, k.ID); now.Status != session.TaskWorking {
		t.Fatalf("after the restart it is %+v", now)
	}
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	if len(out.calls) != 1 || string(out.calls[0].Call.Arguments) != `{"x":1}` {
		t.Fatalf("delivered %+v", out.calls)
	}
	_ = i.Finish([]byte(out.write()[0]), result(`{"done":1}`))
	if now := task(t, s, k.ID); string(now.Result) != `{"done":1}` {
		t.Errorf("it ended as %+v", now)
	}
}

// TestParkedAndDeliveredTasksAreBothFoundAgain: a call that is made anew must not take
// the ID of one that an earlier process delivered, whichever comes first.
func TestParkedAndDeliveredTasksAreBothFoundAgain(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, out := resumable(t, s, "p", "k")
	register(t, i, tool("a"))
	given, id := kept(t, s, out)
	snap := d.snapshot()
	parked := snap.Tasks[0]
	parked.ID, parked.CallID = "0", ""
	for _, tasks := range [][]session.Task{{parked, snap.Tasks[0]}, {snap.Tasks[0], parked}} {
		snap.Tasks = append([]session.Task(nil), tasks...)
		s := session.Start(session.Config{Bridge: "b", Saver: &disk{}}, snap, epoch)
		i, out := resumable(t, s, "p", "k")
		_ = i.Finish(id, result(`{"of":"given"}`))
		_ = i.Finish([]byte(out.write()[0]), result(`{"of":"parked"}`))
		if now := task(t, s, given.ID); string(now.Result) != `{"of":"given"}` {
			t.Errorf("what was delivered ended as %+v", now)
		}
		if now := task(t, s, "0"); string(now.Result) != `{"of":"parked"}` {
			t.Errorf("what was parked ended as %+v", now)
		}
	}
}

// TestATaskIsFoundAgainWhereItsCallWent: a call that no socket had goes to another
// instance, or waits; the record says so, with what the call was to carry.
func TestATaskIsFoundAgainWhereItsCallWent(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, out := resumable(t, s, "p", "first")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	_ = i.Finish(id, session.Result{Raw: []byte(asks), Asks: true})
	if _, err := s.AnswerTask(t.Context(), k.ID, "ann", map[string]json.RawMessage{"name": json.RawMessage(`{}`), "again": json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	other, _ := resumable(t, s, "p", "second")
	i.Detach(epoch) // its socket never had the call
	if key := d.snapshot().Tasks[0].Key; key != "second" {
		t.Errorf("the record names the instance %q", key)
	}
	other.Detach(epoch)
	if now := d.snapshot().Tasks[0]; now.CallID != "" {
		t.Errorf("the record names the call %q, which nobody has", now.CallID)
	}
	s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
	_, out = resumable(t, s, "p", "third")
	if len(out.calls) != 1 || string(out.calls[0].Call.Input.State) != `"s1"` || string(out.calls[0].Call.Input.Responses) != `{"again":{},"name":{}}` {
		t.Errorf("made anew as %+v", out.calls)
	}
}

// TestCallsWaitForAProviderWhoseConnectionEnds: between the moment at which a connection
// can take nothing more and its end.
func TestCallsWaitForAProviderWhoseConnectionEnds(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	old, oldOut := attach(t, s, "p")
	register(t, old, tool("a"), tool("b"))
	ending, out := attach(t, s, "p")
	register(t, ending, tool("a"))
	out.end()
	moved := begin(t, s, "a")
	if ids := oldOut.write(); len(ids) != 1 || ids[0] != string(moved.AppendID(nil)) {
		t.Fatalf("the other instance was given %q", ids)
	}
	oldOut.end()
	waits := begin(t, s, "b")
	given := begin(t, s, "b")
	pending(t, waits)
	s.Unpark(given, nil)
	if away, ok := errors.AsType[*session.AwayError](outcome(t, given).Err); !ok || away.Since.IsZero() {
		t.Errorf("one that was given up: %v", away)
	}
	ending.Detach(epoch)
	old.Detach(epoch)
	pending(t, waits)
	next, nextOut := attach(t, s, "p")
	register(t, next, tool("b"))
	if ids := nextOut.write(); len(ids) != 1 || ids[0] != string(waits.AppendID(nil)) {
		t.Errorf("the next instance was given %q", ids)
	}
}

// TestWhatIsResumedByAConnectionThatEndsMovesOn: it was given to nobody.
func TestWhatIsResumedByAConnectionThatEndsMovesOn(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	first, _ := resumable(t, s, "p", "key")
	register(t, first, tool("a"))
	c := begin(t, s, "a") // and not written
	second := &outbox{ending: true}
	i, err := s.Attach(session.Hello{Provider: "p", Key: "key", Retain: -1}, second, epoch)
	if err != nil {
		t.Fatal(err)
	}
	register(t, i, tool("a"))
	pending(t, c)
	i.Detach(epoch)
	pending(t, c)
	third, out := attach(t, s, "p")
	register(t, third, tool("a"))
	if ids := out.write(); len(ids) != 1 || ids[0] != string(c.AppendID(nil)) {
		t.Errorf("delivered %q", ids)
	}
}
