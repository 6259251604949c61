package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"mcpbridge/session"
)

// maxPruned is how many expired endings one EndSession removes: more than one, so
// that they die out faster than they come, and few, so that no caller pays for all.
const maxPruned = 16

// Load implements Store.
func (b *Bolt) Load(ctx context.Context, id session.BridgeID) (s session.Snapshot, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) (err error) {
		key := []byte(id)
		if record := tx.Bucket(revisionsBucket).Get(key); record != nil {
			if s.Revision, err = decodeNumber(key, record); err != nil {
				return err
			}
		}
		err = each(tx.Bucket(registrationBucket), within(id, ""), func(key, record []byte) error {
			r, err := decodeRegistration(key, record)
			if err != nil {
				return fmt.Errorf("registration %.200q: %w", key, err)
			}
			s.Registrations = append(s.Registrations, r)
			return nil
		})
		if err != nil {
			return err
		}
		err = each(tx.Bucket(tasksBucket), within(id, ""), func(key, record []byte) error {
			t, err := decodeTask(key, record)
			if err != nil {
				return fmt.Errorf("task %.200q: %w", key, err)
			}
			s.Tasks = append(s.Tasks, t)
			return nil
		})
		if err != nil {
			return err
		}
		return each(tx.Bucket(pinsBucket), within(id, ""), func(key, record []byte) error {
			p, err := decodePin(key, record)
			if err != nil {
				return fmt.Errorf("pin %.200q: %w", key, err)
			}
			s.Pins = append(s.Pins, p)
			return nil
		})
	})
	if err != nil {
		return session.Snapshot{}, fmt.Errorf("store: load bridge %.80q: %w", id, err)
	}
	sortPins(s.Pins)
	return s, nil
}

// saving is a Change made ready outside the commit, which is everybody's time.
type saving struct {
	bridge, revision []byte // key and record
	drop, put        []record
}

// record is one of a bucket; one to drop has no value.
type record struct{ bucket, key, value []byte }

// Save implements Store.
func (b *Bolt) Save(ctx context.Context, shard Shard, epoch Epoch, changes []session.Change) error {
	op := fmt.Sprintf("save shard %d", shard)
	invalid := cmp.Or(validChanges(shard, 1, changes), fenced(epoch))
	if invalid != nil {
		return b.write(ctx, op, invalid, 0, nil, nil)
	}
	size := 0
	savings := make([]saving, len(changes))
	for i, c := range changes {
		s := &savings[i]
		s.bridge = []byte(c.Bridge)
		s.revision = encodeNumber(s.bridge, c.Revision)
		for _, p := range c.Delete {
			s.drop = append(s.drop, record{bucket: registrationBucket, key: within(c.Bridge, p)})
		}
		for _, id := range c.DropTasks {
			s.drop = append(s.drop, record{bucket: tasksBucket, key: within(c.Bridge, id)})
		}
		for _, r := range c.Put {
			key := within(c.Bridge, r.Provider)
			value, err := encodeRegistration(key, r)
			if err != nil {
				return fmt.Errorf("store: %s: bridge %.80q: %w", op, c.Bridge, err)
			}
			s.put = append(s.put, record{registrationBucket, key, value})
			size += len(value)
		}
		for _, t := range c.PutTasks {
			key := within(c.Bridge, t.ID)
			value := encodeTask(key, t)
			s.put = append(s.put, record{tasksBucket, key, value})
			size += len(value)
		}
		for _, k := range c.DropPins {
			s.drop = append(s.drop, record{bucket: pinsBucket, key: pinKey(c.Bridge, k)})
		}
		for _, p := range c.PutPins {
			key := pinKey(c.Bridge, p.PinKey)
			value := encodePin(key, p)
			s.put = append(s.put, record{pinsBucket, key, value})
			size += len(value)
		}
	}
	return b.write(ctx, op, nil, size, nil, func(tx *bbolt.Tx) error {
		for i := range savings {
			if err := savings[i].apply(tx); err != nil {
				return fmt.Errorf("bridge %.80q: %w", savings[i].bridge, err)
			}
		}
		return nil
	})
}

func (s *saving) apply(tx *bbolt.Tx) error {
	if tx.Bucket(bridgesBucket).Get(s.bridge) == nil {
		return nil
	}
	for _, r := range s.drop {
		if err := tx.Bucket(r.bucket).Delete(r.key); err != nil {
			return err
		}
	}
	for _, r := range s.put {
		if err := tx.Bucket(r.bucket).Put(r.key, r.value); err != nil {
			return err
		}
	}
	return tx.Bucket(revisionsBucket).Put(s.bridge, s.revision)
}

// endingKey hides the session's ID, which is a credential, and bounds the key.
func endingKey(bridge session.BridgeID, id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return within(bridge, sum[:])
}

// EndSession implements Store.
func (b *Bolt) EndSession(ctx context.Context, bridge session.BridgeID, id string, until time.Time) error {
	key := endingKey(bridge, id)
	return b.write(ctx, fmt.Sprintf("end session of bridge %.80q", bridge), nil, 256, nil, func(tx *bbolt.Tx) error {
		if err := prune(tx, time.Now()); err != nil {
			return err
		}
		if tx.Bucket(bridgesBucket).Get([]byte(bridge)) == nil {
			return nil
		}
		known, err := getEnding(tx, key)
		if err != nil || !until.After(known) {
			return err
		}
		expiry := append(second(until), key...)
		return cmp.Or(
			dropEnding(tx, key),
			tx.Bucket(endingsBucket).Put(key, encodeEnding(key, until)),
			tx.Bucket(expiriesBucket).Put(expiry, encodeEmpty(expiry)))
	})
}

// SessionEnded implements Store.
func (b *Bolt) SessionEnded(ctx context.Context, bridge session.BridgeID, id string) (ended bool, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) error {
		until, err := getEnding(tx, endingKey(bridge, id))
		ended = until.After(time.Now())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store: ended session of bridge %.80q: %w", bridge, err)
	}
	return ended, nil
}

// getEnding is the time until which a session's end is remembered; zero if it is
// not.
func getEnding(tx *bbolt.Tx, key []byte) (time.Time, error) {
	record := tx.Bucket(endingsBucket).Get(key)
	if record == nil {
		return time.Time{}, nil
	}
	return decodeEnding(key, record)
}

// dropEnding removes an ending, if there is one, from both its buckets.
func dropEnding(tx *bbolt.Tx, key []byte) error {
	until, err := getEnding(tx, key)
	if err != nil {
		return err
	}
	return cmp.Or(
		tx.Bucket(expiriesBucket).Delete(append(second(until), key...)),
		tx.Bucket(endingsBucket).Delete(key))
}

// prune removes up to maxPruned endings whose second has passed.
func prune(tx *bbolt.Tx, now time.Time) error {
	var expired [][]byte
	limit := second(now)
	c := tx.Bucket(expiriesBucket).Cursor()
	for k, _ := c.First(); k != nil && bytes.Compare(k[:len(limit)], limit) < 0 && len(expired) < maxPruned; k, _ = c.Next() {
		expired = append(expired, bytes.Clone(k[len(limit):]))
	}
	for _, key := range expired {
		if err := dropEnding(tx, key); err != nil {
			return err
		}
	}
	return nil
}
