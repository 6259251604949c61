package mcp

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Streams of sessions of 2025-03-26 to 2025-11-25 can be resumed: their events carry
// ids, and a client whose connection broke asks by Last-Event-ID for what came after
// one, on the same stream (MCP 2025-11-25 basic/transports, "Resumability and
// Redelivery"). So a stream is a tape that is written whether or not a response
// carries it, and one response carries it at a time.

// Bounds of what is kept for clients to come back to. The oldest events go first; the
// newest, which may be the answer, is kept whatever its size, but for maxKept.
const (
	maxFrames = 256             // events of one tape
	maxTape   = 1 << 20         // bytes of one tape
	maxTapes  = 16              // of one session; a stream beyond it has no ids
	maxKept   = 64 << 20        // bytes of all tapes together
	tapeLife  = 5 * time.Minute // after a stream has ended
)

// retryAfterMS is how soon a client of 2025-11-25 should come back, in milliseconds.
const retryAfterMS = "1000"

// Kinds of tape: what a request's answer is on, and what no request asked for.
const (
	answerTape = 'a'
	getTape    = 'g'
)

// frame is one event as it goes over the wire.
type frame struct {
	n    uint64 // counted from 1 on its tape
	text []byte
}

// tape is the events of one stream.
type tape struct {
	e  *Endpoint
	s  *mcpSession
	id string // what the ids of its events begin with

	mu       sync.Mutex // never held over anything that waits
	frames   []frame    // what is kept, in order
	size     int        // of it, in bytes
	last     uint64     // the newest event's number
	complete bool       // nothing comes any more
	gone     bool       // it cannot be resumed any more, and keeps nothing
	rested   time.Time  // since when nothing writes it; zero while something does
	carrier  *carrier   // nil until the first
}

// carrier is the response that carries a tape, until another does. It is the tape's
// sink. One goroutine uses it.
type carrier struct {
	t        *tape
	out      *stream
	own      bool          // the response to the request itself
	sent     uint64        // number of the last event written
	grown    chan struct{} // ready when another goroutine has written the tape
	replaced chan struct{} // closed when another carrier takes over
}

// resumable tells whether the session's revision has ids of events.
func (s *mcpSession) resumable() bool {
	return s.Version == rev20250326 || s.Version == rev20250618 || s.Version == rev20251125
}

// record starts a tape of the session; nil when it has too many that are still in use.
// request is the id of the only request whose answer the tape gets, or nil: an id of an
// event tells it, so that the answer of a tape that is lost can be an error.
func (e *Endpoint) record(s *mcpSession, kind byte, request json.RawMessage) *tape {
	if !s.resumable() {
		return nil
	}
	id := string(kind) + rand.Text()[:12]
	if kind == answerTape && len(request) <= maxTapeRequest {
		id += "." + base64.RawURLEncoding.EncodeToString(request)
	}
	t := &tape{e: e, s: s, id: id}
	var old *tape
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil
	}
	if len(s.tapes) >= maxTapes {
		i := slices.IndexFunc(s.tapes, (*tape).resting)
		if i < 0 {
			s.mu.Unlock()
			return nil
		}
		old = s.tapes[i]
		s.tapes = slices.Delete(s.tapes, i, i+1)
	}
	s.tapes = append(s.tapes, t)
	s.mu.Unlock()
	if old != nil {
		old.forget()
	}
	return t
}

// maxTapeRequest is the longest request id that an event's id tells, in bytes.
const maxTapeRequest = 64

// tape finds a tape that can be resumed.
func (s *mcpSession) tape(id string) *tape {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tapes {
		if t.id == id && !t.expired(time.Now()) {
			return t
		}
	}
	return nil
}

func (t *tape) resting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.rested.IsZero()
}

func (t *tape) expired(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone || !t.rested.IsZero() && now.Sub(t.rested) >= tapeLife
}

// forget gives the tape's memory back.
func (t *tape) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	t.drop(len(t.frames))
}

// drop forgets the n oldest events. The caller holds the lock.
func (t *tape) drop(n int) {
	for _, f := range t.frames[:n] {
		t.size -= len(f.text)
		t.e.shelf.kept.Add(-int64(len(f.text)))
	}
	t.frames = slices.Delete(t.frames, 0, n)
}

