package wire

import (
	"net/http"
	"time"
)

// Deadlines of a connection, as http.ResponseController sets them, without its memory.
// Nothing here wraps a ResponseWriter, so there is none to look for below. Where a
// deadline cannot be set, nothing can be stuck.

// ReadBy sets when the request's body must have arrived; the zero time means never.
func ReadBy(w http.ResponseWriter, t time.Time) {
	if c, ok := w.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = c.SetReadDeadline(t)
	}
}

// WriteBy sets when what is written from now on must have been taken.
func WriteBy(w http.ResponseWriter, t time.Time) {
	if c, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = c.SetWriteDeadline(t)
	}
}
