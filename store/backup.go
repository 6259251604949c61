package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"go.etcd.io/bbolt"
)

// ErrBackingUp: one backup at a time is made of a store.
var ErrBackingUp = errors.New("another backup is being made")

// Backup copies the store as it is at one moment: all that was acknowledged before
// the call began is in it, and no write in part. It returns the copy, a store's file,
// with its size in bytes; Close lets go of it, and no other Backup begins before.
// ErrBackingUp.
//
// Writes go on meanwhile. What they free cannot be used again before the copy is made,
// so that the file grows by what is written meanwhile. So the copy is made on the
// store's own disk, at its speed, and not at that of whoever reads it then; the disk
// must have room for it.
func (b *Bolt) Backup(ctx context.Context) (copied io.ReadCloser, size int64, err error) {
	c, size, err := b.backup(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("store: backup: %w", explain(b.path, err))
	}
	return c, size, nil
}

func (b *Bolt) backup(ctx context.Context) (c *backup, size int64, err error) {
	if !b.backingUp.CompareAndSwap(false, true) {
		return nil, 0, ErrBackingUp
	}
	c = &backup{}
	c.close = sync.OnceValue(func() error {
		defer b.backingUp.Store(false)
		if c.File == nil {
			return nil
		}
		return errors.Join(c.File.Close(), removed(c.Name()))
	})
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if c.File, err = os.CreateTemp(filepath.Dir(b.path), newFile); err != nil { // mode 0600
		return c, 0, err
	}
	if runtime.GOOS != "windows" {
		_ = os.Remove(c.Name()) // now, so that nothing is left behind whatever happens
	}
	size, err = b.copyTo(ctx, c.File)
	return c, size, err
}

// copyTo writes the store as it is now to f, and leaves f at its beginning.
func (b *Bolt) copyTo(ctx context.Context, f *os.File) (size int64, err error) {
	w := &stoppable{ctx: ctx, w: f}
	err = b.read(ctx, func(tx *bbolt.Tx) (err error) {
		size, err = tx.WriteTo(w)
		return cmp.Or(w.err, err)
	})
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return size, err
}

// backup is the copy that Backup hands out.
type backup struct {
	*os.File
	close func() error // once
}

// Close removes the copy.
func (b *backup) Close() error { return b.close() }

// removed removes a file that may be gone.
func removed(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// stoppable is a Writer that fails once its context has ended. It keeps its error, of
// which bbolt tells the text alone.
type stoppable struct {
	ctx context.Context //nolint:containedctx // bbolt asks for a Writer
	w   io.Writer
	err error
}

func (s *stoppable) Write(p []byte) (n int, err error) {
	if s.err = context.Cause(s.ctx); s.err != nil {
		return 0, s.err
	}
	n, s.err = s.w.Write(p)
	return n, s.err
}

// bbolt maps the file, and a write for which the map is too small waits for every read
// under way, a backup's too. A larger map costs addresses alone, where there are plenty
// and where it does not make the file larger as well. Files below headroomFrom are
// copied faster than anybody notices.
const (
	headroomFrom = 64 << 20 // bytes of a file
	headroom     = 1 << 30  // bytes of the map beyond it, which bbolt rounds up to GiB
)

// initialMap is how much of a file of that size is mapped at first; zero leaves it to
// bbolt, which maps the next power of two, and from 1 GiB on the next GiB.
func initialMap(size int64) int {
	if runtime.GOOS == "windows" || strconv.IntSize < 64 || size < headroomFrom {
		return 0
	}
	return int(size) + headroom
}
