package provider

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

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
	said    int           // since the last pause; the reader's own
	paused  time.Time     // the last pause; the reader's own
}

// A connection that always has something to read would keep a processor for itself: the
// scheduler looks for what came for others when a processor idles, or else every 10 ms. So
// one that says saidTurn things within turnTime is left alone for saidPause. That is many
// times faster than what it may say for long.
const (
	saidTurn  = 64
	turnTime  = 5 * time.Millisecond
	saidPause = time.Millisecond
)

// floodBurst is how much of its rate, in seconds, a connection may say at once.
const floodBurst = 2

func (m *meter) start(perSecond int) {
	if perSecond >= 0 {
		m.rate = rate.NewLimiter(rate.Limit(perSecond), floodBurst*perSecond)
	}
}

// allowed counts something that the peer said. False when it was too much.
func (c *conn) allowed() bool { return c.allowedFor(1) }

// registrationCost is how much a change of what a provider offers counts for: the catalog
// is made anew, and written to disk.
const registrationCost = 20

func (c *conn) allowedFor(cost int) bool {
	if c.meter.flooded.Load() {
		return false
	}
	if c.meter.rate == nil {
		return true
	}
	c.meter.pause(cost)
	if c.meter.rate.AllowN(time.Now(), min(cost, c.meter.rate.Burst())) {
		return true
	}
	if !c.meter.flooded.Swap(true) {
		err := fmt.Errorf("%w: at most %d messages a second on one connection", ErrFlood, c.e.limits.Messages)
		c.raw.muted.Store(true)
		c.depart()
		c.d.refused(&problem{code: "flood", message: err.Error()})
		c.out.Close(err)
	}
	return false
}

func (m *meter) pause(cost int) {
	if m.said += cost; m.said < saidTurn {
		return
	}
	m.said = 0
	if now := time.Now(); now.Sub(m.paused) > turnTime {
		m.paused = now
		return
	}
	time.Sleep(saidPause)
	m.paused = time.Now()
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

// line is the connection below a WebSocket.
type line struct {
	net.Conn
	muted atomic.Bool // its peer is being closed for what it said
	reads int         // since then; the reader's own
}

// A muted line is read for a second at most, and little: a peer that offends need not
// answer the close frame, but can go on as fast as it can.
const (
	mutedPause = 20 * time.Millisecond
	mutedReads = 50
)

// Read implements [net.Conn].
func (l *line) Read(b []byte) (int, error) {
	if l.muted.Load() {
		if l.reads++; l.reads > mutedReads {
			return 0, net.ErrClosed
		}
		time.Sleep(mutedPause)
		b = b[:min(len(b), readBuffer)]
	}
	return l.Conn.Read(b)
}
