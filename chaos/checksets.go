package main

import (
	"maps"
	"slices"
	"time"
)

// write is one set of tools that a provider registered. It took effect at one moment
// between from and by: its acknowledgement, or the first list that had it.
type write struct {
	version  int
	from, by time.Duration
}

// checkSets checks the lists of every provider's tools as reads of a register that
// its registrations write: a list may have a set only if no other has surely taken
// its place.
func checkSets(c *checker, events []Event) {
	writes := map[string]map[int]*write{} // by bridge and provider, and version
	get := func(who string, version int, at time.Duration) *write {
		if writes[who] == nil {
			writes[who] = map[int]*write{0: {}} // nothing, from the start
		}
		w := writes[who][version]
		if w == nil {
			w = &write{version, at, forever}
			writes[who][version] = w
		}
		return w
	}
	// Events are in the order of time, so each write is here before its first read.
	for _, e := range events {
		switch e.Kind {
		case RegBegin:
			get(e.Bridge+"/"+e.Who, e.N, e.At)
		case RegAcked:
			w := get(e.Bridge+"/"+e.Who, e.N, e.At)
			w.by = min(w.by, e.At)
		case Listed:
			for provider, version := range e.Seen {
				if w := writes[e.Bridge+"/"+provider][version]; w != nil {
					w.by = min(w.by, e.At)
				}
			}
		default: // what other rules are about
		}
	}
	for _, e := range events {
		if e.Kind != Listed {
			continue
		}
		for provider := range e.Seen {
			if writes[e.Bridge+"/"+provider] == nil {
				c.breaks(RuleWhole, e.At, "bridge %s lists tools of %s, which registered none", e.Bridge, provider)
			}
		}
		for _, who := range slices.Sorted(maps.Keys(writes)) {
			if bridge, provider := split(who); bridge == e.Bridge {
				checkRead(c, e, who, e.Seen[provider], writes[who])
			}
		}
	}
}

// checkRead checks what one list has of one provider.
func checkRead(c *checker, e Event, who string, version int, writes map[int]*write) {
	if version == Torn {
		c.breaks(RuleWhole, e.At, "the list of %v has a part of a set of %s, or parts of two", e.From, who)
		return
	}
	w := writes[version]
	if w == nil || w.from > e.At {
		c.breaks(RuleWhole, e.At, "the list has set %d of %s, which was never registered", version, who)
		return
	}
	for _, other := range writes {
		// w took effect before other was sent, and other before this list was asked for.
		if other != w && w.by <= other.from && other.by <= e.From {
			c.breaks(RuleDurable, e.At, "the list has set %d of %s, though set %d was acknowledged or listed by %v", version, who, other.version, other.by.Round(time.Millisecond))
			return
		}
	}
}
