package session

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// registry is who offers what on the bridge.
type registry struct {
	providers map[ProviderID]*provider
	names     map[named]*listed // by exposed name
	counts    [NumKinds]int
	revision  uint64
	bytes     int  // of all definitions
	fewer     bool // something went since the last commit
	pins
}

// provider is one known Provider.
type provider struct {
	id        ProviderID
	title     string
	version   string
	about     About
	retain    time.Duration
	leftAt    time.Time         // zero while an instance is attached
	tools     map[named]*listed // by its own names
	instances []*Instance       // newest last
	lobby     *Instance         // has the calls that wait for one; nil until there are any
	stored    bool              // the store has a record of it
	subs      map[string]int    // clients' subscriptions to its resources, by its own URIs
}

// maxSubscribed bounds the resources of a provider whose subscriptions are known.
const maxSubscribed = 1024

// subscribed counts a subscription that the provider has taken, or the end of one,
// taken or not: the client wants it no more.
func (p *provider) subscribed(c *Call, taken bool) {
	uri := c.Name()
	switch n := p.subs[uri]; {
	case c.Method == "resources/subscribe" && taken && (n > 0 || len(p.subs) < maxSubscribed):
		if p.subs == nil {
			p.subs = map[string]int{}
		}
		p.subs[uri] = n + 1
	case c.Method == "resources/unsubscribe" && n > 1:
		p.subs[uri] = n - 1
	case c.Method == "resources/unsubscribe":
		delete(p.subs, uri)
	}
}

// listed is one offer in the registry.
type listed struct {
	provider *provider
	offer    *Offer
	leftAt   time.Time // when its last instance left; zero while one offers it
	pin      *pin      // that holds another definition of it, or nil
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
	s.policy, s.policyVersion = sess.cfg.Policy.Or(defaultPolicy), sess.cfg.PolicyVersion
	s.calls = map[uint64]*Call{}
	s.watches = map[*Watch]struct{}{}
	s.providers = map[ProviderID]*provider{}
	s.names = map[named]*listed{}
	s.absent = map[absentKey]*Instance{}
	s.revision = snap.Revision
	var expired, left []*provider
	for _, r := range snap.Registrations {
		p := &provider{
			id: r.Provider, title: r.Title, version: r.Version, about: r.About, retain: r.Retain, leftAt: r.LeftAt,
			tools: make(map[named]*listed, len(r.Tools)), stored: true,
		}
		if p.leftAt.IsZero() {
			p.leftAt = now // connected when the last process ended
		}
		s.providers[p.id] = p
		for _, t := range r.Tools {
			l := &listed{provider: p, offer: &Offer{Tool: t, Provider: p.id}, leftAt: p.leftAt}
			p.tools[t.key()] = l
			s.names[named{t.Kind, t.Exposed}] = l
			s.counts[t.Kind]++
			s.bytes += len(t.Definition)
		}
		if !now.Before(p.leftAt.Add(p.retain)) {
			expired = append(expired, p)
		} else if r.LeftAt.IsZero() {
			left = append(left, p)
		}
	}
	s.startPins(snap.Pins)
	sess.catalog.Store(s.build())
	for _, p := range expired {
		s.forget(p)
	}
	switch {
	case len(expired) > 0:
		s.commit(anyKind, append(expired, left...)...)
	case len(left) > 0: // so that the next activation does not count its retention anew
		s.commit(0, left...)
	}
	if s.policy.Definitions == Trust {
		s.trust()
	}
	s.restore(snap.Tasks, now)
}

// build makes the catalog of the registry as it is.
func (s *state) build() *Catalog {
	c := &Catalog{Revision: s.revision}
	for _, l := range s.names {
		list := c.Of(l.offer.Tool.Kind)
		list.Offers = append(list.Offers, l.offer)
	}
	for _, p := range s.providers {
		if len(p.tools) > 0 && !p.about.empty() {
			c.Profiles = append(c.Profiles, Profile{p.id, p.title, p.about})
		}
	}
	slices.SortFunc(c.Profiles, func(a, b Profile) int { return strings.Compare(string(a.Provider), string(b.Provider)) })
	for k := range NumKinds {
		slices.SortFunc(c.Of(k).Offers, func(a, b *Offer) int { return strings.Compare(a.Tool.Exposed, b.Tool.Exposed) })
	}
	return c
}

// anyKind stands for every kind: which of them changed is not worth finding out.
const anyKind Kinds = 1<<NumKinds - 1

// commit hands the records of the providers to the saver. Where kinds has any, what
// clients list of them has changed: there is a new catalog.
func (s *state) commit(kinds Kinds, providers ...*provider) {
	s.seq++
	if kinds != 0 {
		s.revision++
		s.fresh = append(s.fresh, fresh{s.seq, s.build(), true, s.fewer})
		s.fewer = false
	}
	s.save(providers)
}

// introduce is commit for what a provider says of itself: no list has changed.
func (s *state) introduce(p *provider) {
	s.seq++
	s.fresh = append(s.fresh, fresh{seq: s.seq, catalog: s.build()})
	s.save([]*provider{p})
}

func (s *state) save(providers []*provider) {
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
	s.savePins(&c)
	s.s.cfg.Saver.Save(s.s, s.seq, c)
}

