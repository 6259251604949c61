package session

import (
	"fmt"
	"slices"
	"time"
)

// refuse tells whether the instance may not register now, having told it why.
func (s *state) refuse(i *Instance, tell func(Registered)) bool {
	var err error
	switch {
	case s.stopped:
		err = s.cause
	case i.provider == nil || !slices.Contains(i.provider.instances, i):
		err = ErrProviderGone
	case i.waiting >= s.limits.Registrations:
		err = &LimitError{Limit: "registrations of an instance not yet durable", Max: s.limits.Registrations}
	default:
		return false
	}
	if tell != nil {
		tell(Registered{Err: err})
	}
	return true
}

func (r *register) apply(s *state) {
	if s.refuse(r.inst, r.ack) {
		return
	}
	p := r.inst.provider
	var changed Kinds
	var answer Registered
	retuned := false // something changed that is not listed
	if r.replace && s.keepOnly(p, r) {
		changed = r.kind.Set()
	}
	for _, t := range r.tools {
		l := p.tools[t.key()]
		if l != nil && l.offer.Tool.alike(&t) {
			s.claim(r.inst, l, false)
			s.reconsider(p, t.key())
			retuned = l.retune(&t) || retuned
			answer.Tools = append(answer.Tools, Exposure{t.Name, l.offer.Tool.Exposed})
			continue
		}
		if s.pinned(p, l, &t) {
			h, err := s.hold(r.inst, l, t)
			switch {
			case err != nil:
				answer.Rejected = append(answer.Rejected, Rejection{t.Name, err})
			case l != nil:
				answer.Tools = append(answer.Tools, Exposure{t.Name, l.offer.Tool.Exposed})
				fallthrough
			default:
				answer.Held = append(answer.Held, h)
			}
			continue
		}
		if err := s.room(p, l, &t); err != nil {
			answer.Rejected = append(answer.Rejected, Rejection{t.Name, err})
			continue
		}
		if l == nil && s.taken(p, &t) {
			answer.Rejected = append(answer.Rejected, Rejection{t.Name, ErrNameTaken})
			continue
		}
		s.unpin(p.pinKey(t.key()))
		l = s.admit(p, l, t)
		s.claim(r.inst, l, false)
		answer.Tools = append(answer.Tools, Exposure{t.Name, l.offer.Tool.Exposed})
		changed |= t.Kind.Set()
	}
	changed |= s.vacate(p, s.now())
	switch {
	case changed != 0:
		s.commit(changed, p)
	case retuned:
		s.introduce(p)
	case len(s.touched) > 0:
		s.commit(0)
	}
	answer.Revision = s.revision
	s.answer(r.inst, r.ack, answer)
	s.unpark(p)
}

// admit lists a definition: in the place of l's, or as a new offer if l is nil.
func (s *state) admit(p *provider, l *listed, t Tool) *listed {
	if l == nil {
		t.Exposed = s.expose(p.id, t.Kind, t.Name)
		l = &listed{provider: p}
		p.tools[t.key()], s.names[named{t.Kind, t.Exposed}] = l, l
		s.counts[t.Kind]++
	} else {
		t.Exposed = l.offer.Tool.Exposed
		s.bytes -= len(l.offer.Tool.Definition)
	}
	s.bytes += len(t.Definition)
	l.offer = &Offer{Tool: t, Provider: p.id}
	return l
}

// retune takes over what the bridge alone reads of a definition that is alike.
func (l *listed) retune(t *Tool) bool {
	old := &l.offer.Tool
	if old.Timeout == t.Timeout && old.Headers == t.Headers {
		return false
	}
	tool := *old
	tool.Timeout, tool.Headers = t.Timeout, t.Headers
	l.offer = &Offer{Tool: tool, Provider: l.provider.id}
	return true
}

