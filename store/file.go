package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// FileName is the name of Bolt's file in its directory.
const FileName = "mcpbridge.db"

// format numbers the layout of the buckets; it lives in the bucket "meta" as
// "format", 4 bytes, big endian. A change that old programs could not live with
// raises it.
const format = 1

const (
	wantDir  fs.FileMode = 0o700
	wantFile fs.FileMode = 0o600

	remedy = "restore it from a backup, or move it away to start with an empty store"
)

// newFile is the pattern of names under which a store is made before it gets its
// own: a crash meanwhile must not leave a half-made FileName.
const newFile = FileName + ".new-*"

// openFile makes or opens the file and returns it locked and checked. Each of
// its errors is one sentence that names the path and says what to do.
func openFile(dir string, o BoltOptions) (db *bbolt.DB, err error) {
	path := filepath.Join(dir, FileName)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged(path, p)
		}
		if err != nil && db != nil {
			_ = db.Close()
			db = nil
		}
	}()
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	switch err := checkFile(path); {
	case errors.Is(err, fs.ErrNotExist):
		if err := create(dir, path); err != nil {
			return nil, explain(path, err)
		}
		if err := checkFile(path); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	if err := inspect(path, o); err != nil {
		return nil, explain(path, err)
	}
	options := boltOptions(o, false)
	if info, err := os.Stat(path); err == nil {
		options.InitialMmapSize = initialMap(info.Size())
	}
	if db, err = bbolt.Open(path, wantFile, options); err != nil {
		return nil, explain(path, err)
	}
	// The lock is ours: whatever is still being made has lost its race.
	stale, _ := filepath.Glob(filepath.Join(dir, newFile))
	for _, name := range stale {
		_ = os.Remove(name)
	}
	if err := addBuckets(db); err != nil {
		return db, explain(path, err)
	}
	return db, nil
}

func boltOptions(o BoltOptions, readOnly bool) *bbolt.Options {
	timeout := o.LockTimeout
	if timeout == 0 {
		timeout = time.Second
	}
	return &bbolt.Options{
		Timeout:      timeout,
		ReadOnly:     readOnly,
		FreelistType: bbolt.FreelistMapType, // the array slows down on files with many holes
		NoStatistics: true,                  // a lock taken twice by every read
		NoSync:       o.noSync,
	}
}

// prepareDir makes the directory, or refuses one that others may enter.
func prepareDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, wantDir); err != nil {
			return explain(dir, err)
		}
		return explain(dir, syncDir(filepath.Dir(dir)))
	case err != nil:
		return explain(dir, err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: choose another one", dir)
	}
	return checkMode(dir, info, wantDir)
}

// checkFile refuses what cannot be a store's file: the mode first, then the kind
// and an emptiness that bbolt would take for a new file. The error is
// fs.ErrNotExist if there is none.
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		return explain(path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: move it away", path)
	}
	if err := checkMode(path, info, wantFile); err != nil {
		return err
	}
	if info.Size() == 0 {
		return truncated(path, &truncatedError{0, 2 * minPage})
	}
	return nil
}

// checkMode demands exactly the wanted permissions of the owner and none of
// others. Windows has no such modes.
func checkMode(path string, info fs.FileInfo, want fs.FileMode) error {
	mode := info.Mode().Perm()
	if runtime.GOOS == "windows" || mode&0o077 == 0 && mode&want == want {
		return nil
	}
	return fmt.Errorf("%s has mode %04o, want %04o so that its owner alone can read and write it: run chmod %04o on it",
		path, mode, want, want)
}

