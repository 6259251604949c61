package api

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/api/rest"
	"mcpbridge/session"
	"mcpbridge/store"
)

// Bounds of tickets.
const (
	ticketLife = 30 * time.Second
	maxTickets = 10_000 // not yet used
)

// tickets are one-time credentials of browsers, whose WebSockets carry no header: they
// come as a subprotocol, so that no URL has them. They are in memory alone: whoever had
// one when the process ended asks again.
type tickets struct {
	mu   sync.Mutex
	byID map[string]ticket
}

type ticket struct {
	store.Token        // its Kind is [credential.Ticket]; By asked for it
	origin      string // of the page; empty is any
}

// mint makes a ticket.
func (k *tickets) mint(bridge session.BridgeID, origin, by string) (credential.Secret, time.Time, error) {
	now := time.Now()
	t, secret := credential.New(credential.Ticket, bridge, now)
	t.By, t.Expires = by, now.Add(ticketLife)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.byID) >= maxTickets {
		maps.DeleteFunc(k.byID, func(_ string, t ticket) bool { return !now.Before(t.Expires) })
	}
	if len(k.byID) >= maxTickets {
		return credential.Secret{}, time.Time{}, &session.LimitError{Limit: "tickets that are not yet used", Max: maxTickets}
	}
	if k.byID == nil {
		k.byID = map[string]ticket{}
	}
	k.byID[t.ID] = ticket{t, origin}
	return secret, t.Expires, nil
}

// take uses a ticket up, and returns who asked for it. One that is shown for another
// bridge, or by a page of another origin, is used up too.
func (k *tickets) take(text string, bridge session.BridgeID, origin string, now time.Time) (by string, err error) {
	kind, id, err := credential.Parse(text)
	if err != nil || kind != credential.Ticket {
		return "", ErrBadCredential
	}
	k.mu.Lock()
	t := k.byID[id]
	good := credential.Verify(t.Token, text)
	if good { // nobody uses up a ticket whose ID alone they know
		delete(k.byID, id)
	}
	k.mu.Unlock()
	switch {
	case !good, !now.Before(t.Expires), t.origin != "" && !strings.EqualFold(t.origin, origin):
		return "", ErrBadCredential
	case t.Bridge != bridge:
		return "", ErrForbidden
	}
	return t.By, nil
}

// ticketOf finds the ticket among the subprotocols that a request asks for.
func ticketOf(r *http.Request) (text string, ok bool) {
	for _, header := range r.Header["Sec-Websocket-Protocol"] {
		for one := range strings.SplitSeq(header, ",") {
			if text, ok = strings.CutPrefix(strings.TrimSpace(one), rest.TicketProtocol); ok {
				return text, true
			}
		}
	}
	return "", false
}

// serveTickets answers POST /b/{bridge}/tickets: whoever holds the bridge's provider token
// gets a ticket for the page that asks.
func (s *Server) serveTickets(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	if cors(w, r) {
		return
	}
	g, ok := s.allow(w, r, id, store.ProviderToken)
	if !ok {
		return
	}
	defer g.done()
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST, OPTIONS")
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "this path does not take that method"})
		return
	}
	secret, expires, err := s.auth.tickets.mint(id, r.Header.Get("Origin"), g.token.ID)
	if err != nil {
		s.refuse(w, err)
		return
	}
	text := secret.Reveal()
	writeJSON(w, http.StatusCreated, map[string]any{
		"ticket": text, "subprotocol": rest.TicketProtocol + text, "expires": expires.UTC(),
	})
}