// keepOnly takes off what a replacing registration does not name.
func (s *state) keepOnly(p *provider, r *register) (changed bool) {
	keep := make(map[string]struct{}, len(r.tools)+len(r.keep))
	for i := range r.tools {
		keep[r.tools[i].Name] = struct{}{}
	}
	for _, name := range r.keep {
		keep[name] = struct{}{}
	}
	for key, l := range p.tools {
		if _, ok := keep[key.name]; !ok && key.kind == r.kind {
			s.take(l)
			s.reconsider(p, key)
			changed = true
		}
	}
	s.keepOnlyHeld(p, r.kind, keep)
	return changed
}

// claim notes that an instance answers for an offer; other tells that it registered
// another definition than the listed one.
func (s *state) claim(i *Instance, l *listed, other bool) {
	i.tools[l.offer.Tool.key()] = other
	l.leftAt = time.Time{}
}

// room tells which limit keeps a tool out; old is what it would replace, or nil.
func (s *state) room(p *provider, old *listed, t *Tool) error {
	size := s.bytes + len(t.Definition)
	if old != nil {
		size -= len(old.offer.Tool.Definition)
	} else if s.counts[t.Kind] >= s.limits.Tools {
		return &LimitError{Limit: t.Kind.String() + " on a bridge", Max: s.limits.Tools}
	} else if err := s.knows(p, t); err != nil {
		return err
	}
	if size > s.limits.CatalogBytes {
		return &LimitError{Limit: "all definitions of a bridge", Max: s.limits.CatalogBytes, Unit: "bytes"}
	}
	return nil
}

func (u *unregister) apply(s *state) {
	if s.refuse(u.inst, u.ack) {
		return
	}
	p := u.inst.provider
	changed := false
	for _, name := range u.names {
		key := named{u.kind, name}
		delete(u.inst.tools, key)
		if l := p.tools[key]; l != nil && !l.claimed() {
			s.take(l)
			changed = true
		}
		s.reconsider(p, key)
	}
	if changed {
		s.commit(u.kind.Set(), p)
	} else if len(s.touched) > 0 {
		s.commit(0)
	}
	s.answer(u.inst, u.ack, Registered{Revision: s.revision})
}

// kinds is the set of what the provider offers.
func (p *provider) kinds() (all Kinds) {
	for key := range p.tools {
		all |= key.kind.Set()
	}
	return all
}

// taken tells whether the policy keeps a new offer from its name, which another
// provider holds.
func (s *state) taken(p *provider, t *Tool) bool {
	if s.policy.Names != Reject {
		return false
	}
	holder := s.names[named{t.Kind, plainName(t.Kind, t.Name)}]
	return holder != nil && holder.provider != p
}

// plainName is the name that clients see where nobody else has it: the provider's own
// in permitted characters; a URI as it is.
func plainName(kind Kind, name string) string {
	if kind == KindTool || kind == KindPrompt {
		return SafeName(name)
	}
	return name
}

// expose chooses the name that clients see for a provider's new offer: its own
// name in permitted characters (a URI as it is), or, where that is taken, with a
// suffix that depends on the provider alone (on the name too, where the provider
// itself took it).
func (s *state) expose(p ProviderID, kind Kind, name string) string {
	base, mark, limit := plainName(kind, name), URIMark, len(name)+len(URIMark)+64
	if kind == KindTool || kind == KindPrompt {
		mark, limit = "-", MaxToolName
	}
	holder := s.names[named{kind, base}]
	if holder == nil {
		return base
	}
	seed := string(p)
	if holder.provider.id == p {
		seed += "\x00" + name
	}
	for digits := 4; ; digits += 4 {
		suffix := mark + nameHash(seed, digits)
		exposed := base[:min(len(base), limit-len(suffix))] + suffix
		if s.names[named{kind, exposed}] == nil {
			return exposed
		}
		if digits == 64 {
			seed = fmt.Sprintf("%s\x00%s\x00%d", p, name, len(s.names))
			digits = 0
		}
	}
}
