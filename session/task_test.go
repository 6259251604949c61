package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

var terms = session.TaskTerms{Principal: "ann", Now: epoch, Timeout: time.Hour, Life: 24 * time.Hour}

// kept begins a call of tool a, hands it to the socket and keeps it as a task.
func kept(t *testing.T, s *session.Session, out *outbox) (session.Task, []byte) {
	t.Helper()
	c := &session.Call{
		Tool: "a", Arguments: json.RawMessage(`{"x":1}`), Events: true,
		Meta: session.CallMeta{ClientName: json.RawMessage(`"c"`), Capabilities: json.RawMessage(`{"elicitation":{}}`)},
	}
	if err := s.Begin(c); err != nil {
		t.Fatal(err)
	}
	id := out.write()[0]
	k, err := s.Keep(t.Context(), c, terms)
	if err != nil {
		t.Fatal(err)
	}
	clear(c.Arguments) // its memory is used for something else
	return k, []byte(id)
}

func task(t *testing.T, s *session.Session, id session.TaskID) session.Task {
	t.Helper()
	k, err := s.Task(t.Context(), id, "ann")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAKeptCallsResultIsTheTasks(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	if k.Status != session.TaskWorking || k.Tool != "a" || len(k.ID) != 26 || !k.Expires.Equal(epoch.Add(24*time.Hour)) {
		t.Errorf("kept as %+v", k)
	}
	w, err := s.Watch(k.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_ = i.Notify(id, session.Event{Kind: session.EventProgress, Progress: 1, Value: json.RawMessage(`1`), Message: json.RawMessage(`"half"`)})
	if k := task(t, s, k.ID); k.Message != "half" {
		t.Errorf("its message is %q", k.Message)
	}
	if _, err := s.Task(t.Context(), k.ID, "bob"); !errors.Is(err, session.ErrUnknownTask) {
		t.Errorf("another principal is told %v", err)
	}
	_ = i.Finish(id, result(`{"n":9007199254740993}`))
	now := task(t, s, k.ID)
	if now.Status != session.TaskDone || string(now.Result) != `{"n":9007199254740993}` || now.Failure != nil || now.Message != "" {
		t.Errorf("it ended as %+v", now)
	}
	<-w.Changed()
	if moved := w.TakeTasks(); len(moved) != 1 || moved[0] != k.ID {
		t.Errorf("the stream was told of %q", moved)
	}
	_ = i.Finish(id, result(`{"second":true}`))
	if now := task(t, s, k.ID); string(now.Result) != `{"n":9007199254740993}` {
		t.Errorf("a second answer made it %s", now.Result)
	}
}

func TestATaskIsToldOfOnceItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		s := start(t, d, session.Limits{})
		i, out := attach(t, s, "p")
		register(t, i, tool("a"))
		d.manual = true
		c := begin(t, s, "a")
		id := []byte(out.write()[0])
		answers := make(chan session.Task, 2)
		go func() {
			k, _ := s.Keep(t.Context(), c, terms)
			answers <- k
		}()
		synctest.Wait()
		if len(answers) != 0 {
			t.Fatal("the task was told of before it was durable")
		}
		s.Saved(d.seq)
		k := <-answers
		_ = i.Finish(id, result(`{}`))
		go func() { answers <- task(t, s, k.ID) }()
		synctest.Wait()
		if len(answers) != 0 {
			t.Fatal("the result was told before it was durable")
		}
		s.Saved(d.seq)
		if k := <-answers; k.Status != session.TaskDone {
			t.Errorf("it is %+v", k)
		}
	})
}

