package rest

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"mcpbridge/session"
)

// Bounds of what is remembered for Idempotency-Key.
const (
	maxReplays = 1000
	replayFor  = time.Hour
)

var errKeyReused = errors.New("this Idempotency-Key was used with another body; use a new key")

// replays remembers what POST answered to an Idempotency-Key. It holds the
// tokens of those answers in memory, which is why it holds them for an hour and
// not a day, and forgets them when their bridge is deleted.
type replays struct {
	mu     sync.Mutex // guards what follows; never held over the store
	byKey  map[string]*list.Element
	oldest *list.List // of *replay; the oldest in front
}

type replay struct {
	key   string
	print [sha256.Size]byte
	since time.Time
	done  chan struct{} // closed when out is there, or when the attempt failed
	out   *createOutput // nil until done, and after a failure
}

func newReplays() *replays {
	return &replays{byKey: make(map[string]*list.Element), oldest: list.New()}
}

// do answers as the first call with that key did, or makes it. Calls of one key
// at the same time wait for the first; when it fails, the next one tries.
// errKeyReused if the body differs.
func (r *replays) do(ctx context.Context, key string, print [sha256.Size]byte, now time.Time, create func() (*createOutput, error)) (*createOutput, error) {
	for {
		e, mine := r.claim(key, print, now)
		if e.print != print {
			return nil, errKeyReused
		}
		if mine {
			return r.fill(e, create)
		}
		select {
		case <-e.done:
			if e.out != nil {
				return e.out, nil
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claim finds the key's entry, or makes it and tells that it is the caller's to
// fill.
func (r *replays) claim(key string, print [sha256.Size]byte, now time.Time) (e *replay, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for front := r.oldest.Front(); front != nil; front = r.oldest.Front() {
		if now.Sub(front.Value.(*replay).since) < replayFor {
			break
		}
		r.drop(front)
	}
	if at, ok := r.byKey[key]; ok {
		return at.Value.(*replay), false
	}
	if r.oldest.Len() >= maxReplays {
		r.drop(r.oldest.Front())
	}
	e = &replay{key: key, print: print, since: now, done: make(chan struct{})}
	r.byKey[key] = r.oldest.PushBack(e)
	return e, true
}

// fill makes the answer. A failure is not remembered: nothing was made.
func (r *replays) fill(e *replay, create func() (*createOutput, error)) (out *createOutput, err error) {
	defer func() { // also when create panics
		r.mu.Lock()
		if e.out = out; out == nil && r.byKey[e.key] != nil && r.byKey[e.key].Value == e {
			r.drop(r.byKey[e.key])
		}
		r.mu.Unlock()
		close(e.done)
	}()
	return create()
}

// forget drops the answer that made a bridge: its tokens must not come back.
func (r *replays) forget(id session.BridgeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := r.oldest.Front(); at != nil; at = at.Next() {
		if out := at.Value.(*replay).out; out != nil && out.Body.ID == id {
			r.drop(at)
			return
		}
	}
}

func (r *replays) drop(at *list.Element) {
	delete(r.byKey, at.Value.(*replay).key)
	r.oldest.Remove(at)
}

// fingerprint tells one body from another.
func fingerprint(body *createBody) [sha256.Size]byte {
	text, err := json.Marshal(body)
	if err != nil {
		text = nil // it was decoded from JSON, so it encodes
	}
	return sha256.Sum256(text)
}