// write adds an event; by is who writes, and sends it itself.
func (t *tape) write(message []byte, by *carrier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	text := appendEvent(make([]byte, 0, len(message)+len(t.id)+64), t.id+"."+strconv.FormatUint(t.last, 10), message)
	t.frames = append(t.frames, frame{t.last, text})
	t.size += len(text)
	t.e.shelf.kept.Add(int64(len(text)))
	over := max(0, len(t.frames)-maxFrames)
	size := t.size
	for _, f := range t.frames[:over] {
		size -= len(f.text)
	}
	for size > maxTape && over < len(t.frames)-1 {
		size -= len(t.frames[over].text)
		over++
	}
	t.drop(over)
	t.wake(by)
}

// wake tells the response that carries the tape, if it is another than by. The caller
// holds the lock.
func (t *tape) wake(by *carrier) {
	if t.carrier != nil && t.carrier != by {
		select {
		case t.carrier.grown <- struct{}{}:
		default:
		}
	}
}

// end says that nothing comes any more.
func (t *tape) end(by *carrier) {
	t.mu.Lock()
	t.complete = true
	t.wake(by)
	t.mu.Unlock()
}

// rest says that nothing writes the tape now, so that it may have to make room; unless
// it is to go on and another than c carries it.
func (t *tape) rest(c *carrier) {
	t.mu.Lock()
	now, rests := time.Now(), t.complete || t.carrier == c
	if rests {
		t.rested = now
	}
	t.mu.Unlock()
	if rests {
		t.e.shelf.put(t, now)
	}
}

// close ends a tape that nobody ended: what should have been answered broke down.
func (c *carrier) close() {
	c.t.mu.Lock()
	complete := c.t.complete
	c.t.mu.Unlock()
	if !complete {
		c.t.end(c)
		c.t.rest(c)
	}
}

