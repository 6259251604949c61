package session_test

import (
	"encoding/json"
	"errors"
	"testing"

	"mcpbridge/session"
)

// question is an ask and what it got.
type question struct {
	*session.Ask
	replies []session.Reply
}

func ask(t *testing.T, i *session.Instance, method string) *question {
	t.Helper()
	q := &question{}
	q.Ask = session.NewAsk(method, json.RawMessage(`{"m":1}`), func(r session.Reply) { q.replies = append(q.replies, r) })
	if err := i.Ask(q.Ask); err != nil {
		t.Fatal(err)
	}
	return q
}

// asking begins a call whose client can be asked, and hands it to the socket.
func asking(t *testing.T, s *session.Session, out *outbox) (*session.Call, []byte) {
	t.Helper()
	c := &session.Call{Tool: "a", Asks: true}
	if err := s.Begin(c); err != nil {
		t.Fatal(err)
	}
	return c, []byte(out.write()[0])
}

func taken(c *session.Call) (list []*session.Ask) {
	for _, e := range c.Take() {
		list = append(list, e.Ask)
	}
	return list
}

func (q *question) cause(t *testing.T, want error) {
	t.Helper()
	if len(q.replies) != 1 || !errors.Is(q.replies[0].Cause, want) {
		t.Errorf("answered with %+v, want %v", q.replies, want)
	}
}

func TestAnAskReachesTheOnlyCallItCanBelongTo(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	other, otherOut := attach(t, s, "q")
	register(t, i, tool("a"))
	register(t, other, tool("b"))
	ask(t, i, "roots/list").cause(t, session.ErrNobodyToAsk)
	c, id := asking(t, s, out)
	elsewhere := &session.Call{Tool: "b", Asks: true}
	if err := s.Begin(elsewhere); err != nil {
		t.Fatal(err)
	}
	otherOut.write()
	queued := begin(t, s, "a") // no socket has it: it cannot be the one
	q := ask(t, i, "roots/list")
	if got := taken(c); len(got) != 1 || got[0] != q.Ask || string(got[0].Params) != `{"m":1}` {
		t.Fatalf("the call was asked %v", got)
	}
	if len(taken(elsewhere)) != 0 || len(q.replies) != 0 {
		t.Fatal("somebody else was asked, or somebody answered")
	}
	q.Answer(session.Reply{Result: json.RawMessage(`{"roots":[]}`)})
	q.Answer(session.Reply{Result: json.RawMessage(`{"twice":1}`)})
	if len(q.replies) != 1 || string(q.replies[0].Result) != `{"roots":[]}` {
		t.Errorf("answered with %+v", q.replies)
	}
	open := ask(t, i, "roots/list")
	_ = i.Finish(id, result(`{}`))
	outcome(t, c)
	open.cause(t, session.ErrAskOver)
	pending(t, queued)
}

func TestAnAskThatMayBelongToSeveralWaitsUntilItIsKnown(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	first, id1 := asking(t, s, out)
	second, id2 := asking(t, s, out)
	q := ask(t, i, "elicitation/create")
	later, id3 := asking(t, s, out) // cannot have asked it
	if len(taken(first))+len(taken(second))+len(taken(later)) != 0 {
		t.Fatal("somebody was asked on a guess")
	}
	_ = i.Finish(id3, result(`{}`))
	_ = i.Finish(id1, result(`{}`))
	if got := taken(second); len(got) != 1 || got[0] != q.Ask {
		t.Fatalf("once one is left, it was asked %v", got)
	}
	_ = i.Finish(id2, result(`{}`))
	q.cause(t, session.ErrAskOver)

	asking(t, s, out)
	asking(t, s, out)
	q = ask(t, i, "elicitation/create")
	i.GiveUp(q.Ask)
	q.cause(t, session.ErrWhoseAsk)
	for range 16 {
		q = ask(t, i, "elicitation/create")
	}
	ask(t, i, "elicitation/create").cause(t, session.ErrBusy)
	i.Detach(epoch)
	q.cause(t, session.ErrAskOver)
}

func TestWhoCannotBeAskedIsNot(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c := begin(t, s, "a") // without Asks
	out.write()
	ask(t, i, "elicitation/create").cause(t, session.ErrNobodyToAsk)
	if len(taken(c)) != 0 {
		t.Error("it was asked")
	}
}

func TestATaskIsAskedThroughItsRecord(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	q := ask(t, i, "elicitation/create")
	again := ask(t, i, "elicitation/create")
	now := task(t, s, k.ID)
	if in := now.Pending(); now.Status != session.TaskAsking || len(in) != 2 || in[1].Key != "elicitation/create-2" ||
		string(in[0].Request) != `{"method":"elicitation/create","params":{"m":1}}` {
		t.Fatalf("it asks as %+v", now)
	}
	now, err := s.AnswerTask(k.ID, "ann", map[string]json.RawMessage{"elicitation/create": json.RawMessage(`{"action":"accept"}`)})
	if err != nil || now.Status != session.TaskAsking || len(q.replies) != 1 || string(q.replies[0].Result) != `{"action":"accept"}` {
		t.Errorf("one answer: %+v, %v, %+v", now, err, q.replies)
	}
	now, err = s.AnswerTask(k.ID, "ann", map[string]json.RawMessage{"elicitation/create-2": json.RawMessage(`{}`)})
	if err != nil || now.Status != session.TaskWorking || len(again.replies) != 1 || len(out.calls) != 0 {
		t.Errorf("both answers: %+v, %v, %+v", now, err, again.replies)
	}
	q = ask(t, i, "roots/list")
	_ = i.Finish(id, result(`{"done":true}`))
	if now := task(t, s, k.ID); string(now.Result) != `{"done":true}` {
		t.Errorf("it ended as %+v", now)
	}
	q.cause(t, session.ErrAskOver)
}
