package session

// ledger keeps what waits for durability: the output gate. Changes are numbered
// by seq; a registration is acknowledged, and a catalog published, once a seq
// that has it is durable.
type ledger struct {
	seq     uint64 // of the newest change
	durable uint64 // greatest seq that the saver has confirmed
	acks    []ack
	waits   []wait
	fresh   []fresh
}

// wait is told once a seq is durable, or why it may not be.
type wait struct {
	seq  uint64
	tell func(error)
}

type ack struct {
	seq    uint64
	inst   *Instance
	tell   func(Registered)
	answer Registered
}

type fresh struct {
	seq     uint64
	catalog *Catalog
	lists   bool // what clients list may differ from the catalog before
	fewer   bool // something went
}

func (l *ledger) unsaved() bool { return l.durable < l.seq }

// answer tells a registration's outcome, now or once it is durable.
func (l *ledger) answer(i *Instance, tell func(Registered), r Registered) {
	if tell == nil {
		return
	}
	if !l.unsaved() {
		tell(r)
		return
	}
	i.waiting++
	l.acks = append(l.acks, ack{l.seq, i, tell, r})
}

// later tells once all that has changed so far is durable: now, if it is. tell must
// not block.
func (l *ledger) later(tell func(error)) {
	if !l.unsaved() {
		tell(nil)
		return
	}
	l.waits = append(l.waits, wait{l.seq, tell})
}

// fail tells all who wait that what they wait for may not have become durable.
func (l *ledger) fail(cause error) {
	for _, w := range l.waits {
		w.tell(cause)
	}
	l.waits = nil
	for _, a := range l.acks {
		a.tell(Registered{Err: cause})
	}
	l.acks, l.fresh = nil, nil
}

func (c saved) apply(s *state) {
	seq := uint64(c)
	if s.stopped || seq <= s.durable {
		return
	}
	s.durable = seq
	n := 0
	for n < len(s.fresh) && s.fresh[n].seq <= seq {
		n++
	}
	if n > 0 {
		lists, fewer := false, false
		for _, f := range s.fresh[:n] {
			lists, fewer = lists || f.lists, fewer || f.fewer
		}
		s.s.catalog.Store(s.fresh[n-1].catalog)
		s.fresh = s.fresh[n:]
		if lists {
			s.publish(fewer)
		}
	}
	n = 0
	for n < len(s.waits) && s.waits[n].seq <= seq {
		s.waits[n].tell(nil)
		n++
	}
	s.waits = s.waits[n:]
	n = 0
	for n < len(s.acks) && s.acks[n].seq <= seq {
		s.acks[n].inst.waiting--
		s.acks[n].tell(s.acks[n].answer)
		n++
	}
	s.acks = s.acks[n:]
}
