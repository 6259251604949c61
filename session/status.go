package session

import (
	"slices"
	"strings"
	"time"
)

// Status is what a Session is doing.
type Status struct {
	Revision  uint64 // of the durable catalog
	Policy    Policy // every field filled in
	Providers []ProviderStatus
	Calls     int // in flight
	Streams   int
}

// ProviderStatus is what one Provider is doing.
type ProviderStatus struct {
	ID        ProviderID
	Title     string
	Version   string
	Instances int
	LeftAt    time.Time  // zero while an instance is attached
	Tools     []Exposure // sorted by exposed name
	Others    int        // prompts, resources and templates
	Held      int        // changed definitions that wait for approval
}

// Status reports in the order of provider IDs.
func (s *Session) Status() (Status, error) {
	reply := make(chan Status, 1)
	if err := s.do(&inspect{reply}); err != nil {
		return Status{}, err
	}
	return <-reply, nil
}

func (c *inspect) apply(s *state) {
	shown := s.s.Catalog()
	st := Status{Revision: shown.Revision, Policy: s.policy, Calls: len(s.calls), Streams: len(s.watches)}
	for _, p := range s.providers {
		ps := ProviderStatus{ID: p.id, Title: p.title, Version: p.version, Instances: len(p.instances), LeftAt: p.leftAt}
		for key, l := range p.tools {
			if shown.Of(key.kind).Find(l.offer.Tool.Exposed) == nil {
				continue // not durable yet: nobody is listed it
			}
			if key.kind != KindTool {
				ps.Others++
				continue
			}
			ps.Tools = append(ps.Tools, Exposure{l.offer.Tool.Name, l.offer.Tool.Exposed})
		}
		for key, k := range s.pins.pins {
			if key.Provider == p.id && k.Held != nil && !k.Rejected {
				ps.Held++
			}
		}
		slices.SortFunc(ps.Tools, func(a, b Exposure) int { return strings.Compare(a.Exposed, b.Exposed) })
		st.Providers = append(st.Providers, ps)
	}
	slices.SortFunc(st.Providers, func(a, b ProviderStatus) int { return strings.Compare(string(a.ID), string(b.ID)) })
	c.reply <- st
}