// create makes an empty store under another name and gives it its own when it is
// complete and on disk. If another process was faster, that one's file stays.
func create(dir, path string) error {
	f, err := os.CreateTemp(dir, newFile) // mode 0600
	if err != nil {
		return err
	}
	name := f.Name()
	defer func() { _ = os.Remove(name) }()
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(name, wantFile, nil)
	if err != nil {
		return err
	}
	// Twice, so that either of bbolt's two meta pages leads to the layout: were
	// one lost, an empty store would look like no store at all.
	err = errors.Join(db.Update(layOut), db.Update(layOut), db.Close())
	if err != nil {
		return err
	}
	// Link, unlike Rename, never replaces a file. Where there are no links,
	// Rename has to do.
	if err := os.Link(name, path); err != nil {
		if _, known := os.Stat(path); known == nil {
			return nil
		}
		if err := os.Rename(name, path); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// layOut makes the buckets and says which format they are in.
func layOut(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint32(nil, format))
}

// addBuckets makes the buckets that a file of an older program lacks.
func addBuckets(db *bbolt.DB) error {
	whole := true
	err := db.View(func(tx *bbolt.Tx) error {
		for _, name := range addedBuckets {
			whole = whole && tx.Bucket(name) != nil
		}
		return nil
	})
	if err != nil || whole {
		return err
	}
	return db.Update(layOut)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// inspect reads a file under a shared lock, before bbolt trusts it with writes:
// that it is whole, that its pages make sense, and that its format is known.
// bbolt opens read-only without touching any page but the first two.
func inspect(path string, o BoltOptions) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	db, err := bbolt.Open(path, wantFile, boltOptions(o, true))
	if err != nil {
		// bbolt does not tell a short file from a wrong one.
		if short, ok := errors.AsType[*truncatedError](checkFilePages(f, 0, nil)); ok && !errors.Is(err, bolterrors.ErrTimeout) {
			return truncated(path, short)
		}
		return err
	}
	defer func() { _ = db.Close() }()
	var rotten error // told only once the format is known: records may have changed
	err = checkFilePages(f, maxChecked, func(bucket, key, record []byte) {
		if rotten != nil || bytes.Equal(bucket, metaBucket) {
			return
		}
		if _, err := payloadOf(key, record); err != nil {
			rotten = fmt.Errorf("bucket %s, key %.80q: %w", bucket, key, err)
		}
	})
	if short, ok := errors.AsType[*truncatedError](err); ok {
		return truncated(path, short)
	}
	if err != nil {
		return damaged(path, err)
	}
	err = view(context.Background(), db, path, func(tx *bbolt.Tx) error { return checkLayout(tx, path) })
	if v, ok := errors.AsType[newerRecordError](rotten); ok && err == nil {
		return newerRecords(path, v)
	}
	if err == nil && rotten != nil {
		return damaged(path, rotten)
	}
	return err
}

func isAdded(bucket []byte) bool {
	return slices.ContainsFunc(addedBuckets, func(added []byte) bool { return bytes.Equal(added, bucket) })
}

func newerFormat(path string, n uint32) error {
	return fmt.Errorf("the file %s has format %d, which is newer than the %d that this program knows: use a newer program",
		path, n, format)
}

func newerRecords(path string, v newerRecordError) error {
	return fmt.Errorf("the file %s has records of version %d, which is newer than the %d that this program knows: use a newer program",
		path, byte(v), recordV2)
}

// checkLayout tells whether the format is ours and complete.
func checkLayout(tx *bbolt.Tx, path string) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return fmt.Errorf("the file %s has no bucket %q, so it is another program's: choose another directory", path, metaBucket)
	}
	number := meta.Get(formatKey)
	if len(number) != 4 {
		return damaged(path, "it has no format number")
	}
	if n := binary.BigEndian.Uint32(number); n > format {
		return newerFormat(path, n)
	} else if n != format {
		return damaged(path, fmt.Sprintf("there is no format %d", n))
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil && !isAdded(name) {
			return damaged(path, fmt.Sprintf("the bucket %s is missing", name))
		}
	}
	return nil
}

func checkFilePages(f *os.File, budget int64, record func(bucket, key, value []byte)) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return checkPages(f, info.Size(), budget, record)
}

func truncated(path string, short *truncatedError) error {
	return fmt.Errorf("the file %s was truncated (%w): %s", path, short, remedy)
}

// explain turns what the system or bbolt said about a path into advice. An error
// that names the path already stays as it is.
func explain(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("the file %s is locked by another process: end that one, or choose another directory", path)
	case errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("the file %s was written in another version of bbolt's format: use a newer program", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum):
		return damaged(path, "neither of its two meta pages is valid")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be used by this user: let its owner run the program, or change its owner: %w", path, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s is on a read-only file system: choose another directory: %w", path, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%s is on a full file system: free some space: %w", path, err)
	}
	return err
}
