package provider

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coder/websocket"
)

const (
	backoffStart = 250 * time.Millisecond
	backoffCap   = 30 * time.Second
	// stableAfter is how long a connection must have held for the back-off to
	// start over.
	stableAfter = 10 * time.Second
	// restartSpread spreads the providers of a bridge that restarts.
	restartSpread = time.Second
	// floodWait is the least time to stay away after close code 4429.
	floodWait = 5 * time.Second
	// laterCap bounds how long a bridge can send us away.
	laterCap = 10 * time.Minute
)

// backoff is the time between attempts: it doubles from backoffStart to
// backoffCap, and each wait is drawn from the upper half.
type backoff struct{ attempts int }

func (b *backoff) reset() { b.attempts = 0 }

func (b *backoff) next() time.Duration {
	d := min(backoffStart<<min(b.attempts, 10), backoffCap)
	b.attempts++
	return d/2 + rand.N(d/2)
}

// wait is how long to stay away after err ended a connection or an attempt.
func (b *backoff) wait(err error) time.Duration {
	d := b.next()
	if l, ok := errors.AsType[*later](err); ok {
		after := min(max(0, time.Until(l.until)), laterCap)
		return max(d, after+rand.N(backoffStart+after/8))
	}
	switch websocket.CloseStatus(err) {
	case websocket.StatusServiceRestart, websocket.StatusGoingAway:
		return d + rand.N(restartSpread)
	case closeFlood:
		return max(d, floodWait+rand.N(floodWait))
	default:
		return d
	}
}

// asked tells whether the bridge itself ended a connection, to come back to: that is no
// failure, however short the connection was.
func asked(err error) bool {
	if _, ok := errors.AsType[*later](err); ok {
		return true
	}
	status := websocket.CloseStatus(err)
	return status == websocket.StatusServiceRestart || status == websocket.StatusGoingAway
}

// later is the bridge's wish not to see us before a time.
type later struct {
	until time.Time
	why   string
}

func (l *later) Error() string { return l.why }

// sleep waits for d, and tells whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
