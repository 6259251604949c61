package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/session"
	"mcpbridge/shard"
	"mcpbridge/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is a store whose reads and writes can be watched and held up.
type slow struct {
	store.Store
	loads   atomic.Int64
	saves   atomic.Int64
	changes atomic.Int64
	fail    atomic.Pointer[error]
	hold    atomic.Pointer[chan struct{}] // Save waits until it is closed
	panics  atomic.Int64                  // how many loads panic from now on
}

func (s *slow) Load(ctx context.Context, id session.BridgeID) (session.Snapshot, error) {
	s.loads.Add(1)
	if s.panics.Add(-1) >= 0 {
		panic("loading")
	}
	return s.Store.Load(ctx, id)
}

func (s *slow) Save(ctx context.Context, sh store.Shard, e store.Epoch, c []session.Change) error {
	if hold := s.hold.Load(); hold != nil {
		<-*hold
	}
	if err := s.fail.Load(); err != nil {
		return *err
	}
	s.saves.Add(1)
	s.changes.Add(int64(len(c)))
	return s.Store.Save(ctx, sh, e, c)
}

func open(t testing.TB, st store.Store, limits session.Limits) *shard.Directory {
	t.Helper()
	d, err := shard.Open(t.Context(), shard.Config{Store: st, Limits: limits, Owner: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func provision(t testing.TB, st store.Store, id session.BridgeID) {
	t.Helper()
	if err := st.CreateBridge(t.Context(), 1, store.Bridge{ID: id, Version: 1}); err != nil {
		t.Fatal(err)
	}
}

// deaf is an outbox that takes everything.
type deaf struct{ closed chan error }

func (o *deaf) Deliver(session.Delivery, int) session.Room { return session.HasRoom }
func (o *deaf) Cancel(*session.Call, session.Reason)       {}
func (o *deaf) Close(cause error)                          { o.closed <- cause }

func tool(name string) session.Tool {
	return session.Tool{Name: name, NameAt: 8, NameEnd: 10 + len(name), Definition: fmt.Appendf(nil, `{"name":%q}`, name)}
}

// offer registers a tool on a bridge and waits until that is durable.
func offer(t testing.TB, d *shard.Directory, id session.BridgeID, name string) (*session.Session, *session.Instance, *deaf) {
	t.Helper()
	s, err := d.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	o := &deaf{make(chan error, 1)}
	i, err := s.Attach(session.Hello{Provider: "p", Retain: -1}, o, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan session.Registered, 1)
	if err := i.Register([]session.Tool{tool(name)}, func(r session.Registered) { told <- r }); err != nil {
		t.Fatal(err)
	}
	if r := <-told; r.Err != nil {
		t.Fatal(r.Err)
	}
	return s, i, o
}

func TestConcurrentFirstRequestsActivateOnce(t *testing.T) {
	st := &slow{Store: store.NewMemory(4)}
	provision(t, st, "b")
	d := open(t, st, session.Limits{})
	var wg sync.WaitGroup
	var found sync.Map
	for range 50 {
		wg.Go(func() {
			s, err := d.Session(t.Context(), "b")
			if err != nil {
				t.Error(err)
			}
			found.Store(s, true)
		})
	}
	wg.Wait()
	n := 0
	found.Range(func(any, any) bool { n++; return true })
	if n != 1 || st.loads.Load() != 1 || d.Sessions() != 1 {
		t.Errorf("%d sessions, %d loads, %d live", n, st.loads.Load(), d.Sessions())
	}
}

func TestUnknownBridgeIsNotFoundAndNotKept(t *testing.T) {
	d := open(t, store.NewMemory(1), session.Limits{})
	if _, err := d.Session(t.Context(), "b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Session = %v", err)
	}
	if d.Sessions() != 0 {
		t.Error("an entry stays for a bridge that is not there")
	}
}

func TestInterruptedActivationDoesNotFailOthers(t *testing.T) {
	st := store.NewMemory(1)
	provision(t, st, "b")
	d := open(t, st, session.Limits{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			if n%2 == 0 {
				_, _ = d.Session(gone, "b")
			} else if _, err := d.Session(t.Context(), "b"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestUnusedSessionHibernatesAndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory(1)
		provision(t, st, "b")
		d := open(t, st, session.Limits{})
		s, i, _ := offer(t, d, "b", "a")
		time.Sleep(10 * time.Minute)
		if s.Ended() {
			t.Fatal("hibernated with a provider connected")
		}
		i.Detach(time.Now())
		time.Sleep(10 * time.Minute)
		if !s.Ended() || d.Sessions() != 0 {
			t.Fatalf("not hibernated: ended %v, %d live", s.Ended(), d.Sessions())
		}
		again, err := d.Session(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		if again.Catalog().Of(session.KindTool).Find("a") == nil {
			t.Error("the tool was forgotten")
		}
		// One that is used again and again stays.
		for range 60 {
			time.Sleep(10 * time.Second)
			if now, err := d.Session(t.Context(), "b"); err != nil || now != again {
				t.Fatal("a used session was let go")
			}
		}
		d.Close()
	})
}

func TestRetentionIsKeptByTheSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory(1)
		provision(t, st, "b")
		d := open(t, st, session.Limits{Retain: time.Hour})
		s, i, _ := offer(t, d, "b", "a")
		w, err := s.Watch() // keeps the session alive
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		i.Detach(time.Now())
		time.Sleep(time.Hour - time.Minute)
		if s.Catalog().Of(session.KindTool).Find("a") == nil {
			t.Fatal("gone too early")
		}
		time.Sleep(2 * time.Minute)
		if s.Catalog().Of(session.KindTool).Find("a") != nil {
			t.Error("still listed after its retention")
		}
		d.Close()
	})
}

func TestManyBridgesShareACommit(t *testing.T) {
	st := &slow{Store: store.NewMemory(1)}
	d := open(t, st, session.Limits{})
	hold := make(chan struct{})
	st.hold.Store(&hold)
	const bridges = 50
	told := make(chan session.Registered, bridges)
	for n := range bridges {
		id := session.BridgeID(fmt.Sprint("b", n))
		provision(t, st, id)
		s, err := d.Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		i, err := s.Attach(session.Hello{Provider: "p", Retain: -1}, &deaf{make(chan error, 1)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			if err := i.Register([]session.Tool{tool(name)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := i.Register([]session.Tool{tool("c")}, func(r session.Registered) { told <- r }); err != nil {
			t.Fatal(err)
		}
	}
	close(hold)
	for range bridges {
		<-told
	}
	if st.saves.Load() > 3 {
		t.Errorf("%d commits for %d bridges, want them together", st.saves.Load(), bridges)
	}
	for n := range bridges {
		snap, err := st.Store.Load(t.Context(), session.BridgeID(fmt.Sprint("b", n)))
		if err != nil || len(snap.Registrations) != 1 || len(snap.Registrations[0].Tools) != 3 {
			t.Fatalf("b%d: %+v, %v", n, snap, err)
		}
	}
}

func TestRefusedCommitIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: store.NewMemory(1)}
		provision(t, st, "b")
		d := open(t, st, session.Limits{})
		full := errors.New("no space left on device")
		st.fail.Store(&full)
		s, err := d.Session(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		i, err := s.Attach(session.Hello{Provider: "p", Retain: -1}, &deaf{make(chan error, 1)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan session.Registered, 2)
		_ = i.Register([]session.Tool{tool("a")}, func(r session.Registered) { told <- r })
		changed := tool("a")
		changed.Definition = []byte(strings.Replace(string(changed.Definition), "{", `{"title":"T",`, 1))
		_ = i.Register([]session.Tool{changed}, nil)
		time.Sleep(time.Minute)
		if len(told) != 0 || !errors.Is(d.Err(), full) || s.Catalog().Of(session.KindTool).Find("a") != nil {
			t.Fatalf("%d told, Err %v", len(told), d.Err())
		}
		_ = i.Register([]session.Tool{tool("b")}, func(r session.Registered) { told <- r })
		st.fail.Store(nil)
		time.Sleep(time.Minute)
		if len(told) != 2 || d.Err() != nil || s.Catalog().Of(session.KindTool).Find("b") == nil {
			t.Errorf("%d told, Err %v", len(told), d.Err())
		}
		d.Close()
		snap, err := st.Store.Load(t.Context(), "b")
		if err != nil || len(snap.Pins) != 1 || snap.Pins[0].Held == nil {
			t.Errorf("saved %+v, %v", snap, err)
		}
	})
}

func TestFencedShardStopsItsSessions(t *testing.T) {
	st := store.NewMemory(1)
	provision(t, st, "b")
	provision(t, st, "c")
	d := open(t, st, session.Limits{})
	s, i, o := offer(t, d, "b", "a")
	_, _, bystander := offer(t, d, "c", "a")
	if _, err := st.Acquire(t.Context(), 0, "another process"); err != nil {
		t.Fatal(err)
	}
	told := make(chan session.Registered, 1)
	_ = i.Register([]session.Tool{tool("b")}, func(r session.Registered) { told <- r })
	if r := <-told; !errors.Is(r.Err, session.ErrFenced) {
		t.Errorf("registration: %+v", r)
	}
	if cause := <-o.closed; !errors.Is(cause, session.ErrFenced) || !s.Ended() {
		t.Errorf("provider closed for %v, ended %v", cause, s.Ended())
	}
	if cause := <-bystander.closed; !errors.Is(cause, session.ErrFenced) {
		t.Errorf("provider of an unchanged bridge closed for %v", cause)
	}
	if _, err := d.Session(t.Context(), "b"); !errors.Is(err, session.ErrFenced) {
		t.Errorf("Session = %v", err)
	}
}

func TestCloseMakesDurableWhatWasChanged(t *testing.T) {
	st := store.NewMemory(1)
	provision(t, st, "b")
	d := open(t, st, session.Limits{})
	_, i, o := offer(t, d, "b", "a")
	_ = i.Register([]session.Tool{tool("b")}, nil)
	d.Close()
	if cause := <-o.closed; !errors.Is(cause, session.ErrShutdown) {
		t.Errorf("provider closed for %v", cause)
	}
	snap, err := st.Load(t.Context(), "b")
	if err != nil || len(snap.Registrations) != 1 || len(snap.Registrations[0].Tools) != 2 {
		t.Errorf("saved %+v, %v", snap, err)
	}
	if _, err := d.Session(t.Context(), "b"); !errors.Is(err, session.ErrShutdown) {
		t.Errorf("Session after Close = %v", err)
	}
}

func TestDroppedBridgeEndsItsSession(t *testing.T) {
	st := store.NewMemory(1)
	provision(t, st, "b")
	d := open(t, st, session.Limits{})
	_, _, o := offer(t, d, "b", "a")
	if err := st.DeleteBridge(t.Context(), d.Epoch(0), "b"); err != nil {
		t.Fatal(err)
	}
	d.Drop("b")
	if cause := <-o.closed; !errors.Is(cause, session.ErrDeleted) {
		t.Errorf("provider closed for %v", cause)
	}
	if _, err := d.Session(t.Context(), "b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Session = %v", err)
	}
}

func TestBrokenSessionIsActivatedAnew(t *testing.T) {
	st := store.NewMemory(1)
	provision(t, st, "b")
	d := open(t, st, session.Limits{})
	s, i, _ := offer(t, d, "b", "a")
	_ = i.Register(nil, func(session.Registered) { panic("a fault inside a turn") })
	_, _ = s.Status() // the turn before it has run, in whosever goroutine
	if !s.Ended() {
		t.Fatal("the session goes on")
	}
	err := d.With(t.Context(), "b", func(s *session.Session) error {
		if s.Catalog().Of(session.KindTool).Find("a") == nil {
			t.Error("the tool is lost")
		}
		_, err := s.Status()
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkActivate(b *testing.B) {
	st := store.NewMemory(1)
	provision(b, st, "b")
	d, err := shard.Open(b.Context(), shard.Config{Store: st, Owner: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	_, i, _ := offer(b, d, "b", "a")
	i.Detach(time.Now())
	b.ReportAllocs()
	for b.Loop() {
		s, err := d.Session(b.Context(), "b")
		if err != nil {
			b.Fatal(err)
		}
		for !s.Release() { // until the detach is durable
		}
	}
}

func BenchmarkSession(b *testing.B) {
	st := store.NewMemory(1)
	provision(b, st, "b")
	d, err := shard.Open(b.Context(), shard.Config{Store: st, Owner: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Session(b.Context(), "b"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCloseDoesNotWaitForAnActivationThatCannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: store.NewMemory(1)}
		provision(t, st, "b")
		d := open(t, st, session.Limits{})
		s, i, _ := offer(t, d, "b", "a")
		full := errors.New("no space left on device")
		st.fail.Store(&full)
		_ = i.Register([]session.Tool{tool("b")}, nil)
		s.Stop(session.ErrBroken) // with a change that is not durable
		activated := make(chan error, 1)
		go func() { _, err := d.Session(t.Context(), "b"); activated <- err }()
		time.Sleep(time.Minute)
		closed := make(chan struct{})
		go func() { d.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(time.Hour):
			t.Error("Close waits")
			st.fail.Store(nil)
			<-closed
		}
		if err := <-activated; !errors.Is(err, session.ErrShutdown) {
			t.Errorf("Session = %v", err)
		}
	})
}

func TestPolicyOfABridgeReachesItsLiveSession(t *testing.T) {
	st := store.NewMemory(2)
	d, err := shard.Open(t.Context(), shard.Config{
		Store: st, Owner: "test", Policy: session.Policy{Definitions: session.Trust}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	b := store.Bridge{ID: "b", Version: 1, Policy: []byte(`{"names":"reject"}`)}
	if err := st.CreateBridge(t.Context(), 1, b); err != nil {
		t.Fatal(err)
	}
	if err := d.Updated(t.Context(), "b"); err != nil { // nothing is live
		t.Fatal(err)
	}
	s, err := d.Session(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	want := func(p session.Policy) {
		t.Helper()
		if st, err := s.Status(); err != nil || st.Policy != p {
			t.Errorf("policy %+v, %v; want %+v", st.Policy, err, p)
		}
	}
	want(session.Policy{Instances: "share", Names: "reject", Definitions: "trust"})
	b.Policy = []byte(`{"instances":"single","names":"nonsense"}`)
	if _, err := st.UpdateBridge(t.Context(), 1, b); err != nil {
		t.Fatal(err)
	}
	if err := d.Updated(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	want(session.Policy{Instances: "single", Names: "suffix", Definitions: "trust"})
}

func TestActivationThatPanicsIsTriedAgain(t *testing.T) {
	st := &slow{Store: store.NewMemory(1)}
	provision(t, st, "b")
	d := open(t, st, session.Limits{})
	st.panics.Store(1)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was kept from whoever asked")
			}
		}()
		_, _ = d.Session(t.Context(), "b")
	}()
	if _, err := d.Session(t.Context(), "b"); err != nil {
		t.Error(err)
	}
}
