package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// state is the actor's own data. Only turns touch it. It waits for nothing, and reads
// a clock only to date the records of tasks and pins.
type state struct {
	s       *Session
	limits  Limits
	stats   *Stats
	stopped bool
	cause   error // why stopped

	policy        Policy
	policyVersion uint64

	calls   map[uint64]*Call
	absent  map[absentKey]*Instance // that have left with calls in flight
	watches map[*Watch]struct{}
	tasks   tasks
	registry
	ledger
	herald
}

// end is a call's only exit.
func (s *state) end(c *Call, o Outcome) {
	if s.calls[c.id] == c {
		delete(s.calls, c.id)
		s.dismiss(c.inst)
	}
	s.stats.Ended[o.Reason].Add(1)
	if c.Method != "" && c.inst != nil {
		c.inst.provider.subscribed(c, o.Err == nil)
	}
	if answered := o.Reason <= ReasonProtocolError; !answered || len(c.asks) > 0 || c.inst != nil && len(c.inst.asks) > 0 {
		s.unasked(c, answered)
	}
	if c.task != nil {
		s.settle(c.task, o)
		return
	}
	select {
	case c.reply <- o:
	default:
		panic("session: call ended twice")
	}
}

func (b *begin) apply(s *state) {
	c := (*Call)(b)
	if s.stopped {
		c.reply <- Outcome{Err: ErrStopped, Reason: ReasonShutDown} // never taken, so never counted
		return
	}
	s.stats.Begun.Add(1)
	l := s.names[named{c.Kind, c.Tool}]
	if l == nil {
		s.end(c, Outcome{Err: ErrUnknownTool, Reason: ReasonUnknownTool})
		return
	}
	if len(s.calls) >= s.limits.Calls {
		s.end(c, Outcome{Err: &LimitError{Limit: "calls in flight on a bridge", Max: s.limits.Calls}, Reason: ReasonBusy})
		return
	}
	c.tool = &l.offer.Tool
	s.route(c, l)
}

// route gives a call to the newest instance that registered its tool, as it is listed if
// there is one, or ends it.
func (s *state) route(c *Call, l *listed) {
	size, key := c.size(), c.tool.key()
	full, held := false, false
	for _, other := range [...]bool{false, true} {
		for _, i := range slices.Backward(l.provider.instances) {
			if o, ok := i.tools[key]; !ok || o != other {
				continue
			}
			if other && l.pin != nil && l.pin.blocks {
				held = true
				continue
			}
			switch i.outbox.Deliver(c.next(), size) {
			case HasRoom:
				c.inst = i
				i.calls++
				s.calls[c.id] = c
				if c.task != nil {
					s.given(c, c.task)
				}
				return
			case NoRoom:
				full = true
			case Ending: // it is as good as gone
			}
		}
	}
	if full {
		s.end(c, Outcome{Err: s.fullError(), Reason: ReasonBusy})
		return
	}
	if held {
		s.end(c, Outcome{Err: ErrHeld, Reason: ReasonHeld})
		return
	}
	s.park(c, l.provider)
}

func (s *state) fullError() error {
	return &LimitError{Limit: "calls waiting to be written to the provider", Max: s.limits.OutboxBytes, Unit: "bytes"}
}

func (f *finish) apply(s *state) {
	c := s.calls[f.id]
	if c == nil || c.inst != f.inst || c.prefix != f.prefix {
		s.stats.Strays.Add(1)
		f.result.Release()
		s.late(f.inst, f.id)
		return
	}
	switch {
	case f.err != nil:
		s.end(c, Outcome{Err: f.err, Reason: ReasonProtocolError})
	case f.result.IsError:
		s.end(c, Outcome{Result: f.result, Reason: ReasonToolError})
	default:
		s.end(c, Outcome{Result: f.result, Reason: ReasonResult})
	}
}

