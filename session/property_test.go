package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/session"
)

// actor drives a session with any commands in any order, and checks after each
// what must always hold.
type actor struct {
	s     *session.Session
	stats *session.Stats
	disk  *disk

	instances []*member
	calls     []*asked
	tasks     []session.TaskID // of calls that were kept
	asks      []*session.Ask
	owner     []*member      // of asks
	replies   []int          // to asks, by ask
	told      map[int]string // which call was asked, by ask
	ended     int
	watch     *session.Watch
	policy    session.Policy
	version   uint64
}

type member struct {
	i   *session.Instance
	out *outbox
}

type asked struct {
	c  *session.Call
	id string
}

func TestBegunIsAnsweredAndPending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &actor{stats: &session.Stats{}, disk: &disk{manual: true}, told: map[int]string{}}
		a.s = session.Start(session.Config{
			Bridge: "b", Saver: a.disk, Stats: a.stats,
			Limits: session.Limits{Tasks: 6, Calls: 8, Providers: 3, Instances: 2, Tools: 6, Registrations: 4, Coalesce: -1},
			Broken: func(_ session.BridgeID, reason any, stack []byte) { panic(fmt.Sprintf("%v\n%s", reason, stack)) },
		}, session.Snapshot{}, epoch)
		var err error
		if a.watch, err = a.s.Watch(); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"policy":     a.setPolicy,
			"attach":     a.attach,
			"detach":     a.detach,
			"register":   a.register,
			"unregister": a.unregister,
			"saved":      func(t *rapid.T) { a.s.Saved(rapid.Uint64Range(0, a.disk.seq).Draw(t, "seq")) },
			"begin":      a.begin,
			"write":      a.write,
			"finish":     a.finish,
			"abandon":    a.abandon,
			"forsake":    func(t *rapid.T) { a.pick(t).i.Forsake() },
			"keep":       a.keep,
			"ask":        a.ask,
			"withdraw":   a.withdraw,
			"take":       a.take,
			"cancel":     a.cancel,
			"tick": func(t *rapid.T) {
				a.s.Tick(epoch.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "minutes")) * time.Minute))
			},
			"": a.check,
		})
		a.s.Stop(session.ErrShutdown)
		a.check(t)
		for n, count := range a.replies {
			if count != 1 {
				t.Fatalf("ask %d was answered %d times", n, count)
			}
		}
		if len(a.calls) != 0 {
			t.Fatalf("%d calls outlived the session", len(a.calls))
		}
	})
}

func (a *actor) pick(t *rapid.T) *member {
	if len(a.instances) == 0 {
		t.Skip("nobody is attached")
	}
	return rapid.SampledFrom(a.instances).Draw(t, "instance")
}

func drawTools(t *rapid.T) []session.Tool {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c d", "c_d"}), 0, 3, rapid.ID[string]).Draw(t, "tools")
	var all []session.Tool
	for _, n := range names {
		all = append(all, toolWith(n, rapid.SampledFrom([]string{"", "x"}).Draw(t, "description")))
	}
	return all
}

func (a *actor) attach(t *rapid.T) {
	m := &member{out: &outbox{}}
	defer a.leave()
	name := rapid.SampledFrom([]session.ProviderID{"p", "q", "r", "s"}).Draw(t, "provider")
	retain := rapid.SampledFrom([]int{-1, 0}).Draw(t, "retain")
	key := rapid.SampledFrom([]string{"", "j", "k"}).Draw(t, "key")
	i, err := a.s.Attach(session.Hello{Provider: name, Retain: 0, Adopt: rapid.Bool().Draw(t, "adopt"), Key: key}, m.out, epoch)
	if retain < 0 && err == nil {
		i.Detach(epoch)
		i, err = a.s.Attach(session.Hello{Provider: name, Retain: -1}, m.out, epoch)
	}
	if err != nil {
		if !errors.Is(err, session.ErrBusy) && !(errors.Is(err, session.ErrTaken) && a.policy.Instances == session.Reject) {
			t.Fatal(err)
		}
		return
	}
	m.i = i
	a.instances = append(a.instances, m)
}

// leave forgets the instances that another has taken the place of.
func (a *actor) leave() {
	a.instances = slices.DeleteFunc(a.instances, func(o *member) bool {
		return errors.Is(o.out.closed, session.ErrResumed) || errors.Is(o.out.closed, session.ErrReplaced)
	})
}

func (a *actor) setPolicy(t *rapid.T) {
	a.policy.Instances = rapid.SampledFrom([]string{session.Share, session.Single, session.Reject}).Draw(t, "instances")
	a.policy.Names = rapid.SampledFrom([]string{session.Suffix, session.Reject}).Draw(t, "names")
	a.version++
	a.s.SetPolicy(a.policy, a.version)
	a.leave()
}

func (a *actor) detach(t *rapid.T) {
	m := a.pick(t)
	m.i.Detach(epoch)
	a.instances = slices.DeleteFunc(a.instances, func(o *member) bool { return o == m })
}

