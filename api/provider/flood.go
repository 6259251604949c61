package provider

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// A connection may say only so much a second beside the results that it was asked for:
// messages, pings, and small pieces of a message. One that says more is told so and
// closed; what it says meanwhile is not looked at.

// meter counts what one connection says.
type meter struct {
	rate    *rate.Limiter // nil allows everything
	asked   atomic.Int64  // calls whose results do not count
	flooded atomic.Bool   // it said too much, and is being closed
}

// floodBurst is how much of its rate, in seconds, a connection may say at once.
const floodBurst = 2

func (m *meter) start(perSecond int) {
	if perSecond >= 0 {
		m.rate = rate.NewLimiter(rate.Limit(perSecond), floodBurst*perSecond)
	}
}

// allowed counts something that the peer said. False when it was too much.
func (c *conn) allowed() bool {
	if c.meter.flooded.Load() {
		return false
	}
	if c.meter.rate == nil || c.meter.rate.Allow() {
		return true
	}
	if !c.meter.flooded.Swap(true) {
		err := fmt.Errorf("%w: at most %d messages a second on one connection", ErrFlood, c.e.limits.Messages)
		c.d.refused(&problem{code: "flood", message: err.Error()})
		c.out.Close(err)
	}
	return false
}

// answered counts a result: for nothing while it may be that of a call.
func (c *conn) answered() {
	if c.meter.asked.Add(-1) < 0 {
		c.meter.asked.Add(1)
		c.allowed()
	}
}

// pinged tells whether to answer a ping.
func (c *conn) pinged(context.Context, []byte) bool { return c.allowed() }

// A message may come in pieces (RFC 6455, section 5.4). Nobody has a reason for many
// that are smaller than smallPiece bytes.
const (
	smallPiece  = 512
	smallPieces = 2 // that count for nothing: the last one, and the last of what fitted the buffer
)

// pieces reads one message.
type pieces struct {
	c     *conn
	r     io.Reader
	small int
}

func (p *pieces) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 && n < smallPiece {
		if p.small++; p.small > smallPieces && !p.c.allowed() {
			return n, ErrFlood
		}
	}
	return n, err
}
