package session

import (
	"maps"
	"slices"
	"time"
)

// absentKey names an instance that may be resumed.
type absentKey struct {
	provider ProviderID
	key      string
}

func (i *Instance) absentKey() absentKey { return absentKey{i.hello.Provider, i.hello.Key} }

// callsOf are the calls that are asked of an instance, oldest first.
func (s *state) callsOf(i *Instance) (list []*Call) {
	if i.calls == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		if c := s.calls[id]; c.inst == i {
			list = append(list, c)
		}
	}
	return list
}

// dismiss notes that an instance has one call less.
func (s *state) dismiss(i *Instance) {
	i.calls--
	if i.calls == 0 && !i.leftAt.IsZero() && s.absent[i.absentKey()] == i {
		delete(s.absent, i.absentKey())
	}
}

// leave deals with the calls of an instance that has gone. Those that no socket ever
// had are asked of the next instance. The others end, or, where the instance can be
// resumed, wait for that.
func (s *state) leave(i *Instance) {
	i.silence()
	keep := i.hello.Key != "" && !i.final
	if keep && i.calls > 0 {
		s.absent[i.absentKey()] = i
	}
	for _, c := range s.callsOf(i) {
		switch {
		case c.withdraw():
			delete(s.calls, c.id)
			s.dismiss(i)
			if l := s.names[named{c.Kind, c.Tool}]; l != nil {
				c.tool = &l.offer.Tool
				s.route(c, l)
			} else {
				s.end(c, Outcome{Err: ErrUnknownTool, Reason: ReasonUnknownTool})
			}
		case !keep:
			s.end(c, Outcome{Err: ErrProviderGone, Reason: ReasonProviderGone})
		}
	}
}

// before is the live instance that i resumes, or nil: its end has not been noticed yet.
func (p *provider) before(i *Instance) *Instance {
	at := slices.IndexFunc(p.instances, func(o *Instance) bool { return o != i && o.hello.Key == i.hello.Key })
	if i.hello.Key == "" || at < 0 {
		return nil
	}
	return p.instances[at]
}

func (p *provider) remove(i *Instance) {
	p.instances = slices.DeleteFunc(p.instances, func(o *Instance) bool { return o == i })
}

// replaceOlder leaves a provider its newest instance alone. The others may not come back,
// so what they were given has no known outcome.
func (s *state) replaceOlder(p *provider, now time.Time) {
	for len(p.instances) > 1 {
		old := p.instances[0]
		p.remove(old)
		old.leftAt, old.final = now, true
		p.unclaim(old)
		old.outbox.Close(ErrReplaced)
		s.leave(old)
	}
}

// resume gives a new connection the calls of the one that it resumes: those that were
// written it may answer, the others are written to it.
func (s *state) resume(i *Instance) {
	if i.hello.Key == "" {
		return
	}
	old := s.absent[i.absentKey()]
	if old == nil { // perhaps its end has not been noticed yet
		if old = i.provider.before(i); old == nil {
			return
		}
		i.provider.remove(old)
		old.leftAt = i.attached
		old.outbox.Close(ErrResumed)
		old.silence()
	}
	delete(s.absent, i.absentKey())
	i.abandoned = old.abandoned
	for _, c := range s.callsOf(old) {
		undelivered := c.withdraw()
		c.inst = i
		old.calls--
		i.calls++
		if undelivered && i.outbox.Deliver(c.next(), c.size()) == NoRoom { // from one that ends they move on
			s.end(c, Outcome{Err: s.fullError(), Reason: ReasonBusy})
		}
	}
}

// apply ends what waits for an instance that nobody has resumed; tasks wait longer.
func (f *forsake) apply(s *state) {
	if s.absent[f.inst.absentKey()] != f.inst {
		return
	}
	for _, c := range s.callsOf(f.inst) {
		if c.task == nil {
			s.end(c, s.unanswered(c))
		}
	}
}

// unanswered is the end of a call whose instance stays away.
func (s *state) unanswered(c *Call) Outcome {
	if c.withdrawn() || c.inst == nil { // no socket ever had it
		if l := s.names[named{c.Kind, c.Tool}]; l != nil {
			since := l.awaySince()
			if since.IsZero() { // it is about to be
				since = s.now()
			}
			return Outcome{Err: &AwayError{l.provider.id, since}, Reason: ReasonAway}
		}
		return Outcome{Err: ErrUnknownTool, Reason: ReasonUnknownTool}
	}
	return Outcome{Err: ErrProviderGone, Reason: ReasonProviderGone}
}
