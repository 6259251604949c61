package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// PinKey names an offer of a Bridge for good, registered or not.
type PinKey struct {
	Provider ProviderID
	Kind     Kind
	Name     string // the provider's own
}

// Compare orders by Provider, Kind and Name.
func (k PinKey) Compare(other PinKey) int {
	return cmp.Or(cmp.Compare(k.Provider, other.Provider), cmp.Compare(k.Kind, other.Kind), strings.Compare(k.Name, other.Name))
}

// Pinned is the durable record of what a bridge with the policy "pin" knows of an offer
// beside its registration: that a changed definition is held, or what was listed before
// the offer was taken off. It outlives connection, registration and process.
type Pinned struct {
	PinKey
	Hash     [32]byte  // [Tool.Hash] of what clients were listed last
	Held     *Tool     // what waits for approval, without an exposed name; nil if nothing does
	Rejected bool      // Held is not wanted; it stays known, so that it is not held anew each time
	Since    time.Time // when it was held, or taken off
}

// pin is a Pinned while its bridge is live.
type pin struct {
	Pinned
	blocks bool // what is held takes back a promise of what is listed: see weaker
}

// pins is what is known of offers beside their registrations.
type pins struct {
	pins    map[PinKey]*pin
	touched map[PinKey]struct{} // not handed to the saver yet
	full    time.Time           // until then there is nothing old enough to be forgotten
}

// forgetAfter is how long the definition of an offer that was taken off is remembered at
// least, while there is room.
const forgetAfter = 30 * 24 * time.Hour

// maxPins bounds the tools and prompts that a bridge knows or remembers.
func (l *Limits) maxPins() int { return 4 * l.Tools }

// remembered tells whether an offer of the kind is known after it was taken off. URIs
// come and go with what they name; the texts of tools and prompts are what models obey.
func (k Kind) remembered() bool { return k == KindTool || k == KindPrompt }

func (p *provider) pinKey(key named) PinKey { return PinKey{p.id, key.kind, key.name} }

// startPins takes over what was durable.
func (s *state) startPins(list []Pinned) {
	s.pins.pins, s.touched = make(map[PinKey]*pin, len(list)), map[PinKey]struct{}{}
	for _, k := range list {
		p := &pin{Pinned: k}
		s.pins.pins[k.PinKey] = p
		if k.Held == nil {
			continue
		}
		s.bytes += len(k.Held.Definition)
		if l := s.offered(k.PinKey); l != nil {
			l.pin, p.blocks = p, weaker(l.offer.Tool.Definition, k.Held.Definition)
		}
	}
}

// offered is the offer of that key that clients are listed, or nil.
func (s *state) offered(k PinKey) *listed {
	if p := s.providers[k.Provider]; p != nil {
		return p.tools[named{k.Kind, k.Name}]
	}
	return nil
}

// pinned tells whether a definition may not be listed before it is approved; l is the
// offer as it is listed, or nil.
func (s *state) pinned(p *provider, l *listed, t *Tool) bool {
	if s.policy.Definitions != Pin {
		return false
	}
	if l != nil {
		return !l.offer.Tool.steady(t)
	}
	known := s.pins.pins[p.pinKey(t.key())]
	return known != nil && known.Hash != t.Hash()
}

// knows tells whether one more name can be remembered, having forgotten another if need
// be, so that there is room when it is taken off.
func (s *state) knows(p *provider, t *Tool) error {
	if s.policy.Definitions != Pin || !t.Kind.remembered() || s.pins.pins[p.pinKey(t.key())] != nil {
		return nil
	}
	if len(s.pins.pins)+s.counts[KindTool]+s.counts[KindPrompt] < s.limits.maxPins() {
		return nil
	}
	refused := &LimitError{Limit: "tools and prompts remembered on a bridge whose definitions are pinned (the policy trust forgets them)", Max: s.limits.maxPins()}
	if s.now().Before(s.full) {
		return refused
	}
	var oldest *pin
	for _, k := range s.pins.pins {
		if k.Held == nil && (oldest == nil || k.Since.Before(oldest.Since)) {
			oldest = k
		}
	}
	if oldest == nil {
		return refused
	}
	if s.full = oldest.Since.Add(forgetAfter); s.now().Before(s.full) {
		return refused
	}
	s.unpin(oldest.PinKey)
	return nil
}

func (s *state) now() time.Time { return s.s.cfg.Clock() }

// hold keeps a changed definition until it is approved, and tells the provider so. l is
// the offer as it is listed, or nil.
func (s *state) hold(i *Instance, l *listed, t Tool) (Held, error) {
	p := i.provider
	key := p.pinKey(t.key())
	k := s.pins.pins[key]
	fresh := k == nil || k.Held == nil || !k.Held.alike(&t)
	if fresh {
		size := s.bytes + len(t.Definition)
		if k != nil && k.Held != nil {
			size -= len(k.Held.Definition)
		}
		if size > s.limits.CatalogBytes {
			return Held{}, &LimitError{Limit: "all definitions of a bridge", Max: s.limits.CatalogBytes, Unit: "bytes"}
		}
		s.bytes = size
		if k == nil {
			k = &pin{Pinned: Pinned{PinKey: key, Hash: l.offer.Tool.Hash()}}
			s.pins.pins[key] = k
		}
		t.Exposed = ""
		k.Held, k.Rejected, k.Since, k.blocks = &t, false, s.now(), false
		if l != nil {
			l.pin, k.blocks = k, weaker(l.offer.Tool.Definition, t.Definition)
		}
		s.touched[key] = struct{}{}
	}
	i.tools[t.key()] = true
	h := Held{Kind: t.Kind, Name: t.Name, Now: k.Held.Definition, Hash: key.Token(k.Held), Rejected: k.Rejected, Blocks: k.blocks, Fresh: fresh}
	if l != nil {
		l.leftAt = time.Time{}
		h.Exposed, h.Was = l.offer.Tool.Exposed, l.offer.Tool.Definition
	}
	return h, nil
}

