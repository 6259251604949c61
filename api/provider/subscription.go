package provider

import (
	"maps"
	"slices"

	"mcpbridge/session"
)

// subscription is one resource that the server tells of.
type subscription struct {
	users int    // clients' sessions that asked for it
	id    string // of the request, where the subscription is one that stays open
}

// maxSubscriptions bounds the resources of a server whose subscriptions are counted;
// beyond it every request is passed on.
const maxSubscriptions = 1024

// appendSubscription appends what resources/subscribe and resources/unsubscribe are to
// the server. All clients share its one subscription to a resource: the first begins
// it, the last ends it, and what changes nothing is answered here. A modern server has
// neither method: a subscriptions/listen of its own stands for each resource.
func (m *mcpServer) appendSubscription(b []byte, c *session.Call) []byte {
	uri, on, modern := c.Name(), c.Method == "resources/subscribe", m.era.Load() == eraModern
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.subs[uri]
	if s == nil && on && len(m.subs) < maxSubscriptions {
		if m.subs == nil {
			m.subs = map[string]*subscription{}
		}
		s = &subscription{}
		m.subs[uri] = s
	}
	pass := !modern && s == nil
	if s != nil {
		if on {
			s.users++
			pass = s.users == 1
		} else {
			s.users--
			if pass = s.users == 0; pass {
				delete(m.subs, uri)
			}
		}
	}
	switch {
	case !pass:
	case !modern:
		b = append(b, `{"jsonrpc":"2.0","id":"`...)
		b = c.AppendID(b)
		b = append(append(append(b, `","method":"`...), c.Method...), `","params":{"uri":`...)
		return append(appendString(b, uri), "}}"...)
	case on:
		s.id = m.listenTo(uri)
	default:
		b = append(append(b, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"`...), s.id...)
		b = append(b, `"}}`...)
	}
	m.finishHere(c)
	return b
}

// listenTo subscribes to a resource of a modern server.
func (m *mcpServer) listenTo(uri string) (id string) {
	return m.request("subscription", "subscriptions/listen",
		`"notifications":{"resourceSubscriptions":[`+string(appendString(nil, uri))+`]}`, true)
}

// resubscribe begins anew what clients had subscribed to before the server came back,
// and counts that as updated: what happened meanwhile nobody knows.
func (m *mcpServer) resubscribe() {
	all := m.inst.Subscriptions()
	if len(all) == 0 {
		return
	}
	m.subs = map[string]*subscription{}
	for _, uri := range slices.Sorted(maps.Keys(all)) {
		s := &subscription{users: all[uri]}
		m.subs[uri] = s
		if m.era.Load() == eraModern {
			s.id = m.listenTo(uri)
		} else {
			m.request("subscription", "resources/subscribe", `"uri":`+string(appendString(nil, uri)), false)
		}
		_ = m.inst.Updated(uri) // a session that has ended tells nobody
	}
}

// finishHere answers a call that the server need not answer.
func (m *mcpServer) finishHere(c *session.Call) {
	_ = m.inst.Finish(c.AppendID(nil), session.Result{Raw: []byte("{}")}) // a session that has ended has answered
}
