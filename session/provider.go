package session

import "time"

// Outbox is where a Session puts what an Instance is to be told. Its methods are
// called inside turns: they must not block, and must not call the Session.
type Outbox interface {
	// Deliver queues a call, if there is room; size is what it will cost the outbox, in
	// bytes.
	Deliver(d Delivery, size int) Room
	// Cancel queues the notice that a delivered call is no longer wanted. An
	// outbox without room for it closes the connection as too slow.
	Cancel(c *Call, reason Reason)
	// Close ends the connection for that cause, after what was queued. The
	// owner of the connection then calls Detach.
	Close(cause error)
}

// Room is what an Outbox has for a call.
type Room uint8

// Rooms.
const (
	HasRoom Room = iota // the call is queued
	NoRoom              // not now
	Ending              // never: the connection is being closed, and will be detached
)

// Hello is how a connection introduces itself.
type Hello struct {
	Provider ProviderID
	Title    string
	Version  string
	About    About
	// Retain is how long a tool stays listed after the last instance that offered
	// it left. Negative means the default.
	Retain time.Duration
	// Adopt makes the instance answer for every tool that the provider is known
	// for, without registering them: it is a connection that cannot, or need not.
	Adopt bool
	// Key is a secret of the instance, by which a later connection resumes it: it
	// takes over the calls that the earlier one was given and has not answered. Empty
	// for what cannot resume.
	Key string
}

// Instance is one live connection of a Provider, attached to a Session. Its
// methods may be called at once.
type Instance struct {
	s      *Session
	outbox Outbox
	hello  Hello
	subs   map[string]int // fixed once it is attached

	// Owned by the turn.
	provider  *provider
	tools     map[named]bool // what this instance registered; true for another definition than the listed one
	calls     int            // asked of it and not ended
	waiting   int            // registrations not yet durable
	asks      []openAsk      // oldest first
	abandoned abandoned
	attached  time.Time
	leftAt    time.Time // zero while it is connected
	final     bool      // it may not come back
}

// Session is the session that the instance is attached to.
func (i *Instance) Session() *Session { return i.s }

// Provider is whose instance it is.
func (i *Instance) Provider() ProviderID { return i.hello.Provider }

// Subscriptions are those of clients to the provider's resources, by its own URIs, that
// earlier instances had taken when this one was attached: how many of each. The caller
// must not change them.
func (i *Instance) Subscriptions() map[string]int { return i.subs }

// Exposure tells a provider under which name a tool is shown.
type Exposure struct {
	Name    string // the provider's own
	Exposed string // what clients see
}

// Rejection tells a provider why a tool was not taken.
type Rejection struct {
	Name string
	Err  error
}

// Registered is the answer to a registration, given once it is durable.
type Registered struct {
	Revision uint64 // of the catalog that has it
	Tools    []Exposure
	Rejected []Rejection
	Held     []Held // those that clients are listed in an earlier definition are in Tools too
	Err      error  // nothing was taken: a limit, or the session ended before the commit
}

// Register adds tools to the provider's, replacing those of the same name and
// keeping those of its tools that it registered before. Names in tools are
// distinct. ack is called once, inside a turn, after the registration is durable,
// or with Err; it must not block, and may be nil.
func (i *Instance) Register(tools []Tool, ack func(Registered)) error {
	return i.s.do(&register{inst: i, tools: tools, ack: ack})
}

// Replace makes tools the whole set that the provider offers of a kind, except that
// one named in keep, which the edge refused, stays as it was. ack as for Register.
func (i *Instance) Replace(kind Kind, tools []Tool, keep []string, ack func(Registered)) error {
	return i.s.do(&register{inst: i, kind: kind, tools: tools, keep: keep, replace: true, ack: ack})
}

// Unregister takes tools back by their own names; unknown ones, and those of
// other providers, are left alone. A tool that another live instance of the
// provider registered stays. ack as for Register, may be nil.
func (i *Instance) Unregister(names []string, ack func(Registered)) error {
	return i.s.do(&unregister{inst: i, kind: KindTool, names: names, ack: ack})
}

// Finish answers a call by its ID text. An answer to a call that was not asked
// of this instance, or has ended, is counted and dropped.
func (i *Instance) Finish(id []byte, r Result) error {
	return i.s.finish(i, id, r, nil)
}

// Fail answers a call with a JSON-RPC error of the provider, or with
// [ErrBadResult].
func (i *Instance) Fail(id []byte, err error) error {
	return i.s.finish(i, id, Result{}, err)
}

// Notify passes an event on to the call's caller. Progress that does not grow is
// dropped (MCP 2025-11-25 basic/utilities/progress: it MUST increase).
func (i *Instance) Notify(id []byte, e Event) error {
	prefix, n, ok := i.s.parseID(id)
	if !ok {
		i.s.cfg.Stats.Strays.Add(1)
		return nil
	}
	return i.s.do(&notify{inst: i, prefix: prefix, id: n, event: e})
}

// NotifyOnly passes an event on to the caller of the single call that is asked of the
// instance. With none or several of them, nobody can tell whose it is: it is dropped.
func (i *Instance) NotifyOnly(e Event) error { return i.s.do(&notify{inst: i, event: e}) }

// Updated tells the bridge's streams that a resource of the provider, by its own
// URI, has changed.
func (i *Instance) Updated(uri string) error { return i.s.do(&updated{i, uri}) }

// Detach tells that the connection is gone. It is called once. Calls that it was given
// wait for a connection that resumes it, where its Hello had a Key.
func (i *Instance) Detach(now time.Time) {
	_ = i.s.do(&detach{inst: i, now: now}) // a session that has ended knows
}

// Forsake tells that nobody has resumed the instance in the time that there is for it
// ([Limits.ResumeGrace] after Detach): its calls end, but for tasks. One that was
// resumed is left alone.
func (i *Instance) Forsake() { _ = i.s.do(&forsake{i}) }