// Token names one definition of an offer, for approval: 64 hexadecimal digits. Two
// providers' tools have different ones, also where their definitions are the same.
func (k PinKey) Token(t *Tool) string {
	sum := t.Hash()
	sum = sha256.Sum256(append(sum[:], k.Provider...))
	return hex.EncodeToString(sum[:])
}

// reconsider lets go of what is held of an offer once no live instance offers it any more
// although one was heard to offer something else, or nothing.
func (s *state) reconsider(p *provider, key named) {
	k := s.pins.pins[p.pinKey(key)]
	if k == nil || k.Held == nil {
		return
	}
	for _, i := range p.instances {
		if i.tools[key] {
			return
		}
	}
	s.release(k)
}

// adoptHeld makes an instance that says nothing of its own answer for what is held and
// listed under no earlier definition.
func (s *state) adoptHeld(i *Instance) {
	for key, k := range s.pins.pins {
		if k.Held != nil && key.Provider == i.provider.id {
			i.tools[named{key.Kind, key.Name}] = true
		}
	}
}

// keepOnlyHeld lets go of what is held and not named by a replacing registration.
func (s *state) keepOnlyHeld(p *provider, kind Kind, keep map[string]struct{}) {
	for key, k := range s.pins.pins {
		if _, ok := keep[key.Name]; ok || key.Provider != p.id || key.Kind != kind {
			continue
		}
		for _, i := range p.instances {
			delete(i.tools, named{kind, key.Name})
		}
		s.release(k)
	}
}

// release lets go of what is held.
func (s *state) release(k *pin) {
	if k.Held == nil {
		return
	}
	s.bytes -= len(k.Held.Definition)
	k.Held, k.Rejected, k.blocks = nil, false, false
	s.touched[k.PinKey] = struct{}{}
	if k.Since = s.now(); s.offered(k.PinKey) != nil || !k.Kind.remembered() {
		s.unpin(k.PinKey)
	}
}

// unpin forgets what is known of an offer beside its registration.
func (s *state) unpin(key PinKey) {
	k := s.pins.pins[key]
	if k == nil {
		return
	}
	if k.Held != nil {
		s.bytes -= len(k.Held.Definition)
	}
	delete(s.pins.pins, key)
	s.touched[key] = struct{}{}
	if l := s.offered(key); l != nil {
		l.pin = nil
	}
}

// remember keeps the hash of an offer that is taken off.
func (s *state) remember(l *listed) {
	key := l.provider.pinKey(l.offer.Tool.key())
	if s.policy.Definitions != Pin || !key.Kind.remembered() {
		s.unpin(key)
		return
	}
	k := s.pins.pins[key]
	if k == nil {
		k = &pin{Pinned: Pinned{PinKey: key, Hash: l.offer.Tool.Hash(), Since: s.now()}}
		s.pins.pins[key] = k
	}
	k.blocks, l.pin = false, nil
	s.touched[key] = struct{}{}
}

// savePins adds what is not handed over yet to a change.
func (s *state) savePins(c *Change) {
	for key := range s.touched {
		if k := s.pins.pins[key]; k != nil {
			c.PutPins = append(c.PutPins, k.Pinned)
		} else {
			c.DropPins = append(c.DropPins, key)
		}
	}
	clear(s.touched)
}

// steady is alike, but for what a resource changes with its content: its size, and when
// it was modified.
func (t *Tool) steady(u *Tool) bool {
	if t.alike(u) {
		return true
	}
	return t.Kind == KindResource && u.Kind == KindResource && slices.Equal(lasting(t.Definition), lasting(u.Definition))
}

// lasting is the hash of a resource without what changes with its content; none of what
// is no such text.
func lasting(definition []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(definition, &members) != nil {
		sum := sha256.Sum256(definition)
		return sum[:]
	}
	if _, err := json.Number(string(members["size"])).Float64(); err == nil {
		delete(members, "size")
	}
	var annotations map[string]json.RawMessage
	if json.Unmarshal(members["annotations"], &annotations) == nil {
		var at time.Time // parsed, for any other text could be read by a model
		if json.Unmarshal(annotations["lastModified"], &at) == nil {
			delete(annotations, "lastModified")
		}
		if len(annotations) == 0 {
			delete(members, "annotations")
		} else {
			members["annotations"], _ = json.Marshal(annotations) // of raw JSON: always encodes
		}
	}
	rest, _ := json.Marshal(members) // as above
	sum := sha256.Sum256(Canonical(rest))
	return sum[:]
}

// hints are a tool's promises by which clients decide whether to ask their users (MCP
// 2025-03-26 server/tools, ToolAnnotations), with their defaults.
type hints struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

func hintsOf(definition []byte) hints {
	t := struct{ Annotations hints }{hints{Destructive: true, OpenWorld: true}}
	if json.Unmarshal(definition, &t) != nil {
		return hints{Destructive: true, OpenWorld: true}
	}
	return t.Annotations
}

// weaker tells whether a definition promises less than another did. Clients call by what
// they are listed: a tool that says itself that it is no longer read-only must not run
// because it once was.
func weaker(was, now []byte) bool {
	w, n := hintsOf(was), hintsOf(now)
	return w.ReadOnly && !n.ReadOnly || !w.Destructive && n.Destructive || w.Idempotent && !n.Idempotent || !w.OpenWorld && n.OpenWorld
}
