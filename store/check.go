package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"mcpbridge/session"
)

// maxFaults is how many faults a Report has in words.
const maxFaults = 20

// Report is what CheckFile found in a file.
type Report struct {
	File    string        `json:"file"`
	Bytes   int64         `json:"bytes"`
	Format  int           `json:"format"` // zero where damage hides it
	Buckets []BucketCount `json:"buckets"`
	Faults  []string      `json:"faults"` // the first maxFaults, a sentence each; empty for a sound file
	More    int           `json:"more"`   // further faults
}

// BucketCount is how many records a bucket has, and how many bytes their keys and
// values take.
type BucketCount struct {
	Bucket  string `json:"bucket"`
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	Unknown bool   `json:"unknown,omitempty"` // a newer program's; its records are not read
}

// Err is nil for a sound file, and else one sentence with the first fault.
func (r *Report) Err() error {
	switch n := len(r.Faults) + r.More; n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("the file %s is damaged: %s", r.File, r.Faults[0])
	default:
		return fmt.Errorf("the file %s is damaged: %s, and %d more faults", r.File, r.Faults[0], n-1)
	}
}

func (r *Report) fault(format string, args ...any) {
	if len(r.Faults) >= maxFaults {
		r.More++
		return
	}
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

// CheckFile reads the whole of a store's file, which no process may have open for
// writing, and changes nothing: that its pages are sound, by our own walk and by
// bbolt's, that every record's checksum and fields are, and that what records say of
// each other is true. What is wrong is in the Report; the error is one sentence about a
// file that is no store's, is of a newer format, or cannot be read.
func CheckFile(ctx context.Context, path string) (Report, error) {
	r := Report{File: path, Buckets: []BucketCount{}, Faults: []string{}}
	err := r.check(ctx, path)
	if err != nil {
		return r, fmt.Errorf("store: check: %w", explain(path, err))
	}
	return r, nil
}

func (r *Report) check(ctx context.Context, path string) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	r.Bytes = info.Size()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if r.Bytes == 0 { // bbolt would take it for a new one
		r.fault("it is empty")
		return nil
	}
	db, err := bbolt.Open(path, wantFile, boltOptions(BoltOptions{}, true))
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum):
		r.fault("neither of its two meta pages is valid")
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("the file %s is in use by a running server: check a backup of it, or stop the server", path)
	case err != nil:
		if short, ok := errors.AsType[*truncatedError](checkFilePages(f, 0, nil)); ok {
			r.fault("it was truncated: %v", short)
			return nil
		}
		return err
	}
	defer func() { _ = db.Close() }()

	newer := newerRecordError(0)
	reader := &stoppableReader{ctx, f}
	err = checkPages(reader, r.Bytes, math.MaxInt64, func(bucket, key, value []byte) {
		if v, ok := errors.AsType[newerRecordError](r.record(bucket, key, value)); ok {
			newer = max(newer, v)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if short, ok := errors.AsType[*truncatedError](err); ok {
		r.fault("it was truncated: %v", short)
		return nil
	}
	if err != nil { // bbolt's own functions trust what we found to be wrong
		r.fault("%v", err)
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			r.fault("%v", p)
		}
	}()
	return db.View(func(tx *bbolt.Tx) error {
		if err := r.layout(tx, path); err != nil {
			return err
		}
		if newer > 0 {
			return newerRecords(path, newer)
		}
		if len(r.Faults) == 0 {
			r.references(tx)
		}
		for err := range tx.Check() {
			r.fault("%v", err)
		}
		return nil
	})
}

// layout checks the format and that every bucket is there.
func (r *Report) layout(tx *bbolt.Tx, path string) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return fmt.Errorf("the file %s has no bucket %q, so it is another program's", path, metaBucket)
	}
	number := meta.Get(formatKey)
	if len(number) != 4 {
		r.fault("it has no format number")
		return nil
	}
	if n := binary.BigEndian.Uint32(number); n > format {
		return newerFormat(path, n)
	} else if r.Format = int(n); n != format {
		r.fault("there is no format %d", n)
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil && !isAdded(name) {
			r.fault("the bucket %s is missing", name)
		}
	}
	return nil
}

// decoders read a record of each bucket. A record of a bucket that is not here is a
// newer program's.
var decoders = map[string]func(key, record []byte) error{
	string(bridgesBucket): func(key, record []byte) error {
		b, err := decodeBridge(key, record)
		return named(key, b.ID, err)
	},
	string(tokensBucket): func(key, record []byte) error {
		t, err := decodeToken(key, record)
		return named(key, t.ID, err)
	},
	string(tenantsBucket): func(key, record []byte) error {
		t, err := decodeTenant(key, record)
		return named(key, t.ID, err)
	},
	string(holdingsBucket):     emptyRecord,
	string(belongingsBucket):   emptyRecord,
	string(expiriesBucket):     emptyRecord,
	string(registrationBucket): func(key, record []byte) error { _, err := decodeRegistration(key, record); return err },
	string(revisionsBucket):    func(key, record []byte) error { _, err := decodeNumber(key, record); return err },
	string(endingsBucket):      func(key, record []byte) error { _, err := decodeEnding(key, record); return err },
	string(usesBucket):         func(key, record []byte) error { _, err := decodeEnding(key, record); return err },
	string(secretsBucket):      func(key, record []byte) error { _, err := decodeSecret(key, record); return err },
	string(tasksBucket):        func(key, record []byte) error { _, err := decodeTask(key, record); return err },
	string(pinsBucket):         func(key, record []byte) error { _, err := decodePin(key, record); return err },
	string(metaBucket):         func(_, _ []byte) error { return nil }, // no record; see layout
}

