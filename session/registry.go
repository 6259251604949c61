package session

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// registry is who offers what on the bridge.
type registry struct {
	providers map[ProviderID]*provider
	names     map[string]*listed // by exposed name
	revision  uint64
	bytes     int // of all definitions
}

// provider is one known Provider.
type provider struct {
	id        ProviderID
	title     string
	version   string
	retain    time.Duration
	leftAt    time.Time          // zero while an instance is attached
	tools     map[string]*listed // by its own names
	instances []*Instance        // newest last
	stored    bool               // the store has a record of it
}

// listed is one offer in the registry.
type listed struct {
	provider *provider
	offer    *Offer
	leftAt   time.Time // when its last instance left, while other instances of the provider stay
}

func (l *listed) awaySince() time.Time {
	if !l.leftAt.IsZero() {
		return l.leftAt
	}
	return l.provider.leftAt
}

// start builds the state that a Snapshot describes.
func (s *state) start(sess *Session, snap Snapshot, now time.Time) {
	s.s, s.limits, s.stats = sess, sess.cfg.Limits, sess.cfg.Stats
	s.calls = map[uint64]*Call{}
	s.watches = map[*Watch]struct{}{}
	s.providers = map[ProviderID]*provider{}
	s.names = map[string]*listed{}
	s.revision = snap.Revision
	var expired []*provider
	for _, r := range snap.Registrations {
		p := &provider{
			id: r.Provider, title: r.Title, version: r.Version, retain: r.Retain, leftAt: r.LeftAt,
			tools: make(map[string]*listed, len(r.Tools)), stored: true,
		}
		if p.leftAt.IsZero() {
			p.leftAt = now // connected when the last process ended
		}
		s.providers[p.id] = p
		for _, t := range r.Tools {
			l := &listed{provider: p, offer: &Offer{Tool: t, Provider: p.id}}
			p.tools[t.Name] = l
			s.names[t.Exposed] = l
			s.bytes += len(t.Definition)
		}
		if !now.Before(p.leftAt.Add(p.retain)) {
			expired = append(expired, p)
		}
	}
	sess.catalog.Store(s.build())
	for _, p := range expired {
		s.forget(p)
	}
	if len(expired) > 0 {
		s.commit(true, expired...)
	}
}

// build makes the catalog of the registry as it is.
func (s *state) build() *Catalog {
	c := &Catalog{Revision: s.revision, Offers: make([]*Offer, 0, len(s.names))}
	for _, l := range s.names {
		c.Offers = append(c.Offers, l.offer)
	}
	slices.SortFunc(c.Offers, func(a, b *Offer) int { return strings.Compare(a.Tool.Exposed, b.Tool.Exposed) })
	return c
}

// commit hands the records of the providers to the saver. With listed, what
// clients see has changed: there is a new catalog.
func (s *state) commit(listed bool, providers ...*provider) {
	s.seq++
	if listed {
		s.revision++
		s.fresh = append(s.fresh, fresh{s.seq, s.build()})
	}
	c := Change{Bridge: s.s.cfg.Bridge, Revision: s.revision}
	for _, p := range providers {
		if s.providers[p.id] == p && len(p.tools) > 0 {
			p.stored = true
			c.Put = append(c.Put, p.record())
		} else {
			p.stored = false
			c.Delete = append(c.Delete, p.id)
		}
	}
	s.s.cfg.Saver.Save(s.s, s.seq, c)
}

