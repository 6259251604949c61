package mcp

import (
	"time"

	"mcpbridge/session"
)

// A client of 2026-07-28 names in subscriptions/listen the resources that it wants to
// hear of; providers learn it as from other clients, by resources/subscribe.

// subscribePatience is how long providers have to answer, all together: the client
// waits for its acknowledgement.
const subscribePatience = 2 * time.Second

// subscribeAll tells the providers of these resources that somebody listens, and returns
// what tells them that nobody does any more. A provider that is away, or has no
// subscriptions, is listened to all the same.
func (x *exchange) subscribeAll(s *session.Session, uris []string) (undo func()) {
	var all []target
	for _, uri := range uris {
		if to, found := resolve(s.Catalog(), uri); found {
			all = append(all, to)
		}
	}
	taken := x.tellAll(s, "resources/subscribe", all)
	return func() { x.tellAll(s, "resources/unsubscribe", taken) }
}

// tellAll makes a call for each target, and returns those that were answered with a
// result.
func (x *exchange) tellAll(s *session.Session, method string, all []target) (taken []target) {
	deadline := time.Now().Add(subscribePatience)
	calls := make([]*session.Call, len(all))
	for i, to := range all {
		c := &session.Call{Kind: to.kind, Principal: x.principal, Tool: to.name, Method: method, Target: to.uri, Deadline: deadline}
		x.describe(c)
		if s.Begin(c) != nil {
			break // the session has ended; so will the stream
		}
		s.Unpark(c, nil)
		calls[i] = c
	}
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	passed := false
	for i, c := range calls {
		if c == nil {
			break
		}
		var o session.Outcome
		if passed {
			o = s.Abandon(c, session.ErrTimeout)
		} else {
			select {
			case o = <-c.Done():
			case <-late.C:
				passed = true
				o = s.Abandon(c, session.ErrTimeout)
			}
		}
		if o.Err == nil {
			taken = append(taken, all[i])
		}
		o.Result.Release()
	}
	return taken
}
