package provider

import (
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// dialect is how the two ends of a connection talk. One value belongs to one
// connection. greet, handle and ended are the reader's; the append methods are the
// outbox's writer's; ping and reconnect the keeper's. cancels is called inside turns.
type dialect interface {
	// greet is called once, before anything is read. An error closes the connection.
	greet() error
	// handle takes one frame. With keep, buf now belongs to a call's result.
	handle(buf *wire.Buffer) (keep bool, err error)
	// refused tells the peer of a message that was refused, if it has words for it.
	refused(p *problem)
	// ended is called once nothing more is read.
	ended()

	// appendCall appends a call; its deadline counts from now. It may append nothing.
	appendCall(b []byte, c *session.Call, now time.Time) []byte
	// cancels tells whether the peer knows what appendCancel appends.
	cancels() bool
	appendCancel(b []byte, c *session.Call, reason session.Reason) []byte

	// ping asks the peer for a sign of life. quiet tells that nothing has come since
	// the last time.
	ping(quiet bool)
	// reconnect asks the peer to come back after a while, if it has words for it.
	reconnect(after time.Duration)
}
