package session_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// disk is a saver that keeps what it is given, and confirms it at once or when
// told.
type disk struct {
	manual bool

	mu      sync.Mutex
	seq     uint64
	rev     uint64
	records map[session.ProviderID]session.Registration
	tasks   map[session.TaskID]session.Task
	pins    map[session.PinKey]session.Pinned
	saves   int
}

func (d *disk) Save(s *session.Session, seq uint64, c session.Change) {
	d.mu.Lock()
	if d.records == nil {
		d.records = map[session.ProviderID]session.Registration{}
		d.tasks = map[session.TaskID]session.Task{}
	}
	if d.pins == nil {
		d.pins = map[session.PinKey]session.Pinned{}
	}
	for _, k := range c.DropPins {
		delete(d.pins, k)
	}
	for _, p := range c.PutPins {
		d.pins[p.PinKey] = p
	}
	for _, t := range c.PutTasks {
		d.tasks[t.ID] = t
	}
	for _, id := range c.DropTasks {
		delete(d.tasks, id)
	}
	for _, r := range c.Put {
		d.records[r.Provider] = r
	}
	for _, p := range c.Delete {
		delete(d.records, p)
	}
	d.seq, d.rev = seq, c.Revision
	d.saves++
	d.mu.Unlock()
	if !d.manual {
		s.Saved(seq)
	}
}

func (d *disk) snapshot() session.Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	snap := session.Snapshot{Revision: d.rev}
	for _, r := range d.records {
		snap.Registrations = append(snap.Registrations, r)
	}
	for _, t := range d.tasks {
		snap.Tasks = append(snap.Tasks, t)
	}
	for _, p := range d.pins {
		snap.Pins = append(snap.Pins, p)
	}
	return snap
}

// outbox is a provider's connection that keeps what it is given.
type outbox struct {
	mu     sync.Mutex
	full   bool
	ending bool
	calls  []session.Delivery
	cancel []*session.Call
	closed error
}

func (o *outbox) Deliver(d session.Delivery, _ int) session.Room {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ending:
		return session.Ending
	case o.full:
		return session.NoRoom
	}
	o.calls = append(o.calls, d)
	return session.HasRoom
}

// end makes the connection one that is being closed.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
}

func (o *outbox) Cancel(c *session.Call, _ session.Reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancel = append(o.cancel, c)
}

func (o *outbox) Close(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = cause
}

// write hands every queued call to the socket and returns their IDs.
func (o *outbox) write() (ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.calls {
		if d.Claim() {
			d.Written()
			ids = append(ids, string(d.Call.AppendID(nil)))
		}
	}
	o.calls = nil
	return ids
}

func start(t testing.TB, saver session.Saver, limits session.Limits) *session.Session {
	t.Helper()
	if limits.Coalesce == 0 {
		limits.Coalesce = -1 // most tests want to be told at once
	}
	return session.Start(session.Config{Bridge: "b", Limits: limits, Saver: saver}, session.Snapshot{}, epoch)
}

func attach(t testing.TB, s *session.Session, name session.ProviderID) (*session.Instance, *outbox) {
	t.Helper()
	return attachAs(t, s, session.Hello{Provider: name, Retain: -1})
}

// resumable attaches an instance that can be resumed, or resumes it.
func resumable(t testing.TB, s *session.Session, name session.ProviderID, key string) (*session.Instance, *outbox) {
	t.Helper()
	return attachAs(t, s, session.Hello{Provider: name, Retain: -1, Adopt: true, Key: key})
}

func attachAs(t testing.TB, s *session.Session, h session.Hello) (*session.Instance, *outbox) {
	t.Helper()
	o := &outbox{}
	i, err := s.Attach(h, o, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return i, o
}

func tool(name string) session.Tool { return toolWith(name, "") }

func toolWith(name, description string) session.Tool {
	head := `{"name":`
	quoted := fmt.Sprintf("%q", name)
	return session.Tool{
		Name: name, NameAt: len(head), NameEnd: len(head) + len(quoted),
		Definition: []byte(head + quoted + `,"description":"` + description + `"}`),
	}
}

func tools(names ...string) (all []session.Tool) {
	for _, n := range names {
		all = append(all, tool(n))
	}
	return all
}

// register registers and returns the answer, which must have come by then.
func register(t testing.TB, i *session.Instance, all ...session.Tool) session.Registered {
	t.Helper()
	var got *session.Registered
	if err := i.Register(all, func(r session.Registered) { got = &r }); err != nil {
		t.Fatal(err)
	}
	if got == nil {
		t.Fatal("the registration was not answered")
	}
	return *got
}

func listed(s *session.Session) string {
	var names []string
	for _, o := range s.Catalog().Of(session.KindTool).Offers {
		names = append(names, o.Tool.Exposed)
	}
	return strings.Join(names, " ")
}

func begin(t testing.TB, s *session.Session, name string) *session.Call {
	t.Helper()
	c := &session.Call{Tool: name, Events: true}
	if err := s.Begin(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// outcome is the call's outcome, which must have come.
func outcome(t testing.TB, c *session.Call) session.Outcome {
	t.Helper()
	select {
	case o := <-c.Done():
		return o
	default:
		t.Fatal("the call has not ended")
		return session.Outcome{}
	}
}

func pending(t testing.TB, c *session.Call) {
	t.Helper()
	select {
	case o := <-c.Done():
		t.Fatalf("the call has ended: %+v", o)
	default:
	}
}
