package api

import (
	"sync/atomic"
	"time"

	"mcpbridge/store"
)

// grant is a verified token in use. There is one of a token as long as somebody holds
// it, so that whoever revokes the token reaches all who do.
type grant struct {
	token   store.Token
	revoked chan struct{} // closed when the token opens nothing any more
	holds   atomic.Int64  // requests and connections under way; negative once it is let go
	noted   atomic.Int64  // when its use was last noted, in Unix seconds
	until   atomic.Int64  // when it expires, in Unix nanoseconds; 0 for never
}

const letGo = -1 << 32 // of holds: more than any number of requests

// useEvery is how exactly it is known when a token was last used.
const useEvery = 5 * time.Minute

// openGrant is everybody's in open mode.
var openGrant = &grant{token: store.Token{ID: openPrincipal}}

func newGrant(t store.Token) *grant {
	g := &grant{token: t, revoked: make(chan struct{})}
	g.expire(t.Expires)
	if !t.LastUsed.IsZero() {
		g.noted.Store(t.LastUsed.Unix())
	}
	return g
}

// hold keeps the grant for one request or connection. False when it was let go.
func (g *grant) hold() bool {
	if g == openGrant {
		return true
	}
	if g.holds.Add(1) > 0 {
		return true
	}
	g.holds.Add(-1)
	return false
}

// done ends a hold.
func (g *grant) done() {
	if g != openGrant {
		g.holds.Add(-1)
	}
}

// release lets go of the grant unless somebody holds it.
func (g *grant) release() bool { return g.holds.CompareAndSwap(0, letGo) }

// use tells whether the use of the token at that time is to be noted.
func (g *grant) use(now time.Time) bool {
	last := g.noted.Load()
	return now.Unix()-last >= int64(useEvery/time.Second) && g.noted.CompareAndSwap(last, now.Unix())
}

// ended tells whether the token was revoked.
func (g *grant) ended() bool {
	select {
	case <-g.revoked:
		return true
	default:
		return false
	}
}

// expire sets when the token expires; the zero time is never.
func (g *grant) expire(at time.Time) {
	if at.IsZero() {
		g.until.Store(0)
	} else {
		g.until.Store(at.UnixNano())
	}
}

func (g *grant) expired(now time.Time) bool {
	until := g.until.Load()
	return until != 0 && now.UnixNano() >= until
}
