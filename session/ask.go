package session

import (
	"encoding/json"
	"errors"
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

// Answer gives the reply, unless there is one.
func (a *Ask) Answer(r Reply) {
	if !a.answered.Swap(true) {
		a.reply(r)
	}
}

// Answered tells whether there is a reply already.
func (a *Ask) Answered() bool { return a.answered.Load() }

// request is the object of method and params.
func (a *Ask) request() json.RawMessage {
	method, _ := json.Marshal(a.Method) // a string always encodes
	b := append([]byte(`{"method":`), method...)
	if a.Params != nil {
		b = append(append(b, `,"params":`...), a.Params...)
	}
	return append(b, '}')
}

// fail answers for the bridge.
func (a *Ask) fail(cause error) { a.Answer(Reply{Cause: cause}) }

// Causes of asks that reach no client.
var (
	// ErrNobodyToAsk: no call that the request could belong to is in flight, or its client takes none.
	ErrNobodyToAsk = errors.New("there is no client to ask")
	// ErrWhoseAsk: several calls were in flight, and the request does not say for which of them it is.
	ErrWhoseAsk = errors.New("several calls are in flight, and the request does not say for which it asks")
	// ErrAskOver: the call has ended.
	ErrAskOver = errors.New("the call that the request belongs to has ended")
)

// maxAsks bounds the asks of one instance that wait to be known whose they are.
const maxAsks = 16

// openAsk is an ask that may belong to any of several calls.
type openAsk struct {
	ask        *Ask
	candidates []uint64 // IDs of calls in flight
}

// Ask hands a request on to the client of a call of this instance. MCP does not say to
// which call it belongs, and another's client must never be asked: it can only be one
// that the provider had been given, so with several it waits until all but one of them
// have ended.
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

type hand struct {
	inst *Instance
	ask  *Ask
}

type giveUp hand

func (h *hand) apply(s *state) {
	if s.stopped {
		h.ask.fail(s.cause)
		return
	}
	var candidates []uint64
	for _, c := range s.callsOf(h.inst) {
		if state := c.delivery.Load() & 3; state == writing || state == written {
			candidates = append(candidates, c.id)
		}
	}
	switch {
	case len(candidates) == 0:
		h.ask.fail(ErrNobodyToAsk)
	case len(candidates) == 1:
		s.put(s.calls[candidates[0]], h.ask)
	case len(h.inst.asks) >= maxAsks:
		h.ask.fail(&LimitError{Limit: "requests of a connection that nobody knows the call of", Max: maxAsks})
	default:
		h.inst.asks = append(h.inst.asks, openAsk{h.ask, candidates})
	}
}

func (g *giveUp) apply(*state) {
	g.inst.asks = slices.DeleteFunc(g.inst.asks, func(o openAsk) bool {
		if o.ask == g.ask {
			o.ask.fail(ErrWhoseAsk)
		}
		return o.ask == g.ask
	})
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
	c.asks = append(c.asks, a)
	switch {
	case c.task != nil:
		if err := c.task.put(a); err != nil {
			a.fail(err)
			return
		}
		c.task.Updated = s.s.cfg.Clock()
		s.putTask(c.task)
	case !c.Asks:
		a.fail(ErrNobodyToAsk)
	case !c.push(Event{Kind: EventAsk, Ask: a}, s.limits.EventBytes):
		a.fail(&LimitError{Limit: "progress, log and requests waiting for one call's client", Max: s.limits.EventBytes, Unit: "bytes"})
	}
}

// unasked ends what a call that has ended still asks, and finds out whose the others
// of its instance are.
func (s *state) unasked(c *Call) {
	for _, a := range c.asks {
		a.fail(ErrAskOver)
	}
	c.asks = nil
	if c.inst == nil || len(c.inst.asks) == 0 {
		return
	}
	var found []openAsk
	c.inst.asks = slices.DeleteFunc(c.inst.asks, func(o openAsk) bool {
		at := slices.Index(o.candidates, c.id)
		if at < 0 {
			return false
		}
		o.candidates = slices.Delete(o.candidates, at, at+1)
		if len(o.candidates) > 1 {
			return false
		}
		found = append(found, o)
		return true
	})
	for _, o := range found {
		if c := s.calls[o.candidates[0]]; c != nil {
			s.put(c, o.ask)
		} else {
			o.ask.fail(ErrAskOver)
		}
	}
}
