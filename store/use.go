package store

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

var usesBucket = []byte("uses") // token → Ending: when it was last used

// ExpireToken implements Store.
func (b *Bolt) ExpireToken(ctx context.Context, id string, at time.Time) error {
	var known Token
	return b.write(ctx, fmt.Sprintf("expire token %.80q", id), nil, 256,
		func(tx *bbolt.Tx) (err error) {
			known, err = getToken(tx, []byte(id))
			return err
		},
		func(tx *bbolt.Tx) error {
			known.Expires = at
			return putToken(tx, known)
		})
}

// TouchTokens implements Store.
func (b *Bolt) TouchTokens(ctx context.Context, used map[string]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	return b.write(ctx, "touch tokens", nil, 64*len(used),
		func(*bbolt.Tx) error { return nil },
		func(tx *bbolt.Tx) error {
			for id, at := range used {
				key := []byte(id)
				if tx.Bucket(tokensBucket).Get(key) == nil {
					continue // deleted meanwhile
				}
				if err := tx.Bucket(usesBucket).Put(key, encodeEnding(key, at)); err != nil {
					return err
				}
			}
			return nil
		})
}

// withUse reads when a token was last used.
func withUse(tx *bbolt.Tx, t Token) (Token, error) {
	key := []byte(t.ID)
	record := tx.Bucket(usesBucket).Get(key)
	if record == nil {
		return t, nil
	}
	var err error
	t.LastUsed, err = decodeEnding(key, record)
	return t, err
}

// ExpireToken implements Store.
func (m *Memory) ExpireToken(ctx context.Context, id string, at time.Time) error {
	return m.do(ctx, fmt.Sprintf("expire token %.80q", id), func() error {
		t, known := m.tokens[id]
		if !known {
			return ErrNotFound
		}
		t.Expires = cloneTime(at)
		m.tokens[id] = t
		return nil
	})
}

// TouchTokens implements Store.
func (m *Memory) TouchTokens(ctx context.Context, used map[string]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	return m.do(ctx, "touch tokens", func() error {
		for id, at := range used {
			if t, known := m.tokens[id]; known {
				t.LastUsed = cloneTime(at)
				m.tokens[id] = t
			}
		}
		return nil
	})
}
