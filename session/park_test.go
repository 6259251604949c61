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
	s.Unpark(calls[2])
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
	s.Unpark(calls[0]) // too late
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
	k, err := s.Keep(c, terms)
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
