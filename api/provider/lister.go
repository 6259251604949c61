package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// Bounds of reading a list.
const (
	maxPages    = 1000            // of a list
	listRetries = 5               // of a list that the server failed to give
	listRetry   = 2 * time.Second // before the first; it doubles
)

// lister reads one kind of list, page after page. Its owner's lock guards it.
type lister struct {
	id      string // of the request under way; empty when none is
	waiting bool   // a reading is due in a moment
	stale   bool   // the list has changed during the reading
	failed  int    // readings in a row

	// Of the reading under way.
	pages   int
	cursors map[string]bool
	offers  []session.Tool
	names   map[string]bool
	refused []string
	warned  map[string]string // what was said of tools, by name
	bytes   int
}

// refresh has a list read in a while, once for all that is asked meanwhile. It is
// called with the lock held.
func (m *mcpServer) refresh(k session.Kind, d time.Duration) {
	l := m.lists[k]
	switch {
	case l.waiting:
	case l.id != "":
		l.stale = true
	case d == 0:
		m.read(k)
	default:
		l.waiting = true
		m.after(d, func() { l.waiting = false; m.read(k) })
	}
}

// read starts reading a list.
func (m *mcpServer) read(k session.Kind) {
	*m.lists[k] = lister{failed: m.lists[k].failed, names: map[string]bool{}, cursors: map[string]bool{}, warned: map[string]string{}}
	m.page(k, "")
}

func (m *mcpServer) page(k session.Kind, members string) {
	m.lists[k].id = m.request("list", kinds[k].method, members, m.era.Load() == eraModern)
}

// listed takes one page. The next is asked for; after the last, the list is registered.
func (m *mcpServer) listed(k session.Kind, l *lister, r *rpc) error {
	l.id = ""
	next, err := m.take(k, l, r)
	if err != nil {
		return m.unlisted(k, l, err)
	}
	if next != nil {
		l.pages++
		switch {
		case l.cursors[string(next)]:
			err = errors.New("the same cursor came twice")
		case l.pages >= maxPages:
			err = fmt.Errorf("limit reached: at most %d pages of a list", maxPages)
		case len(l.offers)+len(l.refused) >= m.e.limits.Tools:
			err = &session.LimitError{Limit: k.String() + " on a bridge", Max: m.e.limits.Tools}
		case l.bytes >= m.e.limits.CatalogBytes:
			err = &session.LimitError{Limit: "all definitions of a bridge", Max: m.e.limits.CatalogBytes, Unit: "bytes"}
		default:
			l.cursors[string(next)] = true
			m.page(k, `"cursor":`+string(next))
			return nil
		}
		m.e.cfg.Log.Warn("the rest of a server's list was left", "bridge", m.bridge, "list", k.String(), "err", err)
	}
	l.failed = 0
	return m.register(k, l)
}

// take reads one page's offers and its cursor.
func (m *mcpServer) take(k session.Kind, l *lister, r *rpc) (next json.RawMessage, err error) {
	if raw := r.members[rError]; raw != nil {
		e, err := readError(raw, m.e.limits.MessageDepth)
		if err != nil {
			return nil, err
		}
		if e.Code == codeUnknownMethod {
			return nil, nil // it has none
		}
		return nil, e
	}
	if r.result.Raw == nil {
		return nil, errors.New("the result is not an object")
	}
	found := false
	s := wire.Reread(r.result.Raw)
	err = s.Object(func(name []byte) error {
		if string(name) == kinds[k].member && s.Kind() == '[' {
			found = true
			return s.Array(func() error {
				v, err := s.Raw()
				m.offer(k, l, v)
				return err
			})
		}
		v, err := s.Raw()
		if string(name) == "nextCursor" && v[0] == '"' {
			next = own(v)
		}
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("the result has no %q", kinds[k].member)
	}
	return next, err
}

// codeUnknownMethod is JSON-RPC's code for a method that is not there.
const codeUnknownMethod = -32601

// offer takes one element of a list, or refuses it alone.
func (m *mcpServer) offer(k session.Kind, l *lister, raw json.RawMessage) {
	t, warnings, err := readOffer(k, raw, m.e.limits)
	if err == nil && l.names[t.Name] {
		err = &toolError{"duplicate", "the list has the name twice"}
		t.Name = ""
	}
	if err != nil {
		m.logRejected(m.rejection(t.Name, err))
		if t.Name != "" {
			l.refused = append(l.refused, t.Name)
		}
		return
	}
	if text := strings.Join(warnings, "; "); text != "" {
		if m.warned[k][t.Name] != text { // the protocol has no way to tell the server
			m.e.cfg.Log.Warn("offer taken with a warning", "bridge", m.bridge, "list", k.String(), "name", clip(t.Name), "warning", text)
		}
		l.warned[t.Name] = text
	}
	l.names[t.Name] = true
	l.bytes += len(t.Definition)
	l.offers = append(l.offers, t)
}

// register makes what was read the whole set of the provider's offers of a kind. The
// connection becomes an instance with the first list, so that no call comes before.
func (m *mcpServer) register(k session.Kind, l *lister) error {
	if err := m.join(); err != nil {
		return err
	}
	m.warned[k] = l.warned
	offers, refused, stale := l.offers, l.refused, l.stale
	*l = lister{}
	err := m.inst.Replace(k, offers, refused, func(r session.Registered) {
		if r.Err != nil {
			m.e.cfg.Log.Warn("registration failed", "bridge", m.bridge, "err", r.Err)
		}
		for _, x := range r.Rejected {
			m.logRejected(m.rejection(x.Name, x.Err))
		}
		for _, h := range r.Held { // the protocol has no way to tell the server
			m.logHeld(h)
		}
	})
	if err != nil {
		return err
	}
	if stale {
		m.refresh(k, coalesce)
	}
	return nil
}

// join makes the connection an instance, once, and then asks for the other lists.
func (m *mcpServer) join() error {
	if m.inst != nil {
		return nil
	}
	h := session.Hello{Provider: m.provider(), Title: m.info.title, Version: m.info.version, About: m.info.about, Retain: -1}
	if err := m.attach(h, false); err != nil {
		return m.unattached(err)
	}
	for k, l := range m.lists {
		if l != nil && session.Kind(k) != session.KindTool {
			m.refresh(session.Kind(k), 0)
		}
	}
	m.resubscribe()
	return nil
}

// unlisted leaves what is registered as it is, after a list that the server failed to
// give, and has it read again a few times.
func (m *mcpServer) unlisted(k session.Kind, l *lister, err error) error {
	m.e.cfg.Log.Warn("the server did not give its list", "bridge", m.bridge, "list", k.String(), "err", err)
	*l = lister{failed: l.failed + 1}
	if l.failed <= listRetries {
		m.refresh(k, listRetry<<(l.failed-1))
	}
	return m.join()
}
