package session

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Held tells of a definition that waits for approval.
type Held struct {
	Kind     Kind
	Name     string // the provider's own
	Exposed  string // what clients see; empty where they are listed no earlier definition
	Was, Now []byte // the definition that clients are listed, or nil, and the one that is held
	Hash     string // names what is held, for approval: [PinKey.Token]
	Rejected bool   // it was rejected before
	Blocks   bool   // calls wait for approval too
	Fresh    bool   // it was not held before
}

// Definition is an offer for those who watch over a bridge.
type Definition struct {
	PinKey
	Exposed string // what clients see, or would see if nothing else took the name
	Listed  *Tool  // what clients are listed; nil while nothing is
	Held    *Tool  // what waits for approval, or nil
	// Of what is held.
	Rejected bool
	Blocks   bool // calls wait for approval too
	Since    time.Time
}

// Compare orders by exposed name.
func (d *Definition) Compare(e *Definition) int {
	return cmp.Or(strings.Compare(d.Exposed, e.Exposed), d.PinKey.Compare(e.PinKey))
}

type survey struct {
	kind  Kind
	reply chan []Definition
}

// Definitions are all offers of a kind, listed or held, in the order of exposed names.
func (s *Session) Definitions(kind Kind) ([]Definition, error) {
	reply := make(chan []Definition, 1)
	if err := s.do(&survey{kind, reply}); err != nil {
		return nil, err
	}
	return <-reply, nil
}

func (c *survey) apply(s *state) {
	var all []Definition
	shown := s.s.Catalog().Of(c.kind)
	for _, o := range shown.Offers {
		all = append(all, Definition{PinKey: PinKey{o.Provider, c.kind, o.Tool.Name}, Exposed: o.Tool.Exposed, Listed: &o.Tool})
	}
	for _, k := range s.pins.pins {
		if k.Held == nil || k.Kind != c.kind {
			continue
		}
		name := k.exposed(s)
		at := shown.After(name, true)
		if at >= len(shown.Offers) || all[at].PinKey != k.PinKey {
			at = len(all)
			all = append(all, Definition{PinKey: k.PinKey, Exposed: name})
		}
		d := &all[at]
		d.Held, d.Rejected, d.Blocks, d.Since = k.Held, k.Rejected, k.blocks, k.Since
	}
	slices.SortFunc(all, func(a, b Definition) int { return a.Compare(&b) })
	c.reply <- all
}

type decide struct {
	kind    Kind
	exposed string
	hash    string
	approve bool
	reply   chan error // capacity one
}

// Approve lists what is held of the offer with that exposed name, if it is what hash
// names; where no live instance offers it, it is listed once one registers it. Reject
// leaves the earlier definition listed for good. Both return once that is durable, and do
// nothing where it is so already. [ErrUnknownTool] if there is no such offer, [ErrNotHeld]
// if something else is held, or nothing. A context that ends leaves open what happens.
func (s *Session) Approve(ctx context.Context, kind Kind, exposed, hash string) error {
	return s.decide(ctx, &decide{kind: kind, exposed: exposed, hash: hash, approve: true})
}

// Reject is the other answer: see Approve.
func (s *Session) Reject(ctx context.Context, kind Kind, exposed, hash string) error {
	return s.decide(ctx, &decide{kind: kind, exposed: exposed, hash: hash})
}

func (s *Session) decide(ctx context.Context, d *decide) error {
	d.reply = make(chan error, 1)
	if err := s.do(d); err != nil {
		return err
	}
	select {
	case err := <-d.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *decide) apply(s *state) {
	if s.stopped {
		d.reply <- ErrStopped
		return
	}
	l := s.names[named{d.kind, d.exposed}]
	known := l != nil
	for _, k := range s.pins.pins {
		if k.Held == nil || k.Kind != d.kind || k.exposed(s) != d.exposed {
			continue
		}
		known = true
		if k.Token(k.Held) != d.hash {
			continue
		}
		if err := s.settlePin(k, d.approve); err != nil {
			d.reply <- err
			return
		}
		s.later(func(err error) { d.reply <- err })
		return
	}
	switch {
	case !known:
		d.reply <- ErrUnknownTool
	case d.approve && l != nil && l.provider.pinKey(l.offer.Tool.key()).Token(&l.offer.Tool) == d.hash:
		s.later(func(err error) { d.reply <- err }) // approved before
	default:
		d.reply <- ErrNotHeld
	}
}

// settlePin approves or rejects what is held.
func (s *state) settlePin(k *pin, approve bool) error {
	switch {
	case !approve && k.Rejected:
	case !approve:
		k.Rejected = true
		s.touched[k.PinKey] = struct{}{}
		s.commit(0)
	default:
		p, err := s.approve(k)
		switch {
		case err != nil:
			return err
		case p == nil:
			s.commit(0)
		default:
			s.commit(k.Kind.Set(), p)
			s.unpark(p)
		}
	}
	return nil
}

// approve makes what is held the definition of its offer. The provider is nil where
// nothing is listed of it: there is no instance that offers it.
func (s *state) approve(k *pin) (*provider, error) {
	t, key := *k.Held, named{k.Kind, k.Name}
	p := s.providers[k.Provider]
	l := s.offered(k.PinKey)
	live := p != nil && slices.ContainsFunc(p.instances, func(i *Instance) bool { return i.tools[key] })
	if l == nil && !live {
		k.Hash = t.Hash()
		s.release(k)
		return nil, nil
	}
	if l == nil && s.counts[k.Kind] >= s.limits.Tools {
		return nil, &LimitError{Limit: k.Kind.String() + " on a bridge", Max: s.limits.Tools}
	}
	if l == nil && s.taken(p, &t) {
		return nil, ErrNameTaken
	}
	s.unpin(k.PinKey)
	s.admit(p, l, t)
	for _, i := range p.instances {
		if other, ok := i.tools[key]; ok {
			i.tools[key] = !other
		}
	}
	return p, nil
}

// trust lists all that is held, and forgets what was taken off.
func (s *state) trust() {
	if len(s.pins.pins) == 0 {
		return
	}
	var kinds Kinds
	changed := map[*provider]struct{}{}
	for key, k := range s.pins.pins {
		if k.Held != nil {
			if p, _ := s.approve(k); p != nil { // what finds no room is let go
				changed[p] = struct{}{}
				kinds |= key.Kind.Set()
			}
		}
		s.unpin(key)
	}
	list := make([]*provider, 0, len(changed))
	for p := range changed {
		list = append(list, p)
	}
	s.commit(kinds, list...)
	for _, p := range list {
		s.unpark(p)
	}
}

// exposed is the name by which people call what is held.
func (k *pin) exposed(s *state) string {
	if l := s.offered(k.PinKey); l != nil {
		return l.offer.Tool.Exposed
	}
	return plainName(k.Kind, k.Name)
}