func (n *notify) apply(s *state) {
	c := s.calls[n.id]
	if n.id == 0 {
		if c = s.only(n.inst); c == nil {
			return
		}
	}
	if c == nil || c.inst != n.inst || n.id != 0 && c.prefix != n.prefix {
		s.stats.Strays.Add(1)
		return
	}
	if c.task != nil {
		c.task.progress(n.event)
		return
	}
	if !c.Events {
		return
	}
	if n.event.Kind == EventProgress {
		if c.moving && n.event.Progress <= c.progress {
			return
		}
		c.moving, c.progress = true, n.event.Progress
	}
	if !c.push(n.event, s.limits.EventBytes) {
		s.stats.Dropped.Add(1)
	}
}

// only is the single call that an instance can mean, or nil.
func (s *state) only(i *Instance) *Call {
	if i.calls != 1 {
		return nil
	}
	for _, c := range s.calls {
		if c.inst == i && len(i.abandoned.strange(c.Principal)) == 0 && !i.abandoned.lost(c.Principal) {
			return c
		}
	}
	return nil
}

func (a *abandon) apply(s *state) {
	c := a.call
	if s.calls[c.id] != c {
		return // it has ended: the outcome is there
	}
	o := Outcome{Err: a.cause, Reason: reasonOf(a.cause)}
	switch {
	case c.parked() && o.Reason == ReasonTimeout:
		o = s.unanswered(c)
	case c.withdraw() || c.withdrawn():
		o.Err = fmt.Errorf("%w; it was never delivered", a.cause)
	default:
		if o.Reason == ReasonTimeout {
			o.Err = fmt.Errorf("%w; its outcome is unknown", a.cause)
		}
		if c.inst.leftAt.IsZero() { // otherwise nobody could be told
			c.inst.outbox.Cancel(c, o.Reason)
		}
	}
	s.end(c, o)
}

// reasonOf is the reason of a call that the bridge itself ends.
func reasonOf(cause error) Reason {
	switch {
	case errors.Is(cause, ErrTimeout):
		return ReasonTimeout
	case errors.Is(cause, ErrCancelled):
		return ReasonCancelled
	case errors.Is(cause, ErrFenced):
		return ReasonFenced
	default:
		return ReasonShutDown
	}
}

func (u *updated) apply(s *state) {
	if s.stopped || u.inst.provider == nil {
		return
	}
	uri := u.uri // one that matches a template is exposed as it is
	if l := u.inst.provider.tools[named{KindResource, u.uri}]; l != nil {
		uri = l.offer.Tool.Exposed
	}
	for w := range s.watches {
		w.tell(0, uri)
	}
}

func (w *watch) apply(s *state) {
	switch {
	case s.stopped:
		w.reply <- ErrStopped
	case len(s.watches) >= s.limits.Streams:
		w.reply <- &LimitError{Limit: "MCP streams on a bridge", Max: s.limits.Streams}
	default:
		w.w.known = s.s.Catalog()
		s.watches[w.w] = struct{}{}
		w.reply <- nil
	}
}

func (u *unwatch) apply(s *state) { delete(s.watches, u.w) }

func (r *release) apply(s *state) {
	if !s.stopped && (len(s.calls) > 0 || len(s.watches) > 0 || s.connected() || s.unsaved()) {
		r.reply <- false
		return
	}
	s.stop(ErrStopped)
	r.reply <- true
}

func (c *stop) apply(s *state) {
	s.stop(c.cause)
	close(c.done)
}

// stop ends everything. Later commands find a session that has stopped.
func (s *state) stop(cause error) {
	if s.stopped {
		return
	}
	s.stopped, s.cause = true, cause
	s.s.ended.Store(true)
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		c, o := s.calls[id], Outcome{Err: cause, Reason: reasonOf(cause)}
		if !c.withdraw() && !c.withdrawn() {
			o.Err = fmt.Errorf("%w; %w", cause, ErrCutOff)
		}
		s.end(c, o)
	}
	for _, p := range s.providers {
		for _, i := range p.instances {
			i.outbox.Close(cause)
		}
	}
	for w := range s.watches {
		w.cause = cause
		close(w.end)
	}
	clear(s.watches)
	s.ledger.fail(cause)
}