// carry makes a response the tape's carrier, from after an event on; own tells that it
// is the response to the request itself.
func (t *tape) carry(out *stream, after uint64, own bool) *carrier {
	c := &carrier{t: t, out: out, own: own, grown: make(chan struct{}, 1), replaced: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.sent = min(after, t.last)
	if t.carrier != nil {
		t.carrier.leave()
	}
	t.carrier = c
	if !t.complete {
		t.rested = time.Time{}
	}
	return c
}

func (c *carrier) leave() {
	select {
	case <-c.replaced:
	default:
		close(c.replaced)
	}
}

// prime sends what 2025-11-25 begins a stream with: the id to come back with while
// there is no event.
func (c *carrier) prime() {
	if c.t.s.Version == rev20251125 {
		c.out.write([]byte("id: " + c.t.id + "." + strconv.FormatUint(c.sent, 10) + "\nretry: " + retryAfterMS + "\ndata: \n\n"))
	}
}

// catchUp writes what the tape has and this response has not. It tells whether that
// was all there will be.
func (c *carrier) catchUp() (complete bool) {
	c.t.mu.Lock()
	var due []frame
	for _, f := range c.t.frames {
		if f.n > c.sent {
			due = append(due, f)
		}
	}
	last, complete := c.t.last, c.t.complete
	c.t.mu.Unlock()
	for _, f := range due {
		if c.broken() {
			return complete
		}
		c.out.write(f.text)
		c.sent = f.n
	}
	if complete && c.sent < last && !c.broken() { // memory was short
		if message := lostAnswer(c.t.id); message != nil {
			c.out.event(message)
		}
	}
	return complete
}

func (c *carrier) event(message []byte) {
	c.t.write(message, c)
	c.catchUp()
	c.t.e.shelf.tidy(c.t)
}

func (c *carrier) answer(message []byte) {
	c.t.write(message, c)
	c.t.end(c)
	c.catchUp()
	c.t.rest(c) // not before: another call's tape could have taken its room unwritten
	c.t.e.shelf.tidy(c.t)
}

func (c *carrier) alive() {
	if !c.broken() {
		c.out.alive()
	}
}

func (c *carrier) broken() bool {
	select {
	case <-c.replaced:
		return true
	default:
		return c.out.failed
	}
}

// lostAnswer is the answer to the request whose answer a tape had that is not kept any
// more; nil when the tape's id does not tell which it was.
func lostAnswer(tapeID string) []byte {
	_, text, _ := strings.Cut(tapeID, ".")
	id, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || !isID(id) || !json.Valid(id) {
		return nil
	}
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":{"code":-32603,"message":"the answer's stream is not kept any more; the outcome is unknown"}}`)
}

// readEventID reads the id of an event.
func readEventID(text string) (tapeID string, n uint64, ok bool) {
	i := strings.LastIndexByte(text, '.')
	if i < 1 || text[0] != answerTape && text[0] != getTape {
		return "", 0, false
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 64)
	return text[:i], n, err == nil
}

// replay answers a GET that resumes the stream of a request's answer.
func (e *Endpoint) replay(w http.ResponseWriter, r *http.Request, s *mcpSession, id string, after uint64) {
	t := s.tape(id)
	if t == nil {
		message := lostAnswer(id)
		if message == nil {
			e.writeError(w, http.StatusBadRequest, codeInvalidRequest, "the stream of Last-Event-ID is not kept any more")
			return
		}
		open(w, e.limits.WriteTimeout).event(message)
		return
	}
	done, err := e.cfg.Stream(r)
	if err != nil {
		e.refuse(w, err)
		return
	}
	defer done()
	watch, err := e.watchFor(r, s.Bridge) // it counts as one of the bridge's streams
	if err != nil {
		e.refuse(w, err)
		return
	}
	defer watch.Close()
	c := t.carry(open(w, e.limits.WriteTimeout), after, false)
	c.alive()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	revoked := e.revoked(s.Principal)
	for !c.catchUp() && !c.broken() {
		select {
		case <-c.grown:
		case <-alive.C:
			c.alive()
		case <-c.replaced:
		case <-revoked:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// resumeGet finds the tape that a GET of what no request asked for goes on with, and
// after which event; or starts one. Nil when the session can have no more.
func (e *Endpoint) resumeGet(s *mcpSession, lastEventID string) (t *tape, after uint64) {
	id, n, ok := readEventID(lastEventID)
	if ok {
		if t = s.tape(id); t != nil {
			return t, n
		}
	}
	if lastEventID != "" {
		s.told.Store(0) // so that the stream begins with all that may have been missed
	}
	return e.record(s, getTape, nil), 0
}

// shelf is the tapes of all sessions that nothing writes, oldest first.
type shelf struct {
	kept atomic.Int64 // bytes of all tapes, those in use too

	mu    sync.Mutex
	tapes []shelved
}

type shelved struct {
	t     *tape
	since time.Time
}

func (h *shelf) put(t *tape, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tapes = append(h.tapes, shelved{t, since})
}

// take removes the oldest tape that is still at rest, if it rests since before a time.
func (h *shelf) take(before time.Time) *tape {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.tapes) > 0 && h.tapes[0].since.Before(before) {
		first := h.tapes[0]
		h.tapes[0] = shelved{}
		h.tapes = h.tapes[1:]
		first.t.mu.Lock()
		current := first.t.rested.Equal(first.since)
		first.t.mu.Unlock()
		if current {
			return first.t
		}
	}
	return nil
}

// sweep forgets the tapes that rest since before a time, until the rest is small
// enough.
func (h *shelf) sweep(before time.Time, enough func() bool) {
	for !enough() {
		t := h.take(before)
		if t == nil {
			return
		}
		t.s.mu.Lock()
		t.s.tapes = slices.DeleteFunc(t.s.tapes, func(other *tape) bool { return other == t })
		t.s.mu.Unlock()
		t.forget()
	}
}

// tidy keeps all tapes together within maxKept: those at rest go first, then what the
// one that has just grown keeps.
func (h *shelf) tidy(grown *tape) {
	enough := func() bool { return h.kept.Load() <= maxKept }
	if enough() {
		return
	}
	h.sweep(time.Now(), enough)
	if !enough() {
		grown.mu.Lock()
		grown.drop(len(grown.frames))
		grown.mu.Unlock()
	}
}
