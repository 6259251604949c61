package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rule names a guarantee of ARCHITECTURE.md that a history is checked for.
type Rule string

// The rules.
const (
	// RuleOnce: a call is delivered at most once.
	RuleOnce Rule = "delivered-once"
	// RuleEnds: an accepted call ends exactly once.
	RuleEnds Rule = "ends-once"
	// RuleOwn: a result is what the asked provider answered to this very call.
	RuleOwn Rule = "own-answer"
	// RuleBridge: nothing of one bridge reaches another, and nothing comes from nowhere.
	RuleBridge Rule = "own-bridge"
	// RuleTrue: "not delivered", "busy" and "refused" are not said of a call that was
	// delivered.
	RuleTrue Rule = "true-outcome"
	// RuleHidden: without a fault, no client notices anything.
	RuleHidden Rule = "hidden"
	// RuleDurable: what was acknowledged or listed is never taken back.
	RuleDurable Rule = "durable"
	// RuleWhole: a list has the whole of one set of each provider, and nothing that
	// nobody registered.
	RuleWhole Rule = "whole-set"
	// RuleOrder: calls are delivered to a connection in the order in which they were
	// accepted.
	RuleOrder Rule = "in-order"
	// RuleSession: an MCP session outlives everything.
	RuleSession Rule = "session-survives"
	// RuleServer: the server neither ends nor stays away by itself.
	RuleServer Rule = "server-lives"
)

// Violation is a guarantee that a history breaks.
type Violation struct {
	Rule Rule
	At   time.Duration
	What string
}

func (v Violation) String() string {
	return fmt.Sprintf("%-16s at %v: %s", v.Rule, v.At.Round(time.Millisecond), v.What)
}

// slack is for how long after a fault a call may still end in its shade: until
// providers have noticed, and have come back.
const slack = 5 * time.Second

// span is a time in which something was so; until is forever for one that never
// ended.
type span struct {
	from, until time.Duration
	fault       string
}

const forever = time.Duration(1<<63 - 1)

// callRecord is one call as the history has it.
type callRecord struct {
	begin    Event
	accepted *Event
	ends     []Event
	execs    []Event
	answers  []Event
}

// checker is a history, sorted out.
type checker struct {
	calls  map[string]*callRecord // by ID
	ids    []string               // in the order of their begin
	faults []span
	downs  map[string][]span // by bridge and provider
	found  []Violation
}