func (a *actor) register(t *rapid.T) {
	m := a.pick(t)
	if rapid.Bool().Draw(t, "replace") {
		_ = m.i.Replace(session.KindTool, drawTools(t), nil, nil)
	} else {
		_ = m.i.Register(drawTools(t), nil)
	}
}

func (a *actor) unregister(t *rapid.T) {
	_ = a.pick(t).i.Unregister([]string{rapid.SampledFrom([]string{"a", "b", "c d"}).Draw(t, "name")}, nil)
}

func (a *actor) begin(t *rapid.T) {
	c := &session.Call{
		Tool:      rapid.SampledFrom([]string{"a", "b", "c_d", "a-8e35", "z"}).Draw(t, "tool"),
		Asks:      rapid.Bool().Draw(t, "asks"),
		Principal: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "principal"),
	}
	if err := a.s.Begin(c); err != nil {
		t.Fatal(err)
	}
	a.calls = append(a.calls, &asked{c: c, id: string(c.AppendID(nil))})
}

func (a *actor) write(t *rapid.T) {
	m := a.pick(t)
	m.out.full = rapid.Bool().Draw(t, "full")
	m.out.write()
}

func (a *actor) finish(t *rapid.T) {
	if len(a.calls) == 0 {
		t.Skip("nothing was asked")
	}
	// Any instance may claim to answer any call.
	_ = a.pick(t).i.Finish([]byte(rapid.SampledFrom(a.calls).Draw(t, "call").id), result(`{}`))
}

func (a *actor) abandon(t *rapid.T) {
	if len(a.calls) == 0 {
		t.Skip("nothing was asked")
	}
	q := rapid.SampledFrom(a.calls).Draw(t, "call")
	a.s.Abandon(q.c, session.ErrTimeout)
	a.ended++
	a.calls = slices.DeleteFunc(a.calls, func(o *asked) bool { return o == q })
}

// durable runs f while everything is saved at once.
func (a *actor) durable(f func()) {
	a.s.Saved(a.disk.seq)
	a.disk.manual = false
	defer func() { a.disk.manual = true }()
	f()
}

func (a *actor) ask(t *rapid.T) {
	m := a.pick(t)
	n := len(a.replies)
	a.replies = append(a.replies, 0)
	ask := session.NewAsk("roots/list", nil, func(session.Reply) { a.replies[n]++ })
	a.asks = append(a.asks, ask)
	a.owner = append(a.owner, m)
	a.durable(func() { _ = m.i.Ask(ask) })
	if rapid.Bool().Draw(t, "give up") {
		m.i.GiveUp(ask)
	}
	if rapid.Bool().Draw(t, "answer") {
		ask.Answer(session.Reply{Result: json.RawMessage(`{}`)})
	}
}

func (a *actor) withdraw(t *rapid.T) {
	if len(a.asks) == 0 {
		t.Skip("nothing was asked")
	}
	n := rapid.IntRange(0, len(a.asks)-1).Draw(t, "ask")
	a.owner[n].i.Withdraw(a.asks[n])
	if a.replies[n] != 1 {
		t.Fatalf("withdrawn, ask %d was answered %d times", n, a.replies[n])
	}
}

// take reads what a call was told. No ask may be there that another call was told.
func (a *actor) take(t *rapid.T) {
	if len(a.calls) == 0 {
		t.Skip("nothing was asked")
	}
	q := rapid.SampledFrom(a.calls).Draw(t, "call")
	for _, e := range q.c.Take() {
		n := slices.Index(a.asks, e.Ask)
		if e.Kind == session.EventAsk {
			if other, ok := a.told[n]; ok {
				t.Fatalf("ask %d was put to %s, and to %s", n, other, q.id)
			}
			a.told[n] = q.id
		} else if a.told[n] != q.id || a.replies[n] != 1 {
			t.Fatalf("%s was told of the end of ask %d", q.id, n)
		}
	}
}

func (a *actor) keep(t *rapid.T) {
	if len(a.calls) == 0 {
		t.Skip("nothing was asked")
	}
	q := rapid.SampledFrom(a.calls).Draw(t, "call")
	a.durable(func() {
		k, err := a.s.Keep(t.Context(), q.c, session.TaskTerms{Principal: "x", Now: epoch, Timeout: time.Hour, Life: 2 * time.Hour})
		switch {
		case err == nil:
			a.tasks = append(a.tasks, k.ID)
			a.calls = slices.DeleteFunc(a.calls, func(o *asked) bool { return o == q })
		case !errors.Is(err, session.ErrEnded) && !errors.Is(err, session.ErrBusy):
			t.Fatal(err)
		}
	})
}

func (a *actor) cancel(t *rapid.T) {
	if len(a.tasks) == 0 {
		t.Skip("there is no task")
	}
	id := rapid.SampledFrom(a.tasks).Draw(t, "task")
	a.durable(func() {
		if k, err := a.s.CancelTask(t.Context(), id, "x"); err == nil && !k.Final() {
			t.Fatalf("cancelled, the task is %+v", k)
		}
	})
}

