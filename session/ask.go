package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Ask is a request of a provider's to the client of a call: elicitation, sampling or
// roots, as MCP servers up to 2025-11-25 make them. It is answered once; later answers
// are dropped.
type Ask struct {
	Method string
	Params json.RawMessage // an object, or nil; nobody else writes to it

	reply    func(Reply)
	answered atomic.Bool
	call     *Call // whose client was handed it; owned by the turn
}

// Reply is what an Ask got.
type Reply struct {
	Result json.RawMessage // the client's; nil when there is none
	Error  json.RawMessage // the client's own JSON-RPC error, an object; nil when there is none
	Cause  error           // why no client was asked, or none answered; nil when one did
}

// NewAsk makes an Ask. reply is called once, from any goroutine, also inside turns: it
// must not block.
func NewAsk(method string, params json.RawMessage, reply func(Reply)) *Ask {
	return &Ask{Method: method, Params: params, reply: reply}
}

// Answer gives the reply, unless there is one. It tells whether it did.
func (a *Ask) Answer(r Reply) bool {
	first := !a.answered.Swap(true)
	if first {
		a.reply(r)
	}
	return first
}

// Answered tells whether there is a reply already.
func (a *Ask) Answered() bool { return a.answered.Load() }

// Request is the object of method and params. Some clients take none without params.
func (a *Ask) Request() json.RawMessage {
	method, _ := json.Marshal(a.Method) // a string always encodes
	params := a.Params
	if params == nil {
		params = json.RawMessage(`{}`)
	}
	return slices.Concat(json.RawMessage(`{"method":`), method, json.RawMessage(`,"params":`), params, json.RawMessage(`}`))
}

// fail answers for the bridge.
func (a *Ask) fail(cause error) bool { return a.Answer(Reply{Cause: cause}) }

// Causes of asks that reach no client.
var (
	// ErrNobodyToAsk: no call that the request could belong to is in flight, or its client takes none.
	ErrNobodyToAsk = errors.New("there is no client to ask")
	// ErrNoCallToAsk is the ErrNobodyToAsk of a request with no call in flight: later there may be one.
	ErrNoCallToAsk = fmt.Errorf("%w: no call is in flight", ErrNobodyToAsk)
	// ErrWhoseAsk: several calls were in flight, and the request does not say for which of them it is.
	ErrWhoseAsk = errors.New("several calls are in flight, and the request does not say for which it asks")
	// ErrAskOver: the call has ended, or the provider wants no answer any more.
	ErrAskOver = errors.New("the call that the request belongs to has ended")
)

// maxAsks bounds the asks of one instance that wait to be known whose they are.
const maxAsks = 16

// openAsk is an ask that may belong to any of several calls.
type openAsk struct {
	ask        *Ask
	candidates []uint64 // IDs of calls that the provider has not answered
}

// maxAbandoned bounds the abandoned calls of one instance that are known one by one.
const maxAbandoned = 64

// abandoned are the calls of an instance that ended without its answer. It need not
// have heeded that, and may still ask.
type abandoned struct {
	calls []abandonedCall // oldest first
	// forgotten are the principals of calls that were too many to keep. Two are
	// enough: then any principal has a stranger among them.
	forgotten []string
}

type abandonedCall struct {
	id        uint64
	principal string
}

func (b *abandoned) add(c *Call) {
	if len(b.calls) == maxAbandoned {
		if p := b.calls[0].principal; len(b.forgotten) < 2 && !slices.Contains(b.forgotten, p) {
			b.forgotten = append(b.forgotten, p)
		}
		b.calls = slices.Delete(b.calls, 0, 1)
	}
	b.calls = append(b.calls, abandonedCall{c.id, c.Principal})
}

// answered drops a call that has been answered after all. False when it is none of
// them.
func (b *abandoned) answered(id uint64) bool {
	at := slices.IndexFunc(b.calls, func(c abandonedCall) bool { return c.id == id })
	if at >= 0 {
		b.calls = slices.Delete(b.calls, at, at+1)
	}
	return at >= 0
}

// strange are those of them that are not the principal's own.
func (b *abandoned) strange(principal string) (list []uint64) {
	for _, c := range b.calls {
		if c.principal != principal {
			list = append(list, c.id)
		}
	}
	return list
}

// lost tells whether one that is not the principal's own has been forgotten.
func (b *abandoned) lost(principal string) bool {
	return slices.ContainsFunc(b.forgotten, func(p string) bool { return p != principal })
}

// Ask hands a request on to the client of a call of this instance. MCP does not say to
// which call it belongs, and another's client must never be asked: it can only be one
// that the provider had been given, so with several it waits until the provider has
// answered all but one of them. A call that the bridge gave up counts as well, for its
// provider may still be at work on it, unless the same principal made the other.
func (i *Instance) Ask(a *Ask) error {
	err := i.s.do(&hand{i, a})
	if err != nil {
		a.fail(err)
	}
	return err
}

