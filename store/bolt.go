package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"mcpbridge/session"
)

// The buckets. Keys are texts; "bridge + name" is the two with a 0x00 between,
// which no bridge ID contains, so that a bridge's keys lie together.
var (
	metaBucket         = []byte("meta")          // "format" → see format; no record
	bridgesBucket      = []byte("bridges")       // bridge → Bridge
	tokensBucket       = []byte("tokens")        // token → Token
	holdingsBucket     = []byte("holdings")      // bridge + token → empty record; no bridge is the empty text
	registrationBucket = []byte("registrations") // bridge + provider → Registration
	revisionsBucket    = []byte("revisions")     // bridge → number
	endingsBucket      = []byte("endings")       // bridge + SHA-256 of the session ID → Ending
	expiriesBucket     = []byte("expiries")      // second (8 bytes) + key in endings → empty record
	secretsBucket      = []byte("secrets")       // name → Secret
	tasksBucket        = []byte("tasks")         // bridge + task → Task
	pinsBucket         = []byte("pins")          // bridge + SHA-256 of kind, provider and name → Pin

	buckets = [][]byte{
		metaBucket, bridgesBucket, tokensBucket, holdingsBucket, registrationBucket,
		revisionsBucket, endingsBucket, expiriesBucket, secretsBucket, tasksBucket, pinsBucket,
		tenantsBucket, belongingsBucket, usesBucket,
	}
	// addedBuckets came later: a file of an older program lacks them, and an older
	// program lives with them.
	addedBuckets = [][]byte{tasksBucket, pinsBucket, tenantsBucket, belongingsBucket, usesBucket}

	formatKey = []byte("format")
)

// BoltOptions are the settings of OpenBolt. The zero value is the default.
type BoltOptions struct {
	// LockTimeout is how long OpenBolt waits for another process to let go of
	// the file; zero means 1 s.
	LockTimeout time.Duration

	noSync bool // tests only: commits do not reach the disk
}

// Bolt is the engine for one machine: a bbolt file that one process at a time
// holds. It has one Shard, whose Epoch is always 1.
//
// Concurrent writes share commits. A read sees the last commit and waits for no
// write. A disk that fails while it takes the last page of a commit leaves open
// whether that commit happened until the file is opened again.
type Bolt struct {
	path    string    // fixed at construction
	db      *bbolt.DB // fixed at construction; has its own locks
	commits committer

	backingUp atomic.Bool

	once     sync.Once
	closeErr error // guarded by once
}

var _ Store = (*Bolt)(nil)

// OpenBolt opens the store in dir, the file FileName, and makes both if they do
// not exist. The directory must have mode 0700 and the file 0600. Only a file that
// does not exist is made: one that is empty, cut short, damaged, of a newer
// format, locked by another process or out of reach is left as it is, and the
// error is one sentence that names it and says what to do.
//
// The file's structure and its records' checksums are checked first, up to 128 MiB
// of it. Damage further down makes the reads that meet it fail, and the first
// write that meets it ends all writing.
func OpenBolt(dir string, o BoltOptions) (*Bolt, error) {
	db, err := openFile(dir, o)
	if err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	path := db.Path()
	return &Bolt{path: path, db: db, commits: committer{db: db, path: path}}, nil
}

// Shards is 1.
func (b *Bolt) Shards() int { return 1 }

// Acquire implements Store; the Epoch is always 1.
func (b *Bolt) Acquire(ctx context.Context, shard Shard, owner string) (Epoch, error) {
	err := b.read(ctx, func(*bbolt.Tx) error { return validShard(shard, 1) })
	if err != nil {
		return 0, fmt.Errorf("store: acquire shard %d for %s: %w", shard, owner, err)
	}
	return 1, nil
}

// read runs f in a read transaction; see view.
func (b *Bolt) read(ctx context.Context, f func(*bbolt.Tx) error) error {
	return view(ctx, b.db, b.path, f)
}

