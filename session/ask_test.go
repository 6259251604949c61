package session_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	return askingAs(t, s, out, "")
}

func askingAs(t testing.TB, s *session.Session, out *outbox, principal string) (*session.Call, []byte) {
	t.Helper()
	c := &session.Call{Tool: "a", Asks: true, Events: true, Principal: principal}
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

func TestAnAskOfThreeCallsIsKnownOnceTwoAreAnswered(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	_, id1 := asking(t, s, out)
	_, id2 := asking(t, s, out)
	third, _ := asking(t, s, out)
	q := ask(t, i, "elicitation/create")
	_ = i.Finish(id1, result(`{}`))
	if len(taken(third)) != 0 {
		t.Fatal("somebody was asked on a guess")
	}
	_ = i.Finish(id2, result(`{}`))
	if got := taken(third); len(got) != 1 || got[0] != q.Ask {
		t.Fatalf("once one is left, it was asked %v", got)
	}
}

// TestACallThatWasGivenUpMayStillAsk: a server need not heed that a call is cancelled,
// so that what it asks may be that call's until it has answered it.
func TestACallThatWasGivenUpMayStillAsk(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	anns, id := askingAs(t, s, out, "ann")
	bens, _ := askingAs(t, s, out, "ben")
	q := ask(t, i, "elicitation/create")
	s.Abandon(anns, session.ErrTimeout)
	if len(taken(bens)) != 0 || len(q.replies) != 0 {
		t.Fatalf("ben was asked what may be ann's, or it was answered: %+v", q.replies)
	}
	later := ask(t, i, "elicitation/create")
	_ = i.NotifyOnly(session.Event{Kind: session.EventLog, Level: "info", Value: json.RawMessage(`"ann's"`)})
	if len(bens.Take()) != 0 || len(later.replies) != 0 {
		t.Fatal("ben was asked, or told, what may be ann's")
	}
	_ = i.Finish(id, result(`{}`)) // at last
	if got := taken(bens); len(got) != 2 || got[0] != q.Ask || got[1] != later.Ask {
		t.Fatalf("once ann's call is answered, ben's was asked %v", got)
	}

	s.Abandon(bens, session.ErrCancelled)
	anns, _ = askingAs(t, s, out, "ann")
	open := ask(t, i, "elicitation/create")
	i.GiveUp(open.Ask)
	open.cause(t, session.ErrWhoseAsk)
	open = ask(t, i, "elicitation/create")
	s.Abandon(anns, session.ErrCancelled)
	open.cause(t, session.ErrAskOver) // whoever's it is, nobody waits
	if len(taken(anns))+len(taken(bens)) != 0 {
		t.Error("somebody was asked after the call's end")
	}
}

func TestACallOfTheSamePrincipalThatWasGivenUpHindersNobody(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	for range 100 {
		c, _ := askingAs(t, s, out, "ann")
		s.Abandon(c, session.ErrTimeout)
	}
	anns, id := askingAs(t, s, out, "ann")
	q := ask(t, i, "roots/list")
	if got := taken(anns); len(got) != 1 || got[0] != q.Ask {
		t.Fatalf("ann's call was asked %v", got)
	}
	_ = i.Finish(id, result(`{}`))
	bens, _ := askingAs(t, s, out, "ben")
	ask(t, i, "roots/list")
	if len(taken(bens)) != 0 {
		t.Error("ben was asked what may be ann's")
	}
}

// TestNobodyIsAskedWhatMayBeAnothers: whatever happens, a call is asked only what no
// call of another principal can have asked, nor any other that was in flight.
func TestNobodyIsAskedWhatMayBeAnothers(t *testing.T) {
	type call struct {
		*session.Call
		id       []byte
		over     bool // given up
		answered bool
	}
	type open struct {
		ask   *session.Ask
		given []*call // that may have asked
	}
	rapid.Check(t, func(r *rapid.T) {
		s := start(t, &disk{}, session.Limits{})
		i, out := attach(t, s, "p")
		register(t, i, tool("a"))
		var calls []*call
		var asks []open
		pick := func() *call {
			if len(calls) == 0 {
				r.Skip("there is no call")
			}
			return rapid.SampledFrom(calls).Draw(r, "call")
		}
		r.Repeat(map[string]func(*rapid.T){
			"begin": func(r *rapid.T) {
				c, id := askingAs(t, s, out, rapid.SampledFrom([]string{"ann", "ben"}).Draw(r, "principal"))
				calls = append(calls, &call{Call: c, id: id})
			},
			"ask": func(*rapid.T) {
				o := open{ask: session.NewAsk("roots/list", nil, func(session.Reply) {})}
				for _, c := range calls {
					if !c.answered {
						o.given = append(o.given, c)
					}
				}
				asks = append(asks, o)
				_ = i.Ask(o.ask)
			},
			"answer": func(*rapid.T) {
				c := pick()
				c.answered = true
				_ = i.Finish(c.id, result(`{}`))
			},
			"give up": func(*rapid.T) {
				if c := pick(); !c.answered && !c.over {
					c.over = true
					s.Abandon(c.Call, session.ErrTimeout)
				}
			},
			"": func(r *rapid.T) {
				for _, c := range calls {
					for _, a := range taken(c.Call) {
						at := slices.IndexFunc(asks, func(o open) bool { return o.ask == a })
						if !slices.Contains(asks[at].given, c) {
							r.Fatalf("ask %d was put to a call that was not in flight", at)
						}
						for _, o := range asks[at].given {
							if o != c && !o.answered && (o.Principal != c.Principal || !o.over) {
								r.Fatalf("ask %d was put to %s, and may be of %s", at, c.id, o.id)
							}
						}
					}
				}
			},
		})
	})
}

func TestAProviderTakesAnAskBack(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c, id := asking(t, s, out)
	q := ask(t, i, "elicitation/create")
	i.Withdraw(q.Ask)
	i.Withdraw(q.Ask)
	e := c.Take()
	if len(e) != 2 || e[0].Kind != session.EventAsk || e[1].Kind != session.EventAskOver || e[1].Ask != q.Ask || !q.Answered() {
		t.Fatalf("the call was told %+v", e)
	}
	q = ask(t, i, "elicitation/create")
	q.Answer(session.Reply{Result: json.RawMessage(`{}`)})
	i.Withdraw(q.Ask)
	if e := c.Take(); len(e) != 1 {
		t.Errorf("an ask that was answered is taken back: %+v", e)
	}
	asking(t, s, out)
	q = ask(t, i, "elicitation/create")
	i.Withdraw(q.Ask)
	q.cause(t, session.ErrAskOver)
	_ = i.Finish(id, result(`{}`))
	if len(c.Take()) != 0 {
		t.Error("an ask that was taken back has been asked")
	}
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

// TestWhatATaskIsAskedCounts: its size is bounded with all tasks', and is right again
// when it ends.
func TestWhatATaskIsAskedCounts(t *testing.T) {
	s := start(t, &disk{}, session.Limits{TaskBytes: 8 << 10})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	for range 20 {
		k, id := kept(t, s, out)
		q := &question{}
		q.Ask = session.NewAsk("elicitation/create", make([]byte, 5<<10), func(r session.Reply) { q.replies = append(q.replies, r) })
		if err := i.Ask(q.Ask); err != nil || len(q.replies) != 0 {
			t.Fatalf("%v: there was room: %+v", err, q.replies)
		}
		more := session.NewAsk("elicitation/create", make([]byte, 5<<10), func(r session.Reply) { q.replies = append(q.replies, r) })
		if err := i.Ask(more); err != nil {
			t.Fatal(err)
		}
		q.cause(t, session.ErrBusy)
		_ = i.Finish(id, result(`{}`))
		if _, err := s.CancelTask(t.Context(), k.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		s.Tick(epoch.Add(1000 * time.Hour)) // so that it is dropped
	}
}

func TestATasksQuestionIsTakenBack(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, _ := kept(t, s, out)
	q := ask(t, i, "elicitation/create")
	other := ask(t, i, "elicitation/create")
	i.Withdraw(q.Ask)
	now := task(t, s, k.ID)
	if in := now.Pending(); now.Status != session.TaskAsking || len(in) != 1 || in[0].Key != "elicitation/create-2" {
		t.Errorf("one is left: %+v", now)
	}
	i.Withdraw(other.Ask)
	if now = task(t, s, k.ID); now.Status != session.TaskWorking || len(now.Pending()) != 0 {
		t.Errorf("none is left: %+v", now)
	}
	ask(t, i, "elicitation/create")
	now = task(t, s, k.ID)
	if in := now.Pending(); len(in) != 1 || in[0].Key != "elicitation/create-3" {
		t.Errorf("its key was used before: %+v", now)
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
	now, err := s.AnswerTask(t.Context(), k.ID, "ann", map[string]json.RawMessage{"elicitation/create": json.RawMessage(`{"action":"accept"}`)})
	if err != nil || now.Status != session.TaskAsking || len(q.replies) != 1 || string(q.replies[0].Result) != `{"action":"accept"}` {
		t.Errorf("one answer: %+v, %v, %+v", now, err, q.replies)
	}
	now, err = s.AnswerTask(t.Context(), k.ID, "ann", map[string]json.RawMessage{"elicitation/create-2": json.RawMessage(`{}`)})
	if err != nil || now.Status != session.TaskWorking || len(again.replies) != 1 || len(out.calls) != 0 {
		t.Errorf("both answers: %+v, %v, %+v", now, err, again.replies)
	}
	q = &question{}
	q.Ask = session.NewAsk("roots/list", nil, func(r session.Reply) { q.replies = append(q.replies, r) })
	if err := i.Ask(q.Ask); err != nil {
		t.Fatal(err)
	}
	// go-sdk 1.8 cannot read a request without params.
	now = task(t, s, k.ID)
	if in := now.Pending(); len(in) != 1 || string(in[0].Request) != `{"method":"roots/list","params":{}}` {
		t.Errorf("without params it asks %+v", in)
	}
	_ = i.Finish(id, result(`{"done":true}`))
	if now := task(t, s, k.ID); string(now.Result) != `{"done":true}` {
		t.Errorf("it ended as %+v", now)
	}
	q.cause(t, session.ErrAskOver)
}