// GiveUp ends the wait of an ask of which nobody knows yet whose it is. Any other is
// left alone.
func (i *Instance) GiveUp(a *Ask) { _ = i.s.do(&giveUp{i, a}) }

// Withdraw ends an ask whose provider wants no answer any more: one that waits, and one
// that a client was handed, which is told by EventAskOver. One that has a reply is left
// alone.
func (i *Instance) Withdraw(a *Ask) {
	if i.s.do(&withdraw{i, a}) != nil {
		a.fail(ErrAskOver)
	}
}

type hand struct {
	inst *Instance
	ask  *Ask
}

type (
	giveUp   hand
	withdraw hand
)

func (h *hand) apply(s *state) {
	if s.stopped {
		h.ask.fail(s.cause)
		return
	}
	i := h.inst
	var live, strange []uint64
	for _, c := range s.callsOf(i) {
		if c.handed() {
			live = append(live, c.id)
			strange = append(strange, i.abandoned.strange(c.Principal)...)
		}
	}
	if len(live) == 0 {
		h.ask.fail(ErrNoCallToAsk)
		return
	}
	slices.Sort(strange)
	o := openAsk{h.ask, append(live, slices.Compact(strange)...)}
	switch {
	case s.found(i, o):
	case len(i.asks) >= maxAsks:
		h.ask.fail(&LimitError{Limit: "requests of a connection that nobody knows the call of", Max: maxAsks})
	default:
		i.asks = append(i.asks, o)
	}
}

// found deals with an ask of which it is known by now whose it is. False when it is not.
func (s *state) found(i *Instance, o openAsk) bool {
	var only *Call
	for _, id := range o.candidates {
		if c := s.calls[id]; c != nil {
			only = c
		}
	}
	switch {
	case only == nil: // whoever's it is, nobody waits
		o.ask.fail(ErrAskOver)
	case len(o.candidates) > 1 || i.abandoned.lost(only.Principal):
		return false
	default:
		s.put(only, o.ask)
	}
	return true
}

func (g *giveUp) apply(*state) { g.inst.take(g.ask, ErrWhoseAsk) }

func (w *withdraw) apply(s *state) {
	a := w.ask
	if w.inst.take(a, ErrAskOver) || !a.fail(ErrAskOver) || a.call == nil {
		return
	}
	switch c := a.call; {
	case s.calls[c.id] != c:
	case c.task != nil:
		s.unaskTask(c.task, a)
	case c.Asks:
		c.push(Event{Kind: EventAskOver, Ask: a}, s.limits.EventBytes) // a client that is not told will be by the call's end
	}
}

// take ends an ask that waits to be known whose it is. False when it does not.
func (i *Instance) take(a *Ask, cause error) bool {
	at := slices.IndexFunc(i.asks, func(o openAsk) bool { return o.ask == a })
	if at < 0 {
		return false
	}
	i.asks = slices.Delete(i.asks, at, at+1)
	a.fail(cause)
	return true
}

// silence ends what an instance that has gone still asks: nobody could be answered.
func (i *Instance) silence() {
	for _, o := range i.asks {
		o.ask.fail(ErrAskOver)
	}
	i.asks = nil
}

// put asks the client of a call.
func (s *state) put(c *Call, a *Ask) {
	c.asks = append(slices.DeleteFunc(c.asks, (*Ask).Answered), a)
	a.call = c
	switch {
	case c.task != nil:
		if err := s.askTaskFor(c.task, a); err != nil {
			a.fail(err)
		}
	case !c.Asks:
		a.fail(ErrNobodyToAsk)
	case !c.push(Event{Kind: EventAsk, Ask: a}, s.limits.EventBytes):
		a.fail(&LimitError{Limit: "progress, log and requests waiting for one call's client", Max: s.limits.EventBytes, Unit: "bytes"})
	}
}

// unasked ends what a call that has ended still asks, and finds out whose the others
// of its instance are.
func (s *state) unasked(c *Call, answered bool) {
	for _, a := range c.asks {
		a.fail(ErrAskOver)
	}
	c.asks = nil
	if c.inst == nil {
		return
	}
	if !answered && c.handed() {
		c.inst.abandoned.add(c)
		s.sortAsks(c.inst, 0)
	} else {
		s.sortAsks(c.inst, c.id)
	}
}

// late takes note of an answer to a call that had ended without it.
func (s *state) late(i *Instance, id uint64) {
	if i.abandoned.answered(id) {
		s.sortAsks(i, id)
	}
}

// sortAsks finds out whose the asks of an instance are that wait, once a call has been
// answered (0 for none: one has been given up).
func (s *state) sortAsks(i *Instance, answered uint64) {
	open := i.asks
	i.asks = nil
	for _, o := range open {
		o.candidates = slices.DeleteFunc(o.candidates, func(id uint64) bool { return id == answered })
		if !s.found(i, o) {
			i.asks = append(i.asks, o)
		}
	}
}