// write runs a write in some commit and wraps its error. invalid is a fault found
// before, if any; size is what is written, in bytes, about.
func (b *Bolt) write(ctx context.Context, op string, invalid error, size int, check, apply func(*bbolt.Tx) error) error {
	err := cmp.Or(context.Cause(ctx), invalid)
	if err == nil {
		err = b.commits.do(&write{size: size, check: check, apply: apply})
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", op, err)
	}
	return nil
}

// fenced refuses the Epoch zero, the only one older than ours.
func fenced(epoch Epoch) error {
	if epoch < 1 {
		return ErrFenced
	}
	return nil
}

// within is the key "bridge + name", or "tenant + name".
func within[O ~string, T ~string | ~[]byte](owner O, name T) []byte {
	key := make([]byte, 0, len(owner)+1+len(name))
	return append(append(append(key, owner...), 0), name...)
}

// each calls f with every key that begins with prefix, in order, until f fails.
func each(bucket *bbolt.Bucket, prefix []byte, f func(key, value []byte) error) error {
	c := bucket.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if err := f(k, v); err != nil {
			return err
		}
	}
	return nil
}

// keys copies every key that begins with prefix.
func keys(bucket *bbolt.Bucket, prefix []byte) (list [][]byte) {
	_ = each(bucket, prefix, func(k, _ []byte) error {
		list = append(list, bytes.Clone(k))
		return nil
	})
	return list
}

// CreateBridge implements Store.
func (b *Bolt) CreateBridge(ctx context.Context, epoch Epoch, br Bridge, tokens ...Token) error {
	invalid := cmp.Or(validBridge(br.ID), validTokens(br.ID, tokens...), fenced(epoch))
	key := []byte(br.ID)
	record := encodeBridge(key, br)
	return b.write(ctx, fmt.Sprintf("create bridge %.80q", br.ID), invalid, len(record)+256*len(tokens),
		func(tx *bbolt.Tx) error {
			if tx.Bucket(bridgesBucket).Get(key) != nil {
				return ErrExists
			}
			if err := hasTenant(tx, br.Tenant); err != nil {
				return err
			}
			for _, t := range tokens {
				if tx.Bucket(tokensBucket).Get([]byte(t.ID)) != nil {
					return fmt.Errorf("token %s: %w", t.ID, ErrExists)
				}
			}
			return nil
		},
		func(tx *bbolt.Tx) error {
			for _, t := range tokens {
				if err := putToken(tx, t); err != nil {
					return err
				}
			}
			if br.Tenant != "" {
				belonging := within(br.Tenant, br.ID)
				if err := tx.Bucket(belongingsBucket).Put(belonging, encodeEmpty(belonging)); err != nil {
					return err
				}
			}
			return tx.Bucket(bridgesBucket).Put(key, record)
		})
}

// Bridge implements Store.
func (b *Bolt) Bridge(ctx context.Context, id session.BridgeID) (br Bridge, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) (err error) {
		br, err = getBridge(tx, id)
		return err
	})
	if err != nil {
		return Bridge{}, fmt.Errorf("store: bridge %.80q: %w", id, err)
	}
	return br, nil
}

func getBridge(tx *bbolt.Tx, id session.BridgeID) (Bridge, error) {
	key := []byte(id)
	record := tx.Bucket(bridgesBucket).Get(key)
	if record == nil {
		return Bridge{}, ErrNotFound
	}
	return decodeBridge(key, record)
}

// Bridges implements Store.
func (b *Bolt) Bridges(ctx context.Context, after session.BridgeID, limit int) (list []Bridge, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) error {
		c := tx.Bucket(bridgesBucket).Cursor()
		k, v := c.Seek([]byte(after))
		if k != nil && string(k) == string(after) {
			k, v = c.Next()
		}
		for ; k != nil && len(list) < limit; k, v = c.Next() {
			br, err := decodeBridge(k, v)
			if err != nil {
				return fmt.Errorf("bridge %q: %w", k, err)
			}
			list = append(list, br)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: bridges: %w", err)
	}
	return list, nil
}