// working is how many tasks have a call in flight.
func (a *actor) working(t *rapid.T) (n int) {
	if a.s.Ended() {
		return 0
	}
	a.durable(func() {
		for _, id := range a.tasks {
			k, err := a.s.Task(t.Context(), id, "x")
			if err == nil && (k.CallID != "" || k.Status == session.TaskWorking) {
				n++
			} else if err != nil && !errors.Is(err, session.ErrUnknownTask) {
				t.Fatal(err)
			}
		}
	})
	return n
}

// check holds what is true at any time.
func (a *actor) check(t *rapid.T) {
	a.calls = slices.DeleteFunc(a.calls, func(q *asked) bool {
		select {
		case <-q.c.Done():
			a.ended++
			return true
		default:
			return false
		}
	})
	var ended uint64
	for r := range a.stats.Ended {
		ended += a.stats.Ended[r].Load()
	}
	working := a.working(t)
	if begun := a.stats.Begun.Load(); begun != ended+uint64(len(a.calls)+working) || ended != uint64(a.ended+len(a.tasks)-working) {
		t.Fatalf("%d begun, %d ended (%d told, %d of tasks), %d pending and %d tasks working",
			begun, ended, a.ended, len(a.tasks)-working, len(a.calls), working)
	}
	c := a.s.Catalog().Of(session.KindTool)
	var names []string
	for i, o := range c.Offers {
		names = append(names, o.Tool.Exposed)
		if c.Find(o.Tool.Exposed) != o || len(c.JSON(i, i+1)) == 0 {
			t.Fatalf("offer %q is not found", o.Tool.Exposed)
		}
	}
	if !sort.StringsAreSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Fatalf("the catalog is not a sorted set: %q", names)
	}
	if a.s.Ended() {
		return
	}
	st, err := a.s.Status()
	if err != nil {
		t.Fatal(err)
	}
	live := 0
	for _, p := range st.Providers {
		live += p.Instances
		if p.Instances == 0 && len(p.Tools) == 0 {
			t.Fatalf("provider %s is known for nothing", p.ID)
		}
	}
	if st.Calls != len(a.calls)+working || live != len(a.instances) {
		t.Fatalf("the session has %d calls and %d instances, want %d and %d", st.Calls, live, len(a.calls)+working, len(a.instances))
	}
}

// TestRestartShowsWhatWasDurable: a session that starts from what was saved lists
// what the last one listed.
func TestRestartShowsWhatWasDurable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &actor{stats: &session.Stats{}, disk: &disk{}}
		a.s = session.Start(session.Config{Bridge: "b", Saver: a.disk, Stats: a.stats}, session.Snapshot{}, epoch)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch {
			case len(a.instances) == 0 || rapid.IntRange(0, 4).Draw(t, "what") == 0:
				i, err := a.s.Attach(session.Hello{Provider: rapid.SampledFrom([]session.ProviderID{"p", "q"}).Draw(t, "provider"), Retain: -1}, &outbox{}, epoch)
				if err == nil {
					a.instances = append(a.instances, &member{i: i, out: &outbox{}})
				}
			case rapid.IntRange(0, 3).Draw(t, "what") == 0:
				a.detach(t)
			default:
				a.register(t)
			}
		}
		next := session.Start(session.Config{Bridge: "b", Saver: &disk{}}, a.disk.snapshot(), epoch)
		old, fresh := a.s.Catalog().Of(session.KindTool), next.Catalog().Of(session.KindTool)
		if got, want := string(fresh.JSON(0, len(fresh.Offers))), string(old.JSON(0, len(old.Offers))); got != want {
			t.Fatalf("listed %s, want %s", got, want)
		}
		if next.Catalog().Revision != a.s.Catalog().Revision {
			t.Fatalf("revision %d, want %d", next.Catalog().Revision, a.s.Catalog().Revision)
		}
	})
}

func BenchmarkCall(b *testing.B) {
	s := start(b, &disk{}, session.Limits{})
	i, out := attach(b, s, "p")
	register(b, i, tool("a"))
	var id []byte
	b.ReportAllocs()
	for b.Loop() {
		c := &session.Call{Tool: "a"}
		if err := s.Begin(c); err != nil {
			b.Fatal(err)
		}
		d := out.calls[0]
		out.calls = out.calls[:0]
		d.Claim()
		d.Written()
		id = c.AppendID(id[:0])
		if err := i.Finish(id, session.Result{}); err != nil {
			b.Fatal(err)
		}
		<-c.Done()
	}
}

func BenchmarkRegister(b *testing.B) {
	s := start(b, &disk{}, session.Limits{})
	s.SetPolicy(session.Policy{Definitions: session.Trust}, 1)
	i, _ := attach(b, s, "p")
	var sets [2][]session.Tool
	for n := range 100 {
		for k := range sets {
			sets[k] = append(sets[k], toolWith(fmt.Sprint("tool", n), fmt.Sprint(k)))
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if err := i.Register(sets[n%2], nil); err != nil {
			b.Fatal(err)
		}
	}
}
