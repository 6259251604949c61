package mcp

import (
	"container/list"
	"sync"

	"mcpbridge/session"
)

// roster is the MCP sessions in this process's memory, by Mcp-Session-Id. Beyond max the
// least recently used falls out, unless it is in use at the moment; its handle stays
// valid, so that it comes back when it is used again.
type roster struct {
	max int

	mu    sync.Mutex // the sessions' own locks are taken under it
	all   map[string]*list.Element
	order list.List // of *seat, most recently used first
	round int64     // of the janitor
}

type seat struct {
	text string // Mcp-Session-Id
	s    *mcpSession
	used int64 // the janitor's round when it was last used
}

// get finds a session, and notes that it is used.
func (r *roster) get(text string) *mcpSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.all[text]; ok {
		return r.touch(e).s
	}
	return nil
}

// put keeps a session; the one that was there first stays.
func (r *roster) put(text string, s *mcpSession) *mcpSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.all[text]; ok {
		return r.touch(e).s
	}
	if r.all == nil {
		r.all = map[string]*list.Element{}
	}
	r.all[text] = r.order.PushFront(&seat{text, s, r.round})
	for n := 0; r.order.Len() > r.max && n < maxPassed; n++ {
		oldest := r.order.Back()
		if seatOf(oldest).s.busy() {
			r.touch(oldest)
			continue
		}
		r.drop(oldest)
	}
	return s
}

// maxPassed is how many sessions that are in use are passed over before a new one is
// kept beyond the bound. What is in use has bounds of its own.
const maxPassed = 64

// sweep lets go of what was not used in the last two rounds.
func (r *roster) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	for e := r.order.Back(); e != nil && seatOf(e).used+2 <= r.round; {
		old := e
		e = e.Prev()
		if s := seatOf(old).s; !s.busy() && !s.taped() {
			r.drop(old)
		}
	}
}

// of finds the sessions of a bridge.
func (r *roster) of(bridge session.BridgeID) (found []*mcpSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.order.Front(); e != nil; e = e.Next() {
		if s := seatOf(e).s; s.Bridge == bridge {
			found = append(found, s)
		}
	}
	return found
}

func (r *roster) touch(e *list.Element) *seat {
	r.order.MoveToFront(e)
	t := seatOf(e)
	t.used = r.round
	return t
}

func (r *roster) drop(e *list.Element) {
	r.order.Remove(e)
	t := seatOf(e)
	delete(r.all, t.text)
	t.s.forgetTapes()
}

func seatOf(e *list.Element) *seat {
	return e.Value.(*seat) //nolint:forcetypeassert // the list holds nothing else
}