// UpdateBridge implements Store.
func (b *Bolt) UpdateBridge(ctx context.Context, epoch Epoch, br Bridge) (Bridge, error) {
	var now Bridge
	err := b.write(ctx, fmt.Sprintf("update bridge %.80q", br.ID), fenced(epoch), len(br.Policy)+256,
		func(tx *bbolt.Tx) error {
			known, err := getBridge(tx, br.ID)
			if err != nil {
				return err
			}
			if known.Version != br.Version {
				return ErrConflict
			}
			now = cloneBridge(br)
			now.Created, now.Tenant = known.Created, known.Tenant
			now.Version++
			return nil
		},
		func(tx *bbolt.Tx) error {
			key := []byte(br.ID)
			return tx.Bucket(bridgesBucket).Put(key, encodeBridge(key, now))
		})
	if err != nil {
		return Bridge{}, err
	}
	return now, nil
}

// DeleteBridge implements Store.
func (b *Bolt) DeleteBridge(ctx context.Context, epoch Epoch, id session.BridgeID) error {
	var known Bridge
	return b.write(ctx, fmt.Sprintf("delete bridge %.80q", id), fenced(epoch), len(id),
		func(tx *bbolt.Tx) (err error) {
			known, err = getBridge(tx, id)
			return err
		},
		func(tx *bbolt.Tx) error {
			prefix := within(id, "")
			for _, key := range keys(tx.Bucket(holdingsBucket), prefix) {
				if err := dropToken(tx, id, key[len(prefix):]); err != nil {
					return err
				}
			}
			for _, key := range keys(tx.Bucket(endingsBucket), prefix) {
				if err := dropEnding(tx, key); err != nil {
					return err
				}
			}
			for _, name := range [][]byte{registrationBucket, tasksBucket, pinsBucket} {
				bucket := tx.Bucket(name)
				for _, key := range keys(bucket, prefix) {
					if err := bucket.Delete(key); err != nil {
						return err
					}
				}
			}
			return cmp.Or(
				tx.Bucket(belongingsBucket).Delete(within(known.Tenant, id)),
				tx.Bucket(revisionsBucket).Delete([]byte(id)),
				tx.Bucket(bridgesBucket).Delete([]byte(id)))
		})
}

// AddToken implements Store.
func (b *Bolt) AddToken(ctx context.Context, epoch Epoch, t Token) error {
	invalid := cmp.Or(validBridge(t.Bridge), validTokens(t.Bridge, t), fenced(epoch))
	return b.write(ctx, fmt.Sprintf("add token %.80q", t.ID), invalid, 256,
		func(tx *bbolt.Tx) error {
			if tx.Bucket(bridgesBucket).Get([]byte(t.Bridge)) == nil {
				return fmt.Errorf("bridge %s: %w", t.Bridge, ErrNotFound)
			}
			if tx.Bucket(tokensBucket).Get([]byte(t.ID)) != nil {
				return ErrExists
			}
			return nil
		},
		func(tx *bbolt.Tx) error { return putToken(tx, t) })
}

// PutToken implements Store.
func (b *Bolt) PutToken(ctx context.Context, t Token) error {
	return b.write(ctx, fmt.Sprintf("put token %.80q", t.ID), validTokens("", t), 256,
		func(tx *bbolt.Tx) error {
			key := []byte(t.ID)
			if tx.Bucket(tokensBucket).Get(key) != nil && tx.Bucket(holdingsBucket).Get(within("", key)) == nil {
				return ErrExists
			}
			return hasTenant(tx, t.Tenant)
		},
		func(tx *bbolt.Tx) error { return putToken(tx, t) })
}

