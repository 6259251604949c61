package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// An MCP session is a sealed handle: what it says is in the Mcp-Session-Id itself,
// so that any process with the store's key can go on with it. What lives in
// memory, an mcpSession, is what one process needs while it is used.

// handle is what an Mcp-Session-Id says.
type handle struct {
	ID        string           `json:"i"` // unguessable
	Bridge    session.BridgeID `json:"b"`
	Principal string           `json:"p"`           // who initialized it
	Version   string           `json:"v"`           // negotiated revision
	Name      json.RawMessage  `json:"n,omitempty"` // client's name, a JSON string
	Release   json.RawMessage  `json:"r,omitempty"` // client's version, a JSON string
	Caps      json.RawMessage  `json:"c,omitempty"` // client's capabilities, an object
	Begun     int64            `json:"t"`           // Unix seconds
}

const handlePurpose = "mcp-session"

// maxCaps is the longest list of capabilities that a handle holds, in bytes. A
// client that declares more counts as one that declares none.
const maxCaps = 1024

// sessionLife is how long after initialize a session's handle is valid.
const sessionLife = 30 * 24 * time.Hour

func (h *handle) expires() time.Time { return time.Unix(h.Begun, 0).Add(sessionLife) }

// mcpSession is an MCP session in this process.
type mcpSession struct {
	handle
	level atomic.Int32  // least log level to send
	told  atomic.Uint64 // revision of the catalog that its streams have told it of; 0 when not known

	mu     sync.Mutex
	calls  map[string]chan struct{} // in flight, by the client's raw id; closed to cancel
	open   map[string]func(reply)   // requests of ours to the client, by raw id
	subs   map[string]struct{}      // subscribed resources, by exposed URI
	opened uint64                   // how many of these there were
	stream *getStream               // nil without one
	away   away
	tapes  []*tape // streams that can be resumed, oldest first
	ended  bool
}

// defaultLevel is what a session is sent until it asks for something else.
var defaultLevel = int32(wire.LogLevel("info")) //nolint:gosec // 0 to 7

// makeSession makes a session that nobody knows yet.
func (e *Endpoint) makeSession(bridge session.BridgeID, principal, version string, c client, caps json.RawMessage) *mcpSession {
	if len(caps) > maxCaps || len(caps) > 0 && caps[0] != '{' {
		caps = nil
	}
	s := &mcpSession{handle: handle{
		ID: rand.Text(), Bridge: bridge, Principal: principal, Version: version,
		Name: bytes.Clone(c.name), Release: bytes.Clone(c.version), // they outlive the request's memory
		Caps: bytes.Clone(caps), Begun: time.Now().Unix(),
	}}
	s.level.Store(defaultLevel)
	return s
}

// newSession makes a session and its handle's text.
func (e *Endpoint) newSession(bridge session.BridgeID, principal, version string, c client, caps json.RawMessage) (*mcpSession, string) {
	s := e.makeSession(bridge, principal, version, c, caps)
	text, err := json.Marshal(s.handle)
	if err != nil {
		panic("mcp: " + err.Error()) // its raw members come from a checked message
	}
	sealed := e.cfg.Box.Seal(handlePurpose, text)
	e.sessions.put(sealed, s)
	return s, sealed
}

// session opens a handle for a bridge and a principal; nil when it is not valid
// there, or was ended.
func (e *Endpoint) session(ctx context.Context, text string, bridge session.BridgeID, principal string) (*mcpSession, error) {
	if s := e.sessions.get(text); s != nil {
		if s.Bridge != bridge || s.Principal != principal || s.isEnded() {
			return nil, nil
		}
		return s, nil
	}
	plain, ok := e.cfg.Box.Open(handlePurpose, text)
	if !ok {
		return nil, nil
	}
	s := &mcpSession{}
	if err := json.Unmarshal(plain, &s.handle); err != nil {
		return nil, nil //nolint:nilerr // sealed by a later version: not valid here
	}
	if s.Bridge != bridge || s.Principal != principal || time.Now().After(s.expires()) {
		return nil, nil
	}
	ended, err := e.cfg.Store.SessionEnded(ctx, bridge, s.ID)
	if err != nil || ended {
		return nil, err
	}
	s.level.Store(defaultLevel)
	return e.sessions.put(text, s), nil
}

func (s *mcpSession) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// track notes a call in flight, so that notifications/cancelled finds it. A second
// call under the same id is not tracked: cancelling means the first.
func (s *mcpSession) track(id string) (cancelled chan struct{}, done func()) {
	c := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.calls[id]; taken {
		return c, func() {}
	}
	if s.calls == nil {
		s.calls = map[string]chan struct{}{}
	}
	s.calls[id] = c
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, id)
	}
}