func (p *provider) record() Registration {
	r := Registration{
		Provider: p.id, Title: p.title, Version: p.version, About: p.about, Retain: p.retain, LeftAt: p.leftAt,
		Tools: make([]Tool, 0, len(p.tools)),
	}
	for _, l := range p.tools {
		r.Tools = append(r.Tools, l.offer.Tool)
	}
	slices.SortFunc(r.Tools, func(a, b Tool) int { return a.compare(&b) })
	return r
}

// take removes one tool of a provider, and every instance's claim to it. What is held of
// it stays.
func (s *state) take(l *listed) {
	t := &l.offer.Tool
	s.remember(l)
	delete(l.provider.tools, t.key())
	delete(s.names, named{t.Kind, t.Exposed})
	s.counts[t.Kind]--
	s.bytes -= len(t.Definition)
	s.fewer = true
	for _, i := range l.provider.instances {
		delete(i.tools, t.key())
	}
}

// forget removes a provider and its tools. Names it held are free again.
func (s *state) forget(p *provider) {
	for _, l := range p.tools {
		s.take(l)
	}
	delete(s.providers, p.id)
	s.unpark(p)
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
		if _, ok := i.tools[l.offer.Tool.key()]; ok {
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
	case p != nil && s.policy.Instances == Reject && len(p.instances) > 0 && p.before(a.inst) == nil:
		a.reply <- ErrTaken
		return
	case p == nil && len(s.providers) >= s.limits.Providers:
		a.reply <- &LimitError{Limit: "providers on a bridge", Max: s.limits.Providers}
		return
	case p != nil && len(p.instances) >= s.limits.Instances && p.before(a.inst) == nil:
		a.reply <- &LimitError{Limit: "instances of a provider", Max: s.limits.Instances}
		return
	case p == nil:
		p = &provider{id: h.Provider, tools: map[named]*listed{}}
		s.providers[p.id] = p
	}
	if h.Retain < 0 {
		h.Retain = s.limits.Retain
	}
	known := p.leftAt.IsZero() && p.title == h.Title && p.version == h.Version && p.retain == h.Retain
	told := p.about.same(&h.About) && p.title == h.Title
	p.title, p.version, p.about, p.retain, p.leftAt = h.Title, h.Version, h.About, h.Retain, time.Time{}
	p.instances = append(p.instances, a.inst)
	a.inst.provider = p
	a.inst.subs = maps.Clone(p.subs)
	a.inst.tools = map[named]bool{}
	if h.Adopt {
		for _, l := range p.tools {
			s.claim(a.inst, l, l.pin != nil) // as long as it does not say what it offers
		}
		s.adoptHeld(a.inst)
	}
	switch {
	case p.stored && !told:
		s.introduce(p)
	case p.stored && !known:
		s.commit(0, p)
	}
	s.resume(a.inst)
	if s.policy.Instances == Single {
		s.replaceOlder(p, a.now)
	}
	s.unpark(p)
	a.reply <- nil
}

// unclaim notes which tools nobody claims now that an instance has left.
func (p *provider) unclaim(i *Instance) {
	for key := range i.tools {
		if l := p.tools[key]; l != nil && !l.claimed() {
			l.leftAt = i.leftAt
		}
	}
}

func (d *detach) apply(s *state) {
	i, p := d.inst, d.inst.provider
	at := slices.Index(p.instances, i)
	if s.stopped || at < 0 {
		return
	}
	p.instances = slices.Delete(p.instances, at, at+1)
	i.leftAt = d.now
	p.unclaim(i)
	if len(p.instances) > 0 {
		s.leave(i)
		if kinds := s.vacate(p, d.now); kinds != 0 {
			s.commit(kinds, p)
		}
		return
	}
	p.leftAt = d.now
	s.leave(i)
	switch {
	case len(p.tools) == 0:
		delete(s.providers, p.id)
		if p.stored {
			s.commit(0, p)
		}
	case p.retain == 0:
		kinds := p.kinds()
		s.forget(p)
		s.commit(kinds, p)
	default:
		s.commit(0, p)
	}
}

func (t *tick) apply(s *state) {
	if s.stopped {
		return
	}
	s.expire(t.now)
	var changed []*provider
	var kinds Kinds
	for _, p := range s.providers {
		if len(p.instances) == 0 {
			if !t.now.Before(p.leftAt.Add(p.retain)) {
				kinds |= p.kinds()
				s.forget(p)
				changed = append(changed, p)
			}
			continue
		}
		if gone := s.lapse(p, t.now); gone != 0 {
			kinds |= gone
			changed = append(changed, p)
		}
	}
	if len(changed) > 0 {
		s.commit(kinds, changed...)
	}
}

// lapse takes off what no live instance has offered for as long as it stays listed.
func (s *state) lapse(p *provider, now time.Time) (kinds Kinds) {
	for _, l := range p.tools {
		if !l.leftAt.IsZero() && !now.Before(l.leftAt.Add(p.retain)) && !l.claimed() {
			kinds |= l.offer.Tool.Kind.Set()
			s.take(l)
		}
	}
	return kinds
}

// vacate is lapse for a provider whose tools do not stay: as soon as each live instance
// offers something, since one that has just come may be about to offer the same again.
func (s *state) vacate(p *provider, now time.Time) Kinds {
	if p.retain > 0 || slices.ContainsFunc(p.instances, func(i *Instance) bool { return len(i.tools) == 0 }) {
		return 0
	}
	return s.lapse(p, now)
}
