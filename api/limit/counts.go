package limit

import "sync"

// Counts is how many of something each key has at once. A nil Counts allows
// everything. Its methods may be called at once. It remembers the keys that have any.
type Counts[K comparable] struct {
	max int

	mu  sync.Mutex
	has map[K]int
}

// NewCounts allows each key as many as most. Nil, which allows everything, when that
// is below 0.
func NewCounts[K comparable](most int) *Counts[K] {
	if most < 0 {
		return nil
	}
	return &Counts[K]{max: most, has: map[K]int{}}
}

// Take counts one more of the key's, to be given back. False when it has as many as it
// may.
func (c *Counts[K]) Take(key K) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has[key] >= c.max {
		return false
	}
	c.has[key]++
	return true
}

// Give gives back one that was taken.
func (c *Counts[K]) Give(key K) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has[key]--; c.has[key] == 0 {
		delete(c.has, key)
	}
}

// Keys is how many keys have any.
func (c *Counts[K]) Keys() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.has)
}