func putToken(tx *bbolt.Tx, t Token) error {
	key := []byte(t.ID)
	holding := within(t.Bridge, key)
	return cmp.Or(
		tx.Bucket(holdingsBucket).Put(holding, encodeEmpty(holding)),
		tx.Bucket(tokensBucket).Put(key, encodeToken(key, t)))
}

func dropToken(tx *bbolt.Tx, bridge session.BridgeID, key []byte) error {
	return cmp.Or(
		tx.Bucket(holdingsBucket).Delete(within(bridge, key)),
		tx.Bucket(usesBucket).Delete(key),
		tx.Bucket(tokensBucket).Delete(key))
}

func getToken(tx *bbolt.Tx, key []byte) (Token, error) {
	record := tx.Bucket(tokensBucket).Get(key)
	if record == nil {
		return Token{}, ErrNotFound
	}
	t, err := decodeToken(key, record)
	if err != nil {
		return Token{}, err
	}
	return withUse(tx, t)
}

// Token implements Store.
func (b *Bolt) Token(ctx context.Context, id string) (t Token, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) (err error) {
		t, err = getToken(tx, []byte(id))
		return err
	})
	if err != nil {
		return Token{}, fmt.Errorf("store: token %.80q: %w", id, err)
	}
	return t, nil
}

// Tokens implements Store.
func (b *Bolt) Tokens(ctx context.Context, bridge session.BridgeID) (list []Token, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) (err error) {
		list, err = tokensOf(tx, bridge)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: tokens of bridge %.80q: %w", bridge, err)
	}
	return list, nil
}

func tokensOf(tx *bbolt.Tx, bridge session.BridgeID) (list []Token, err error) {
	prefix := within(bridge, "")
	err = each(tx.Bucket(holdingsBucket), prefix, func(key, _ []byte) error {
		t, err := getToken(tx, key[len(prefix):])
		if err != nil {
			return fmt.Errorf("token %q: %w", key[len(prefix):], err)
		}
		list = append(list, t)
		return nil
	})
	return list, err
}

// DeleteToken implements Store.
func (b *Bolt) DeleteToken(ctx context.Context, id string) error {
	var known Token
	return b.write(ctx, fmt.Sprintf("delete token %.80q", id), nil, len(id),
		func(tx *bbolt.Tx) (err error) {
			known, err = getToken(tx, []byte(id))
			return err
		},
		func(tx *bbolt.Tx) error { return dropToken(tx, known.Bridge, []byte(id)) })
}

// Secret implements Store.
func (b *Bolt) Secret(ctx context.Context, name string, mint func() []byte) ([]byte, error) {
	op, key := fmt.Sprintf("secret %.80q", name), []byte(name)
	var secret []byte
	find := func(tx *bbolt.Tx) (err error) {
		secret = nil
		if record := tx.Bucket(secretsBucket).Get(key); record != nil {
			secret, err = decodeSecret(key, record)
		}
		return err
	}
	err := validName(name)
	if err == nil {
		err = b.read(ctx, find)
	}
	if err != nil || secret != nil {
		if err != nil {
			return nil, fmt.Errorf("store: %s: %w", op, err)
		}
		return secret, nil
	}
	var invalid error
	fresh := slices.Clone(mint())
	if len(fresh) == 0 {
		invalid = errNoSecret
	}
	err = b.write(ctx, op, invalid, len(fresh), find, func(tx *bbolt.Tx) error {
		if secret != nil { // somebody else's mint was first
			return nil
		}
		secret = fresh
		return tx.Bucket(secretsBucket).Put(key, encodeSecret(key, fresh))
	})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// Close implements Store.
func (b *Bolt) Close() error {
	b.once.Do(func() {
		b.commits.close()
		if err := b.db.Close(); err != nil {
			b.closeErr = fmt.Errorf("store: close: %w", err)
		}
	})
	return b.closeErr
}

// second is a time as the first part of a key: its order is the times'.
func second(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(t.Unix())^1<<63) //nolint:gosec // two's complement, sign flipped
}