// Check finds what a history breaks, in the order of time.
func Check(events []Event) []Violation {
	c := &checker{calls: map[string]*callRecord{}, downs: map[string][]span{}}
	c.sort(events)
	for _, id := range c.ids {
		c.call(c.calls[id])
	}
	c.once(events)
	c.order()
	checkSets(c, events)
	slices.SortStableFunc(c.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return c.found
}

func (c *checker) breaks(r Rule, at time.Duration, format string, args ...any) {
	c.found = append(c.found, Violation{r, at, fmt.Sprintf(format, args...)})
}

// sort takes the events apart.
func (c *checker) sort(events []Event) {
	open := map[string]int{}                // faults under way
	conns := map[string]map[int]bool{}      // ready connections of a provider
	downSince := map[string]time.Duration{} // of providers that were ready and are not
	for _, e := range events {
		if e.Kind == CallBegin {
			c.calls[e.ID] = &callRecord{begin: e}
			c.ids = append(c.ids, e.ID)
		}
	}
	for _, e := range events {
		who := e.Bridge + "/" + e.Who
		r := c.calls[e.ID]
		if r == nil && slices.Contains([]Kind{CallAccepted, CallEnd, Exec, Answer}, e.Kind) {
			c.breaks(RuleBridge, e.At, "%s of a call %q that nobody made: %s", e.Kind, e.ID, who)
			continue
		}
		switch e.Kind {
		case CallAccepted:
			r.accepted = &e
		case CallEnd:
			r.ends = append(r.ends, e)
		case Exec:
			r.execs = append(r.execs, e)
		case Answer:
			r.answers = append(r.answers, e)
		case FaultBegin:
			open[e.Fault] = len(c.faults)
			c.faults = append(c.faults, span{e.At, forever, e.Fault})
		case FaultEnd:
			if i, ok := open[e.Fault]; ok {
				c.faults[i].until = e.At
				delete(open, e.Fault)
			}
		case Ready:
			if conns[who] == nil {
				conns[who] = map[int]bool{}
				c.downs[who] = append(c.downs[who], span{0, e.At, ""})
			} else if since, ok := downSince[who]; ok {
				c.downs[who] = append(c.downs[who], span{since, e.At, ""})
				delete(downSince, who)
			}
			conns[who][e.Conn] = true
		case Down:
			was := len(conns[who])
			delete(conns[who], e.Conn)
			if was > 0 && len(conns[who]) == 0 {
				downSince[who] = e.At
			}
		case SessionLost:
			c.breaks(RuleSession, e.At, "the session of %s is not known any more: %s", who, e.Text)
		case Broke:
			c.breaks(RuleServer, e.At, "%s", e.Text)
		default: // what other rules are about
		}
	}
	for who, since := range downSince {
		c.downs[who] = append(c.downs[who], span{since, forever, ""})
	}
}

// call checks one call by itself.
func (c *checker) call(r *callRecord) {
	b := r.begin
	who := b.Bridge + "/" + b.Who
	if len(r.ends) != 1 {
		c.breaks(RuleEnds, b.At, "call %s of %s ended %d times", b.ID, who, len(r.ends))
		if len(r.ends) == 0 {
			return
		}
	}
	if len(r.execs) > 1 {
		c.breaks(RuleOnce, r.execs[1].At, "call %s of %s was delivered %d times", b.ID, who, len(r.execs))
	}
	for _, x := range r.execs {
		if x.Bridge != b.Bridge || x.Tool != b.Tool {
			c.breaks(RuleBridge, x.At, "call %s of %s to %s reached %s/%s as %s", b.ID, who, b.Tool, x.Bridge, x.Who, x.Tool)
		}
	}
	end := r.ends[0]
	switch end.Outcome {
	case Result:
		if end.N != 1 {
			c.breaks(RuleEnds, end.At, "call %s of %s was answered %d times", b.ID, who, end.N)
		}
		if !slices.ContainsFunc(r.answers, func(a Event) bool { return a.Text == end.Text }) {
			c.breaks(RuleOwn, end.At, "call %s of %s got %q, which nobody answered to it", b.ID, who, end.Text)
		}
		return
	case Away, Busy, Refused, NoTool:
		if len(r.execs) > 0 {
			c.breaks(RuleTrue, end.At, "call %s of %s ended as %q, but was delivered at %v", b.ID, who, end.Outcome, r.execs[0].At)
		}
	default: // it may have been delivered, or not
	}
	if why := c.excuse(r, end); why == "" {
		c.breaks(RuleHidden, end.At, "call %s of %s, made at %v, ended as %q: %s", b.ID, who, b.At.Round(time.Millisecond), end.Outcome, end.Text)
	}
}

// excuse is the fault that may have spoiled a call, or empty.
func (c *checker) excuse(r *callRecord, end Event) string {
	within := func(s span, more time.Duration) bool {
		return s.from <= end.At && (s.until > forever-more || s.until+more >= r.begin.At)
	}
	if end.Outcome == Busy {
		return "" // no limit is near
	}
	cutOff := end.Outcome == Broken || end.Outcome == Silent
	for _, f := range c.faults {
		switch {
		case cutOff && ends[f.fault] && within(f, 0), !cutOff && !unseen[f.fault] && within(f, slack):
			return f.fault
		}
	}
	if cutOff {
		return ""
	}
	spans, ever := c.downs[r.begin.Bridge+"/"+providerOf(r.begin.Tool)]
	if !ever {
		return "its provider never came"
	}
	for _, s := range spans {
		if within(s, 0) {
			return "its provider was away"
		}
	}
	return ""
}

// once checks that the bridge's own IDs of calls are given once.
func (c *checker) once(events []Event) {
	first := map[string]Event{}
	for _, e := range events {
		if e.Kind != Exec {
			continue
		}
		if f, ok := first[e.CallID]; ok && f.ID != e.ID {
			c.breaks(RuleOnce, e.At, "the bridge gave calls %s and %s one ID, %q", f.ID, e.ID, e.CallID)
		}
		first[e.CallID] = e
	}
}

// order checks the calls whose order of acceptance is known: each was accepted
// before the next was made.
func (c *checker) order() {
	type lane struct {
		who  string
		conn int
	}
	lanes := map[lane][]*callRecord{}
	for _, id := range c.ids {
		if r := c.calls[id]; r.accepted != nil && len(r.execs) > 0 {
			x := r.execs[0]
			k := lane{x.Bridge + "/" + x.Who, x.Conn}
			lanes[k] = append(lanes[k], r)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(lanes), func(a, b lane) int { return cmp.Compare(a.conn, b.conn) }) {
		all := lanes[k]
		for i, r := range all[1:] {
			last := all[i]
			if last.accepted.At < r.begin.At && last.execs[0].At > r.execs[0].At && !c.restarted(last.accepted.At, r.execs[0].At) {
				c.breaks(RuleOrder, r.execs[0].At, "%s was given call %s before %s, which was accepted earlier", k.who, r.begin.ID, last.begin.ID)
			}
		}
	}
}

// restarted tells whether the server was another process at the two times. What the first
// had accepted and given to nobody its clients have asked the second for, each when it
// liked.
func (c *checker) restarted(from, until time.Duration) bool {
	return slices.ContainsFunc(c.faults, func(f span) bool { return restarts[f.fault] && f.from < until && f.until > from })
}
