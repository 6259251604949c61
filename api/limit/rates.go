package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// MaxKeys bounds the keys that a [Rates] remembers. Beyond it some are forgotten, and
// begin afresh.
const MaxKeys = 1 << 16

// firstSweep is how many keys there are when a Rates first looks for full buckets.
const firstSweep = 1024

// Rates is one token bucket a key. A nil Rates allows everything. Its methods may be
// called at once.
type Rates[K comparable] struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[K]*rate.Limiter
	sweep   int // at how many keys full buckets are let go
}

// NewRates allows each key perSecond events a second, and burst of them at once after
// a rest. Nil, which allows everything, when perSecond is below 0.
func NewRates[K comparable](perSecond, burst int) *Rates[K] {
	if perSecond < 0 {
		return nil
	}
	return &Rates[K]{rate: rate.Limit(perSecond), burst: burst, buckets: map[K]*rate.Limiter{}, sweep: firstSweep}
}

// Allow takes one event of the key's. False when it has had its share.
func (r *Rates[K]) Allow(key K) bool {
	if r == nil {
		return true
	}
	return r.bucket(key).Allow()
}

// Charge takes n events of the key's, a full bucket at most, whether it has them or not:
// it is then allowed none until it has made up for them.
func (r *Rates[K]) Charge(key K, n int) {
	if r != nil {
		r.bucket(key).ReserveN(time.Now(), min(n, r.burst))
	}
}

func (r *Rates[K]) bucket(key K) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[key]
	if b == nil {
		if len(r.buckets) >= r.sweep {
			r.tidy(time.Now())
		}
		b = rate.NewLimiter(r.rate, r.burst)
		r.buckets[key] = b
	}
	return b
}

// Keys is how many keys are remembered.
func (r *Rates[K]) Keys() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.buckets)
}

// tidy forgets full buckets: a new one is the same. Where that is not enough, which
// needs as many peers at once, some others go.
func (r *Rates[K]) tidy(now time.Time) {
	for key, b := range r.buckets {
		if b.TokensAt(now) >= float64(r.burst) {
			delete(r.buckets, key)
		}
	}
	for key := range r.buckets {
		if len(r.buckets) <= MaxKeys*7/8 {
			break
		}
		delete(r.buckets, key)
	}
	r.sweep = min(max(firstSweep, 2*len(r.buckets)), MaxKeys)
}
