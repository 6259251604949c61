package session_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

func result(text string) session.Result { return session.Result{Raw: []byte(text)} }

func TestOnlyTheAskedInstanceMayAnswer(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	older, _ := attach(t, s, "p")
	newer, out := attach(t, s, "p")
	other, _ := attach(t, s, "q")
	register(t, older, tool("a"))
	register(t, newer, tool("a"))
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	for _, i := range []*session.Instance{older, other} {
		if err := i.Finish(id, result(`{"forged":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := i.Fail(id, session.ErrBadResult); err != nil {
			t.Fatal(err)
		}
		if err := i.Notify(id, session.Event{Progress: 1, Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	pending(t, c)
	if len(c.Take()) != 0 {
		t.Error("an event of another instance reached the call")
	}
	if err := newer.Finish(id, result(`{}`)); err != nil {
		t.Fatal(err)
	}
	if o := outcome(t, c); o.Err != nil || string(o.Result.Raw) != `{}` || o.Reason != session.ReasonResult {
		t.Errorf("outcome %+v", o)
	}
}

// releases counts how often a result's memory is given back.
type releases struct{ n int }

func (r *releases) Release() { r.n++ }

func TestLateAndSecondAnswersAreCountedAndDropped(t *testing.T) {
	stats := &session.Stats{}
	s := session.Start(session.Config{Bridge: "b", Saver: &disk{}, Stats: stats}, session.Snapshot{}, epoch)
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	if o := s.Abandon(c, session.ErrTimeout); !errors.Is(o.Err, session.ErrTimeout) || o.Reason != session.ReasonTimeout {
		t.Fatalf("outcome %+v", o)
	}
	if len(out.cancel) != 1 || out.cancel[0] != c {
		t.Errorf("the provider was not told once: %v", out.cancel)
	}
	memory := &releases{}
	for range 2 {
		if err := i.Finish(id, session.Result{Raw: []byte(`{}`), Buffer: memory}); err != nil {
			t.Fatal(err)
		}
	}
	if memory.n != 2 || stats.Strays.Load() != 2 {
		t.Errorf("%d released, %d counted; want 2 and 2", memory.n, stats.Strays.Load())
	}
	for _, bad := range []string{"", "1", "x-1", strings.TrimSuffix(string(id), "1") + "01", strings.TrimSuffix(string(id), "1") + "+1", string(id) + "0"} {
		_ = i.Finish([]byte(bad), result(`{}`))
	}
	if n := stats.Strays.Load(); n != 8 {
		t.Errorf("%d strays, want 8", n)
	}
}

func TestCallIDsOfAnotherActivationFindNothing(t *testing.T) {
	a, b := start(t, &disk{}, session.Limits{}), start(t, &disk{}, session.Limits{})
	ia, outA := attach(t, a, "p")
	ib, outB := attach(t, b, "p")
	register(t, ia, tool("a"))
	register(t, ib, tool("a"))
	begin(t, a, "a")
	c := begin(t, b, "a")
	outB.write()
	if err := ib.Finish([]byte(outA.write()[0]), result(`{}`)); err != nil {
		t.Fatal(err)
	}
	pending(t, c)
}

func TestDeliveredCallEndsWithItsInstanceAndUndeliveredMovesOn(t *testing.T) {
	s := start(t, &disk{}, session.Limits{Park: -1})
	older, outOlder := attach(t, s, "p")
	newer, outNewer := attach(t, s, "p")
	register(t, older, tool("a"))
	register(t, newer, tool("a"))
	delivered := begin(t, s, "a")
	outNewer.write()
	first, second := begin(t, s, "a"), begin(t, s, "a")
	newer.Detach(epoch)
	if o := outcome(t, delivered); !errors.Is(o.Err, session.ErrProviderGone) || o.Reason != session.ReasonProviderGone {
		t.Errorf("delivered call: %+v, want outcome unknown", o)
	}
	if ids := outNewer.write(); len(ids) != 0 {
		t.Errorf("the instance that left was still handed %v", ids)
	}
	ids := outOlder.write()
	if len(ids) != 2 || ids[0] != string(first.AppendID(nil)) || ids[1] != string(second.AppendID(nil)) {
		t.Fatalf("the older instance got %v, want both in order", ids)
	}
	_ = older.Finish([]byte(ids[0]), result(`{}`))
	older.Detach(epoch)
	if o := outcome(t, first); o.Err != nil {
		t.Errorf("first: %+v", o)
	}
	if o := outcome(t, second); !errors.Is(o.Err, session.ErrProviderGone) {
		t.Errorf("second: %+v", o)
	}
	away := begin(t, s, "a")
	o := outcome(t, away)
	if e, ok := errors.AsType[*session.AwayError](o.Err); !ok || e.Provider != "p" || !e.Since.Equal(epoch) {
		t.Errorf("call while away: %+v", o)
	}
}

func TestAbandonedCallThatNoSocketHadIsNeverWritten(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	o := s.Abandon(c, session.ErrTimeout)
	if !errors.Is(o.Err, session.ErrTimeout) || !strings.Contains(o.Err.Error(), "never delivered") {
		t.Errorf("outcome %v does not say that the call was never delivered", o.Err)
	}
	if ids := out.write(); len(ids) != 0 || len(out.cancel) != 0 {
		t.Errorf("written %v, cancelled %d", ids, len(out.cancel))
	}
	if !c.Settled() {
		t.Error("its arguments' memory is still held")
	}
}

func TestMemoryIsHeldWhileAWriterHasTheCall(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	d := out.calls[0]
	if !d.Claim() || d.Claim() {
		t.Fatal("a delivery is claimed exactly once")
	}
	s.Abandon(c, session.ErrCancelled)
	if c.Settled() {
		t.Error("settled while the writer reads it")
	}
	d.Written()
	if !c.Settled() {
		t.Error("not settled after it was written")
	}
}

func TestProgressGrowsAndComesBeforeTheOutcome(t *testing.T) {
	s := start(t, &disk{}, session.Limits{EventBytes: 1 << 10})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	for _, n := range []float64{0, 50, 50, 20, 100} {
		if err := i.Notify(id, session.Event{Progress: n, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	_ = i.Finish(id, result(`{}`))
	outcome(t, c)
	var got []float64
	for _, e := range c.Take() {
		got = append(got, e.Progress)
	}
	if len(got) != 3 || got[0] != 0 || got[1] != 50 || got[2] != 100 {
		t.Errorf("progress %v, want 0 50 100", got)
	}
}

func TestEventsOfASlowCallerAreBounded(t *testing.T) {
	stats := &session.Stats{}
	s := session.Start(session.Config{Bridge: "b", Saver: &disk{}, Stats: stats, Limits: session.Limits{EventBytes: 1000}}, session.Snapshot{}, epoch)
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	id := []byte(out.write()[0])
	for n := range 100 {
		_ = i.Notify(id, session.Event{Kind: session.EventLog, Level: "info", Value: []byte(strings.Repeat("x", n))})
	}
	kept := len(c.Take())
	if kept == 0 || kept == 100 || stats.Dropped.Load() != uint64(100-kept) {
		t.Errorf("%d kept, %d counted as dropped", kept, stats.Dropped.Load())
	}
}

func TestCallsAreBounded(t *testing.T) {
	s := start(t, &disk{}, session.Limits{Calls: 2})
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	first := begin(t, s, "a")
	begin(t, s, "a")
	o := outcome(t, begin(t, s, "a"))
	if e, ok := errors.AsType[*session.LimitError](o.Err); !ok || e.Max != 2 || !errors.Is(o.Err, session.ErrBusy) {
		t.Fatalf("third call: %+v", o)
	}
	_ = i.Finish([]byte(out.write()[0]), result(`{}`))
	outcome(t, first)
	pending(t, begin(t, s, "a"))
	out.full = true
	s2 := start(t, &disk{}, session.Limits{})
	i2, out2 := attach(t, s2, "p")
	register(t, i2, tool("a"))
	out2.full = true
	if o := outcome(t, begin(t, s2, "a")); !errors.Is(o.Err, session.ErrBusy) || out2.closed != nil {
		t.Errorf("full outbox: %+v, closed %v; want busy and the provider unharmed", o, out2.closed)
	}
}

func TestUnknownToolIsToldFromAnAwayOne(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	if o := outcome(t, begin(t, s, "a")); !errors.Is(o.Err, session.ErrUnknownTool) {
		t.Errorf("outcome %+v", o)
	}
}

func TestStopEndsEverythingOnce(t *testing.T) {
	d := &disk{manual: true}
	s := start(t, d, session.Limits{})
	i, out := attach(t, s, "p")
	var acks []session.Registered
	ack := func(r session.Registered) { acks = append(acks, r) }
	_ = i.Register(tools("a"), ack)
	given := begin(t, s, "a")
	out.write()
	c := begin(t, s, "a")
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	s.Stop(session.ErrShutdown)
	if o := outcome(t, given); !errors.Is(o.Err, session.ErrShutdown) || !errors.Is(o.Err, session.ErrCutOff) {
		t.Errorf("a call that was delivered: %+v", o)
	}
	if o := outcome(t, c); !errors.Is(o.Err, session.ErrShutdown) || errors.Is(o.Err, session.ErrCutOff) {
		t.Errorf("a call that was not: %+v", o)
	}
	<-w.Done()
	if !errors.Is(w.Cause(), session.ErrShutdown) || !errors.Is(out.closed, session.ErrShutdown) {
		t.Errorf("stream ended for %v, provider for %v", w.Cause(), out.closed)
	}
	if len(acks) != 1 || !errors.Is(acks[0].Err, session.ErrShutdown) {
		t.Errorf("registration answered with %+v", acks)
	}
	if err := s.Begin(&session.Call{Tool: "a"}); !errors.Is(err, session.ErrStopped) {
		t.Errorf("Begin = %v", err)
	}
	if _, err := s.Watch(); !errors.Is(err, session.ErrStopped) {
		t.Errorf("Watch = %v", err)
	}
	if _, err := s.Attach(session.Hello{Provider: "q"}, &outbox{}, epoch); !errors.Is(err, session.ErrStopped) {
		t.Errorf("Attach = %v", err)
	}
	i.Detach(epoch)
	s.Stop(session.ErrDeleted)
}

func TestReleaseWaitsForEveryUse(t *testing.T) {
	d := &disk{manual: true}
	s := start(t, d, session.Limits{})
	i, _ := attach(t, s, "p")
	if s.Release() {
		t.Fatal("released with an instance attached")
	}
	_ = i.Register(tools("a"), nil)
	i.Detach(epoch)
	if s.Release() {
		t.Fatal("released with unsaved changes")
	}
	s.Saved(d.seq)
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	if s.Release() {
		t.Fatal("released with a stream")
	}
	w.Close()
	if !s.Release() || !s.Ended() {
		t.Error("not released when unused")
	}
}

// exploding is a saver that panics: a fault inside a turn.
type exploding struct{}

func (exploding) Save(*session.Session, uint64, session.Change) { panic("boom") }

func TestBrokenTurnHarmsItsSessionAlone(t *testing.T) {
	var told any
	s := session.Start(session.Config{
		Bridge: "b", Saver: exploding{},
		Broken: func(_ session.BridgeID, reason any, _ []byte) { told = reason },
	}, session.Snapshot{}, epoch)
	i, out := attach(t, s, "p")
	if err := i.Register(tools("a"), nil); err != nil {
		t.Fatal(err)
	}
	if told != "boom" || !s.Ended() || !errors.Is(out.closed, session.ErrBroken) {
		t.Errorf("told %v, ended %v, closed %v", told, s.Ended(), out.closed)
	}
	if err := s.Begin(&session.Call{Tool: "a"}); !errors.Is(err, session.ErrStopped) {
		t.Errorf("Begin = %v", err)
	}
}

// mine is an outbox that explodes.
type mine struct{ outbox }

func (*mine) Deliver(session.Delivery, int) session.Room { panic("boom") }

// TestNobodyWaitsForABrokenTurn: whoever sent the command that broke it is answered.
func TestNobodyWaitsForABrokenTurn(t *testing.T) {
	s := start(t, &disk{}, session.Limits{})
	i, err := s.Attach(session.Hello{Provider: "p", Retain: -1}, &mine{}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	register(t, i, tool("a"))
	c := begin(t, s, "a")
	if o := outcome(t, c); !errors.Is(o.Err, session.ErrBroken) || !s.Ended() {
		t.Errorf("outcome %+v, ended %t", o, s.Ended())
	}
	known := session.Snapshot{Registrations: []session.Registration{{Provider: "p", Retain: time.Hour, LeftAt: epoch, Tools: tools("a")}}}
	s = session.Start(session.Config{Bridge: "b", Saver: exploding{}}, known, epoch)
	if _, err := s.Attach(session.Hello{Provider: "p", Retain: -1}, &outbox{}, epoch); !errors.Is(err, session.ErrBroken) {
		t.Errorf("Attach = %v", err)
	}
	if _, err := s.Watch(); !errors.Is(err, session.ErrStopped) {
		t.Errorf("Watch = %v", err)
	}
}

func TestIdleSessionHoldsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		s := start(t, &disk{}, session.Limits{})
		i, _ := attach(t, s, "p")
		register(t, i, tool("a"))
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines more", n-before)
	}
}

// gate is an outbox whose Deliver waits, so that a turn takes as long as a test
// wants.
type gate struct {
	outbox
	open chan struct{}
}

func (g *gate) Deliver(d session.Delivery, n int) session.Room {
	<-g.open
	return g.outbox.Deliver(d, n)
}

func TestFullMailboxMakesSendersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, senders = 8, 50
		s := start(t, &disk{}, session.Limits{Mailbox: bound})
		g := &gate{open: make(chan struct{})}
		i, err := s.Attach(session.Hello{Provider: "p"}, g, epoch)
		if err != nil {
			t.Fatal(err)
		}
		register(t, i, tool("a"))
		var wg sync.WaitGroup
		var mu sync.Mutex
		taken := 0
		for range senders {
			wg.Go(func() {
				c := &session.Call{Tool: "a"}
				if err := s.Begin(c); err != nil {
					t.Error(err)
				}
				mu.Lock()
				taken++
				mu.Unlock()
			})
		}
		synctest.Wait()
		mu.Lock()
		if taken != bound {
			t.Errorf("%d commands were taken while a turn ran, want the mailbox's %d", taken, bound)
		}
		mu.Unlock()
		close(g.open)
		wg.Wait()
		synctest.Wait() // the last turns may be another goroutine's
		if n := len(g.write()); n != senders {
			t.Errorf("%d calls delivered, want %d", n, senders)
		}
		s.Stop(session.ErrShutdown)
	})
}

func TestManyAtOnceEndExactlyOnce(t *testing.T) {
	stats := &session.Stats{}
	s := session.Start(session.Config{Bridge: "b", Saver: &disk{}, Stats: stats, Limits: session.Limits{Calls: 1 << 20}}, session.Snapshot{}, epoch)
	i, out := attach(t, s, "p")
	register(t, i, tool("a"))
	const callers, each = 8, 500
	var wg, answering sync.WaitGroup
	stop := make(chan struct{})
	answering.Go(func() {
		for {
			for n, id := range out.write() {
				if n%3 > 0 {
					_ = i.Finish([]byte(id), result(`{}`))
				}
				_ = i.Finish([]byte(id), result(`{}`))
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range callers {
		wg.Go(func() {
			for n := range each {
				c := &session.Call{Tool: "a"}
				if err := s.Begin(c); err != nil {
					t.Error(err)
					return
				}
				if n%2 == 0 {
					s.Abandon(c, session.ErrCancelled)
				} else {
					<-c.Done()
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	answering.Wait()
	var ended uint64
	for r := range stats.Ended {
		ended += stats.Ended[r].Load()
	}
	if begun := stats.Begun.Load(); begun != callers*each || ended != begun {
		t.Errorf("%d begun, %d ended, want %d", begun, ended, callers*each)
	}
}
