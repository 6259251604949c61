package session

// park lets a call wait for its provider to come back: until Unpark, or the call's own
// end. It is delivered once an instance offers the tool again.
func (s *state) park(c *Call, p *provider) {
	if s.limits.Park < 0 {
		s.end(c, s.unanswered(c))
		return
	}
	if p.lobby == nil {
		p.lobby = &Instance{s: s.s, provider: p, hello: Hello{Provider: p.id}}
	}
	c.inst = p.lobby
	p.lobby.leftAt = p.leftAt // for a task: nobody has it
	p.lobby.calls++
	s.calls[c.id] = c
	c.delivery.Store(c.delivery.Load()&^3 | withdrawn)
	if c.task != nil {
		s.given(c, c.task)
	}
}

// parked tells whether a call waits for its provider.
func (c *Call) parked() bool {
	return c.inst != nil && c.inst.provider != nil && c.inst == c.inst.provider.lobby
}

// unpark delivers the calls that wait for what the provider offers now, in the order in
// which they came. Those for what it no longer offers end.
func (s *state) unpark(p *provider) {
	if p.lobby == nil {
		return
	}
	for _, c := range s.callsOf(p.lobby) {
		l := s.names[named{c.Kind, c.Tool}]
		switch {
		case l == nil:
			s.end(c, Outcome{Err: ErrUnknownTool, Reason: ReasonUnknownTool})
		case l.claimed():
			delete(s.calls, c.id)
			p.lobby.calls--
			c.tool = &l.offer.Tool
			s.route(c, l)
		}
	}
}

type unpark struct {
	call  *Call
	cause error
}

// Unpark ends a call that still waits for its provider, and was never delivered: for
// the cause, or with an [AwayError] if that is nil. Any other is left alone.
func (s *Session) Unpark(c *Call, cause error) { _ = s.do(&unpark{c, cause}) } // a session that has ended has answered

func (u *unpark) apply(s *state) {
	switch c := u.call; {
	case s.calls[c.id] != c || !c.parked():
	case u.cause != nil:
		s.end(c, Outcome{Err: u.cause, Reason: reasonOf(u.cause)})
	default:
		s.end(c, s.unanswered(c))
	}
}