func (p *provider) record() Registration {
	r := Registration{
		Provider: p.id, Title: p.title, Version: p.version, Retain: p.retain, LeftAt: p.leftAt,
		Tools: make([]Tool, 0, len(p.tools)),
	}
	for _, l := range p.tools {
		r.Tools = append(r.Tools, l.offer.Tool)
	}
	slices.SortFunc(r.Tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// take removes one tool of a provider, and every instance's claim to it.
func (s *state) take(l *listed) {
	delete(l.provider.tools, l.offer.Tool.Name)
	delete(s.names, l.offer.Tool.Exposed)
	s.bytes -= len(l.offer.Tool.Definition)
	for _, i := range l.provider.instances {
		delete(i.tools, l.offer.Tool.Name)
	}
}

// forget removes a provider and its tools. Names it held are free again.
func (s *state) forget(p *provider) {
	for _, l := range p.tools {
		s.take(l)
	}
	delete(s.providers, p.id)
}

// connected tells whether any instance is attached.
func (s *state) connected() bool {
	for _, p := range s.providers {
		if len(p.instances) > 0 {
			return true
		}
	}
	return false
}

// claimed tells whether a live instance registered the tool.
func (l *listed) claimed() bool {
	for _, i := range l.provider.instances {
		if _, ok := i.tools[l.offer.Tool.Name]; ok {
			return true
		}
	}
	return false
}

func (a *attach) apply(s *state) {
	if s.stopped {
		a.reply <- ErrStopped
		return
	}
	h := a.inst.hello
	p := s.providers[h.Provider]
	switch {
	case p == nil && len(s.providers) >= s.limits.Providers:
		a.reply <- &LimitError{Limit: "providers on a bridge", Max: s.limits.Providers}
		return
	case p != nil && len(p.instances) >= s.limits.Instances:
		a.reply <- &LimitError{Limit: "instances of a provider", Max: s.limits.Instances}
		return
	case p == nil:
		p = &provider{id: h.Provider, tools: map[string]*listed{}}
		s.providers[p.id] = p
	}
	if h.Retain < 0 {
		h.Retain = s.limits.Retain
	}
	known := p.leftAt.IsZero() && p.title == h.Title && p.version == h.Version && p.retain == h.Retain
	p.title, p.version, p.retain, p.leftAt = h.Title, h.Version, h.Retain, time.Time{}
	p.instances = append(p.instances, a.inst)
	a.inst.provider = p
	a.inst.tools = map[string]struct{}{}
	if h.Adopt {
		for _, l := range p.tools {
			s.claim(a.inst, l)
		}
	}
	if p.stored && !known {
		s.commit(false, p)
	}
	a.reply <- nil
}

func (d *detach) apply(s *state) {
	i, p := d.inst, d.inst.provider
	at := slices.Index(p.instances, i)
	if s.stopped || at < 0 {
		return
	}
	p.instances = slices.Delete(p.instances, at, at+1)
	if len(p.instances) > 0 {
		for name := range i.tools {
			if l := p.tools[name]; l != nil && !l.claimed() {
				l.leftAt = d.now
			}
		}
		s.orphan(i)
		return
	}
	p.leftAt = d.now
	s.orphan(i)
	switch {
	case len(p.tools) == 0:
		delete(s.providers, p.id)
		if p.stored {
			s.commit(false, p)
		}
	case p.retain == 0:
		s.forget(p)
		s.commit(true, p)
	default:
		s.commit(false, p)
	}
}

func (t *tick) apply(s *state) {
	if s.stopped {
		return
	}
	var changed []*provider
	for _, p := range s.providers {
		if len(p.instances) == 0 {
			if !t.now.Before(p.leftAt.Add(p.retain)) {
				s.forget(p)
				changed = append(changed, p)
			}
			continue
		}
		gone := false
		for _, l := range p.tools {
			if !l.leftAt.IsZero() && !t.now.Before(l.leftAt.Add(p.retain)) && !l.claimed() {
				s.take(l)
				gone = true
			}
		}
		if gone {
			changed = append(changed, p)
		}
	}
	if len(changed) > 0 {
		s.commit(true, changed...)
	}
}

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
	changed := false
	var answer Registered
	if r.replace {
		changed = s.keepOnly(p, r)
	}
	for _, t := range r.tools {
		l := p.tools[t.Name]
		if l != nil && l.offer.Tool.same(&t) {
			s.claim(r.inst, l)
			answer.Tools = append(answer.Tools, Exposure{t.Name, l.offer.Tool.Exposed})
			continue
		}
		if err := s.room(l, &t); err != nil {
			answer.Rejected = append(answer.Rejected, Rejection{t.Name, err})
			continue
		}
		if l == nil {
			t.Exposed = s.expose(p.id, t.Name)
			l = &listed{provider: p}
			p.tools[t.Name], s.names[t.Exposed] = l, l
		} else {
			t.Exposed = l.offer.Tool.Exposed
			s.bytes -= len(l.offer.Tool.Definition)
		}
		s.bytes += len(t.Definition)
		l.offer = &Offer{Tool: t, Provider: p.id}
		s.claim(r.inst, l)
		answer.Tools = append(answer.Tools, Exposure{t.Name, t.Exposed})
		changed = true
	}
	if changed {
		s.commit(true, p)
	}
	answer.Revision = s.revision
	s.answer(r.inst, r.ack, answer)
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
	for name, l := range p.tools {
		if _, ok := keep[name]; !ok {
			s.take(l)
			changed = true
		}
	}
	return changed
}

func (s *state) claim(i *Instance, l *listed) {
	i.tools[l.offer.Tool.Name] = struct{}{}
	l.leftAt = time.Time{}
}

// room tells which limit keeps a tool out; old is what it would replace, or nil.
func (s *state) room(old *listed, t *Tool) error {
	size := s.bytes + len(t.Definition)
	if old != nil {
		size -= len(old.offer.Tool.Definition)
	} else if len(s.names) >= s.limits.Tools {
		return &LimitError{Limit: "tools on a bridge", Max: s.limits.Tools}
	}
	if size > s.limits.CatalogBytes {
		return &LimitError{Limit: "all tool definitions of a bridge", Max: s.limits.CatalogBytes, Unit: "bytes"}
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
		l := p.tools[name]
		if l == nil {
			continue
		}
		delete(u.inst.tools, name)
		if !l.claimed() {
			s.take(l)
			changed = true
		}
	}
	if changed {
		s.commit(true, p)
	}
	s.answer(u.inst, u.ack, Registered{Revision: s.revision})
}

// expose chooses the name that clients see for a provider's new tool: its own
// name in permitted characters, or, where that is taken, with a suffix that
// depends on the provider alone (on the tool too, where the provider itself took
// it).
func (s *state) expose(p ProviderID, name string) string {
	base := SafeName(name)
	if s.names[base] == nil {
		return base
	}
	seed := string(p)
	if l := s.names[base]; l.provider.id == p {
		seed += "\x00" + name
	}
	for digits := 4; ; digits += 4 {
		suffix := "-" + nameHash(seed, digits)
		exposed := base[:min(len(base), MaxToolName-len(suffix))] + suffix
		if s.names[exposed] == nil {
			return exposed
		}
		if digits == 64 {
			seed = fmt.Sprintf("%s\x00%s\x00%d", p, name, len(s.names))
			digits = 0
		}
	}
}