func TestWhatHasEndedOrIsTooMuchIsNotKept(t *testing.T) {
	s := start(t, &disk{}, session.Limits{Tasks: 1})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	ended := begin(t, s, "a")
	_ = i.Finish([]byte(out.write()[0]), result(`{}`))
	if _, err := s.Keep(t.Context(), ended, terms); !errors.Is(err, session.ErrEnded) {
		t.Errorf("an ended call: %v", err)
	}
	outcome(t, ended)
	kept(t, s, out)
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	if _, err := s.Keep(t.Context(), c, terms); !errors.Is(err, session.ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	_ = i.Finish(id, result(`{}`))
	outcome(t, c)
}

const asks = `{"resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create"},"again":{"method":"roots/list"}},"requestState":"s1"}`

func TestATaskGathersAnswersAndCallsAgain(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	_ = i.Finish(id, session.Result{Raw: []byte(asks), Asks: true})
	now := task(t, s, k.ID)
	if in := now.Pending(); now.Status != session.TaskAsking || len(in) != 2 || in[0].Key != "again" || string(in[1].Request) != `{"method":"elicitation/create"}` {
		t.Fatalf("it asks as %+v", now)
	}
	answer := func(s *session.Session, answers map[string]json.RawMessage) session.Task {
		k, err := s.AnswerTask(t.Context(), k.ID, "ann", answers)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	now = answer(s, map[string]json.RawMessage{"name": json.RawMessage(`{"a":1}`), "never": json.RawMessage(`{}`)})
	if in := now.Pending(); now.Status != session.TaskAsking || len(in) != 1 || in[0].Key != "again" {
		t.Fatalf("after one answer: %+v", now)
	}
	answer(s, map[string]json.RawMessage{"name": json.RawMessage(`{"a":2}`)}) // it has one

	// The process ends here; another one goes on.
	s.Stop(session.ErrShutdown)
	s = session.Start(session.Config{Bridge: "b", Saver: &disk{}}, d.snapshot(), epoch)
	i, out = attach(t, s, "p")
	register(t, i, tool("a"))
	now = answer(s, map[string]json.RawMessage{"again": json.RawMessage(`{"roots":[]}`)})
	if now.Status != session.TaskWorking || len(out.calls) != 1 {
		t.Fatalf("after all answers: %+v", now)
	}
	c := out.calls[0].Call
	if string(c.Arguments) != `{"x":1}` || string(c.Input.Responses) != `{"again":{"roots":[]},"name":{"a":1}}` || string(c.Input.State) != `"s1"` ||
		string(c.Meta.Capabilities) != `{"elicitation":{}}` {
		t.Errorf("called again with %s, %s, %s", c.Arguments, c.Input.Responses, c.Input.State)
	}
	_ = i.Finish([]byte(out.write()[0]), session.Result{Raw: []byte(asks), Asks: true})
	now = task(t, s, k.ID)
	if in := now.Pending(); len(in) != 2 || in[0].Key != "again-2" || in[1].Key != "name-2" {
		t.Fatalf("the second round asks for %+v", in)
	}
	answer(s, map[string]json.RawMessage{"again-2": json.RawMessage(`1`), "name-2": json.RawMessage(`2`), "name": json.RawMessage(`3`)})
	if c := out.calls[0].Call; string(c.Input.Responses) != `{"again":1,"name":2}` {
		t.Errorf("called again with %s", c.Input.Responses)
	}
}

func TestACancelledTaskIsCancelledAtTheProvider(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	now, err := s.CancelTask(t.Context(), k.ID, "ann")
	if err != nil || now.Status != session.TaskCancelled || len(out.cancel) != 1 {
		t.Errorf("it is %+v, %v; %d told", now, err, len(out.cancel))
	}
	_ = i.Finish(id, result(`{}`)) // too late
	if now, err = s.CancelTask(t.Context(), k.ID, "ann"); err != nil || now.Status != session.TaskCancelled || now.Result != nil {
		t.Errorf("cancelled twice it is %+v, %v", now, err)
	}
	k, id = kept(t, s, out)
	_ = i.Finish(id, session.Result{Raw: []byte(asks), Asks: true})
	if now, err = s.CancelTask(t.Context(), k.ID, "ann"); err != nil || now.Status != session.TaskCancelled || len(now.Pending()) != 0 {
		t.Errorf("cancelled while it asked it is %+v, %v", now, err)
	}
}

func TestATasksFailureIsKept(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	_ = i.Fail(id, &session.ProtocolError{Code: -32001, Message: "m", Data: []byte(`[1]`)})
	if f := task(t, s, k.ID).Failure; f == nil || f.Code != -32001 || f.Message != "m" || string(f.Data) != `[1]` {
		t.Errorf("a protocol error is kept as %+v", f)
	}
	k, _ = kept(t, s, out)
	i.Detach(epoch)
	if f := task(t, s, k.ID).Failure; f == nil || f.Code != 0 || f.Reason != session.ReasonProviderGone {
		t.Errorf("a provider that left is kept as %+v", f)
	}
}

func TestATaskOutlivesTheProcess(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, out := resumable(t, s, "p", "k")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	other, otherID := kept(t, s, out)
	for range 3 { // processes
		s.Stop(session.ErrShutdown)
		s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch)
	}
	if now := task(t, s, k.ID); now.Status != session.TaskWorking {
		t.Fatalf("after the restarts it is %+v", now)
	}
	stranger, _ := resumable(t, s, "q", "k")
	_ = stranger.Finish(id, result(`{"of":"stranger"}`))
	i, out = resumable(t, s, "p", "k")
	fresh := begin(t, s, "a")
	freshID := []byte(out.write()[0])
	_ = i.Finish(id, result(`{"of":"k"}`))
	_ = i.Finish(freshID, result(`{"of":"fresh"}`))
	_ = i.Finish(otherID, result(`{"of":"other"}`))
	if now := task(t, s, k.ID); string(now.Result) != `{"of":"k"}` {
		t.Errorf("it ended as %+v", now)
	}
	if now := task(t, s, other.ID); string(now.Result) != `{"of":"other"}` {
		t.Errorf("the other ended as %+v", now)
	}
	if o := outcome(t, fresh); string(o.Result.Raw) != `{"of":"fresh"}` {
		t.Errorf("a new call ended as %+v", o)
	}
}

func TestATaskWhoseCallWasLostSaysSo(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, id := kept(t, s, out)
	s = session.Start(session.Config{Bridge: "b", Saver: d}, d.snapshot(), epoch) // the last one crashed
	i, _ = attach(t, s, "p")
	_ = i.Finish(id, result(`{}`))
	if f := task(t, s, k.ID).Failure; f == nil || f.Reason != session.ReasonProviderGone || f.Code != 0 {
		t.Errorf("it ended as %+v", f)
	}
}

func TestATaskThatNobodyResumesEnds(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := resumable(t, s, "p", "k")
	register(t, i, tool("a"))
	k, _ := kept(t, s, out)
	i.Detach(epoch)
	i.Forsake()
	s.Tick(epoch.Add(30 * time.Minute))
	if now := task(t, s, k.ID); now.Status != session.TaskWorking {
		t.Fatalf("while its provider is away it is %+v", now)
	}
	resumable(t, s, "p", "another") // at epoch
	s.Tick(epoch.Add(5 * time.Second))
	if now := task(t, s, k.ID); now.Status != session.TaskWorking {
		t.Fatalf("while it may still be resumed it is %+v", now)
	}
	s.Tick(epoch.Add(11 * time.Second))
	if f := task(t, s, k.ID).Failure; f == nil || f.Reason != session.ReasonProviderGone {
		t.Errorf("it ended as %+v", f)
	}
}

func TestATaskEndsAtItsDeadlineAndGoesAtItsEnd(t *testing.T) {
	d := &disk{}
	s := start(t, d, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	k, _ := kept(t, s, out)
	s.Tick(epoch.Add(time.Hour - time.Second))
	if now := task(t, s, k.ID); now.Status != session.TaskWorking {
		t.Fatalf("before its deadline it is %+v", now)
	}
	s.Tick(epoch.Add(time.Hour))
	if f := task(t, s, k.ID).Failure; f == nil || f.Reason != session.ReasonTimeout || len(out.cancel) != 1 {
		t.Errorf("it ended as %+v, %d told", f, len(out.cancel))
	}
	s.Tick(epoch.Add(24 * time.Hour))
	if _, err := s.Task(t.Context(), k.ID, "ann"); !errors.Is(err, session.ErrUnknownTask) || len(d.snapshot().Tasks) != 0 {
		t.Errorf("after its end: %v, %d kept", err, len(d.snapshot().Tasks))
	}
}

// TestNobodyWaitsForAStoreForEver: one that does not write keeps those who ask for tasks
// waiting no longer than they like, and not too many of them.
func TestNobodyWaitsForAStoreForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		s := start(t, d, session.Limits{})
		i, out := attach(t, s, "p")
		register(t, i, tool("a"))
		k, id := kept(t, s, out)
		d.manual = true
		_ = i.Finish(id, result(`{}`))
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2000)
		for range 2000 {
			go func() {
				_, err := s.Task(ctx, k.ID, "ann")
				errs <- err
			}()
		}
		synctest.Wait()
		if n := len(errs); n < 900 || n > 1000 {
			t.Errorf("%d of 2000 were sent away", n)
		}
		for range len(errs) {
			if err := <-errs; !errors.Is(err, session.ErrBusy) {
				t.Errorf("sent away with %v", err)
			}
		}
		cancel()
		synctest.Wait()
		for range len(errs) {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("left with %v", err)
			}
		}
		s.Saved(d.seq)
		if now := task(t, s, k.ID); now.Status != session.TaskDone {
			t.Errorf("it is %+v", now)
		}
	})
}