func emptyRecord(key, record []byte) error {
	payload, err := payloadOf(key, record)
	if err == nil && len(payload) > 0 {
		err = errLong
	}
	return err
}

// named tells whether a record says what its key says.
func named[T ~string](key []byte, id T, err error) error {
	if err == nil && string(key) != string(id) {
		return fmt.Errorf("the record says that it is %.80q", string(id))
	}
	return err
}

// record counts a record and checks it by itself.
func (r *Report) record(bucket, key, value []byte) error {
	i := slices.IndexFunc(r.Buckets, func(c BucketCount) bool { return c.Bucket == string(bucket) })
	if i < 0 {
		i = len(r.Buckets)
		_, known := decoders[string(bucket)]
		r.Buckets = append(r.Buckets, BucketCount{Bucket: string(bucket), Unknown: !known})
	}
	r.Buckets[i].Records++
	r.Buckets[i].Bytes += int64(len(key) + len(value))
	if r.Buckets[i].Unknown {
		return nil
	}
	err := decoders[string(bucket)](key, value)
	if _, newer := errors.AsType[newerRecordError](err); err != nil && !newer {
		r.fault("bucket %s, key %.80q: %v", bucket, key, err)
	}
	return err
}

// references checks what sound records say of each other.
func (r *Report) references(tx *bbolt.Tx) {
	has := func(bucket, key []byte) bool { return tx.Bucket(bucket) != nil && tx.Bucket(bucket).Get(key) != nil }
	scan := func(bucket []byte, f func(key, value []byte)) {
		if b := tx.Bucket(bucket); b != nil {
			_ = b.ForEach(func(k, v []byte) error { f(k, v); return nil })
		}
	}
	lost := func(bucket, key []byte, what string, id any) {
		r.fault("bucket %s, key %.80q: it belongs to the %s %.80q, which is not there", bucket, key, what, id)
	}
	for _, bucket := range [][]byte{registrationBucket, revisionsBucket, endingsBucket, tasksBucket, pinsBucket, holdingsBucket} {
		scan(bucket, func(key, _ []byte) {
			id, _, _ := bytes.Cut(key, []byte{0})
			if len(id) > 0 && !has(bridgesBucket, id) {
				lost(bucket, key, "bridge", id)
			}
		})
	}
	scan(bridgesBucket, func(key, value []byte) {
		b, _ := decodeBridge(key, value)
		if b.Tenant == "" {
			return
		}
		if !has(tenantsBucket, []byte(b.Tenant)) {
			lost(bridgesBucket, key, "tenant", string(b.Tenant))
		}
		if !has(belongingsBucket, within(b.Tenant, b.ID)) {
			r.fault("the bridge %s is missing among those of its tenant %s", b.ID, b.Tenant)
		}
	})
	scan(belongingsBucket, func(key, _ []byte) {
		tenant, id, _ := bytes.Cut(key, []byte{0})
		b, err := getBridge(tx, session.BridgeID(id))
		if err != nil || string(b.Tenant) != string(tenant) {
			lost(belongingsBucket, key, "bridge", id)
		}
	})
	scan(tokensBucket, func(key, value []byte) {
		t, _ := decodeToken(key, value)
		if t.Tenant != "" && !has(tenantsBucket, []byte(t.Tenant)) {
			lost(tokensBucket, key, "tenant", string(t.Tenant))
		}
		if !has(holdingsBucket, within(t.Bridge, t.ID)) {
			r.fault("the token %.80q is missing among those of its bridge", t.ID)
		}
	})
	scan(holdingsBucket, func(key, _ []byte) {
		if _, id, _ := bytes.Cut(key, []byte{0}); !has(tokensBucket, id) {
			lost(holdingsBucket, key, "token", id)
		}
	})
	scan(usesBucket, func(key, _ []byte) {
		if !has(tokensBucket, key) {
			lost(usesBucket, key, "token", key)
		}
	})
	scan(endingsBucket, func(key, value []byte) {
		until, _ := decodeEnding(key, value)
		if !has(expiriesBucket, append(second(until), key...)) {
			r.fault("bucket endings, key %.80q: it never expires", key)
		}
	})
	scan(expiriesBucket, func(key, _ []byte) {
		if len(key) < 8 || !has(endingsBucket, key[8:]) {
			lost(expiriesBucket, key, "ending", key)
		}
	})
}

// stoppableReader is a ReaderAt that fails once its context has ended.
type stoppableReader struct {
	ctx context.Context //nolint:containedctx // checkPages asks for a ReaderAt
	r   io.ReaderAt
}

func (s *stoppableReader) ReadAt(p []byte, at int64) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.ReadAt(p, at)
}