// cancel cancels a call in flight, once.
func (s *mcpSession) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.calls[id]; ok {
		close(c)
		delete(s.calls, id)
	}
}

// reply is a client's answer to a request of ours: a result, or an error.
type reply struct{ result, err json.RawMessage }

// expect notes a request of ours, under an id that the session has not used. take gets
// the answer; it must not block. forget tells whether there was none.
func (s *mcpSession) expect(take func(reply)) (id string, forget func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	id = `"bridge-` + strconv.FormatUint(s.opened, 10) + `"`
	if s.open == nil {
		s.open = map[string]func(reply){}
	}
	s.open[id] = take
	return id, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, open := s.open[id]
		delete(s.open, id)
		return open
	}
}

// answer hands a client's answer to whoever asked. One that nobody waits for is
// dropped.
func (s *mcpSession) answer(id string, r reply) {
	s.mu.Lock()
	take := s.open[id]
	delete(s.open, id)
	s.mu.Unlock()
	if take != nil {
		take(r)
	}
}

// maxSubscriptions bounds the resources that a session is subscribed to.
const maxSubscriptions = 256

// subscribe notes a subscription, or its end. False when there are too many.
func (s *mcpSession) subscribe(uri string, on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !on {
		delete(s.subs, uri)
		return true
	}
	if _, ok := s.subs[uri]; !ok && len(s.subs) >= maxSubscriptions {
		return false
	}
	if s.subs == nil {
		s.subs = map[string]struct{}{}
	}
	s.subs[uri] = struct{}{}
	return true
}

func (s *mcpSession) subscribed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.subs[uri]
	return ok
}

// end ends the session in this process.
func (s *mcpSession) end() {
	defer s.dropWatch(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.stream != nil {
		close(s.stream.replaced)
		s.stream = nil
	}
	for _, t := range s.tapes {
		t.mu.Lock()
		if t.carrier != nil && !t.carrier.own { // a call's own response goes on to the call's end
			t.carrier.leave()
		}
		t.mu.Unlock()
	}
	s.tapes = nil
}

// busy tells whether the session is in use at the moment.
func (s *mcpSession) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream != nil || s.away.watch != nil || len(s.calls) > 0 || len(s.open) > 0
}

// taped tells whether there is something for the client to come back to.
func (s *mcpSession) taped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tapes) > 0
}

// forgetTapes gives up what is kept for the client to come back to.
func (s *mcpSession) forgetTapes() {
	s.mu.Lock()
	tapes := s.tapes
	s.tapes = nil
	s.mu.Unlock()
	for _, t := range tapes {
		t.forget()
	}
}

// janitorRound is how often sessions that nobody uses are let go from memory;
// their handles stay valid. A log level that was set is forgotten with them.
const janitorRound = 10 * time.Minute

func (e *Endpoint) janitor() {
	t := time.NewTicker(janitorRound)
	defer t.Stop()
	tapes := time.NewTicker(tapeLife / 5)
	defer tapes.Stop()
	for {
		select {
		case <-e.quit:
			return
		case now := <-tapes.C:
			e.shelf.sweep(now.Add(-tapeLife), func() bool { return false })
			continue
		case <-t.C:
		}
		e.sessions.sweep()
	}
}

// delete answers DELETE: it ends the session for every process.
func (e *Endpoint) delete(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	s, ok := e.mustSession(w, r, bridge, principal)
	if !ok {
		return
	}
	if err := e.cfg.Store.EndSession(r.Context(), bridge, s.ID, s.expires()); err != nil {
		e.refuse(w, err)
		return
	}
	s.end()
	w.WriteHeader(http.StatusNoContent)
}

// mustSession finds the session that a GET or DELETE names, or answers why not.
func (e *Endpoint) mustSession(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) (*mcpSession, bool) {
	text := r.Header.Get("Mcp-Session-Id")
	if text == "" {
		e.writeError(w, http.StatusBadRequest, codeInvalidRequest, "the header Mcp-Session-Id is missing")
		return nil, false
	}
	s, err := e.session(r.Context(), text, bridge, principal)
	if err != nil {
		e.refuse(w, err)
		return nil, false
	}
	if s == nil {
		e.writeError(w, http.StatusNotFound, codeInvalidRequest, sessionGone)
		return nil, false
	}
	return s, true
}

const sessionGone = "there is no such session; initialize a new one"
