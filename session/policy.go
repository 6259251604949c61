package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is how a Bridge settles what its providers do to each other and to what
// clients know. An empty field means the default in brackets.
type Policy struct {
	// Instances is what a further live instance of a provider does: "share" joins
	// the others, "single" closes them, "reject" is refused [share].
	Instances string
	// Names is what becomes of a name that another provider holds: "suffix" lists
	// the newcomer under another name, "reject" refuses it [suffix].
	Names string
	// Definitions is what becomes of a changed definition of a known tool: "trust"
	// lists it, "pin" holds it until it is approved [pin; trust in open mode].
	Definitions string
}

// The words of a Policy.
const (
	Share  = "share"
	Single = "single"
	Reject = "reject"
	Suffix = "suffix"
	Pin    = "pin"
	Trust  = "trust"
)

// settings are the members of a policy that this version knows, with their words.
var settings = []struct {
	name  string
	field func(*Policy) *string
	words []string
}{
	{"instances", func(p *Policy) *string { return &p.Instances }, []string{Share, Single, Reject}},
	{"names", func(p *Policy) *string { return &p.Names }, []string{Suffix, Reject}},
	{"definitions", func(p *Policy) *string { return &p.Definitions }, []string{Pin, Trust}},
}

// ParsePolicy reads a JSON object; empty text is the zero Policy. A member that it
// does not know is left to its owner. The error names the member and its words, and
// what could be read is returned with it.
func ParsePolicy(text json.RawMessage) (p Policy, err error) {
	if len(text) == 0 {
		return p, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return p, fmt.Errorf("a policy is a JSON object: %w", err)
	}
	for _, s := range settings {
		raw, ok := members[s.name]
		if !ok {
			continue
		}
		var word string
		if json.Unmarshal(raw, &word) != nil || !slices.Contains(s.words, word) {
			err = fmt.Errorf("policy %q is %.40s, want one of %s", s.name, raw, strings.Join(s.words, ", "))
			continue
		}
		*s.field(&p) = word
	}
	return p, err
}

// Or fills the empty fields from other.
func (p Policy) Or(other Policy) Policy {
	for _, s := range settings {
		or(s.field(&p), *s.field(&other))
	}
	return p
}

var defaultPolicy = Policy{Instances: Share, Names: Suffix, Definitions: Pin}

type setPolicy struct {
	policy  Policy
	version uint64
	now     time.Time
}

// SetPolicy gives the session the policy that its bridge has since a version of it;
// that of an earlier version is not taken.
func (s *Session) SetPolicy(p Policy, version uint64) {
	_ = s.do(&setPolicy{p.Or(defaultPolicy), version, time.Now()}) // the next session reads the new one itself
}

func (p *setPolicy) apply(s *state) {
	if s.stopped || p.version <= s.policyVersion {
		return
	}
	s.policy, s.policyVersion = p.policy, p.version
	if s.policy.Definitions == Trust {
		s.trust()
	}
	if s.policy.Instances == Single {
		for _, q := range s.providers {
			s.replaceOlder(q, p.now)
		}
	}
}
