package mcp

import (
	"bytes"
	"net/http"
	"time"

	"mcpbridge/api/wire"
)

// sink takes an answer that is events, one message after the other. Messages are the
// caller's again after each call.
type sink interface {
	event(message []byte)  // something that comes before the answer, or beside it
	answer(message []byte) // the answer: nothing comes after it
	alive()                // a sign of life
	broken() bool          // nobody takes anything any more
}

// stream is an HTTP response of server-sent events (HTML, section 9.2). One goroutine
// uses it. After a write that failed it takes everything and does nothing.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration // for one write
	failed  bool
}

// keepAlive is how long a stream is silent before it gets a comment: proxies cut
// what is idle for longer.
const keepAlive = 15 * time.Second

// open starts the stream. Its first bytes go out at once: some proxies hold the
// status back until there are any.
func open(w http.ResponseWriter, limit time.Duration) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, control: http.NewResponseController(w), limit: limit}
}

// event sends one message.
func (s *stream) event(message []byte) {
	buf := wire.NewBuffer(len(message) + 64)
	buf.B = appendEvent(buf.B, "", message)
	s.write(buf.B)
	buf.Release()
}

// appendEvent appends one message as an event; without an id if that is empty.
func appendEvent(b []byte, id string, message []byte) []byte {
	b = append(b, "event: message\n"...)
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(b, "data: "...)
	start := len(b)
	b = append(b, message...)
	for line := b[start:]; ; { // white space between tokens may hold line ends, strings cannot
		i := bytes.IndexAny(line, "\r\n")
		if i < 0 {
			break
		}
		line[i] = ' '
		line = line[i+1:]
	}
	return append(b, "\n\n"...)
}

func (s *stream) answer(message []byte) { s.event(message) }

func (s *stream) broken() bool { return s.failed }

var comment = []byte(": keep-alive\n\n")

// alive sends a comment.
func (s *stream) alive() { s.write(comment) }

// later asks the client to come back when the next process is there: some clients give
// up after two attempts (HTML, section 9.2.6, "retry").
func (s *stream) later() { s.write([]byte("retry: 2000\n\n")) }

// write sends bytes at once. A peer that does not take them in time loses the
// stream.
func (s *stream) write(b []byte) {
	if s.failed {
		return
	}
	wire.WriteBy(s.w, time.Now().Add(s.limit))
	_, err := s.w.Write(b)
	if err == nil {
		err = s.control.Flush()
	}
	s.failed = err != nil
}
