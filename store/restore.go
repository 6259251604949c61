package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// WriteBackup writes a backup that it reads from r, of size bytes, to path, with mode
// 0600. The file is there whole, checked and durable, or not at all. One that is there
// already is an error, fs.ErrExist, or with replace gives way.
func WriteBackup(ctx context.Context, path string, r io.Reader, size int64, replace bool) (Report, error) {
	if err := Vacant(path, replace); err != nil {
		return Report{}, err
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part-*")
	return install(ctx, part, path, r, size, func(name string) error {
		if replace {
			return os.Rename(name, path)
		}
		return settle(name, path)
	})
}

// Vacant refuses a path at which there is something, fs.ErrExist, or with replace what
// is no regular file.
func Vacant(path string, replace bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return explain(path, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: choose another name", path)
	case !replace:
		return &existsError{path}
	}
	return nil
}

// existsError is an fs.ErrExist that says what to do.
type existsError struct{ path string }

func (e *existsError) Error() string {
	return fmt.Sprintf("%s exists: choose another name, or move it away", e.path)
}

func (e *existsError) Unwrap() error { return fs.ErrExist }

// install copies r to a file of a name like part, checks it, and has place give it the
// name path.
func install(ctx context.Context, part, path string, r io.Reader, size int64, place func(name string) error) (report Report, err error) {
	f, err := os.CreateTemp(filepath.Dir(part), filepath.Base(part)) // mode 0600
	if err != nil {
		return report, explain(filepath.Dir(path), err)
	}
	name := f.Name()
	defer func() { _ = os.Remove(name) }()
	if err := cmp.Or(fill(ctx, f, r, size), f.Close()); err != nil {
		return report, fmt.Errorf("writing %s: %w", path, explain(path, err))
	}
	report, err = CheckFile(ctx, name)
	if report.File = path; err == nil {
		err = report.Err()
	}
	if err != nil {
		return report, fmt.Errorf("what came for %s: %w", path, err)
	}
	if err := place(name); err != nil {
		return report, explain(path, err)
	}
	return report, explain(path, syncDir(filepath.Dir(path)))
}

// settle gives a file its own name, at which there must be nothing.
func settle(name, path string) error {
	// Link, unlike Rename, never replaces a file. Where there are no links, Rename has
	// to do.
	err := os.Link(name, path)
	if err == nil {
		return nil
	}
	if err := Vacant(path, false); err != nil {
		return err
	}
	return os.Rename(name, path)
}

// fill writes size bytes of r to f, durably.
func fill(ctx context.Context, f *os.File, r io.Reader, size int64) error {
	w := &stoppable{ctx: ctx, w: f}
	n, err := io.Copy(w, r)
	switch {
	case w.err != nil:
		err = w.err
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil || n != size:
		err = fmt.Errorf("it was cut off after %d of %d bytes: %w", n, size, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}

// Restore makes the backup in the file from the store of dir, which no server may use
// meanwhile. It checks the backup first, and leaves all as it is if that is not sound.
// A store that is there already is an error, fs.ErrExist; with replace it is kept under
// another name, which aside tells.
func Restore(ctx context.Context, from, dir string, replace bool) (report Report, aside string, err error) {
	if report, err = CheckFile(ctx, from); err == nil {
		err = report.Err()
	}
	if err != nil {
		return report, "", err
	}
	f, err := os.Open(from)
	if err != nil {
		return report, "", explain(from, err)
	}
	defer func() { _ = f.Close() }()
	if err := prepareDir(dir); err != nil {
		return report, "", err
	}
	path := filepath.Join(dir, FileName)
	if err := Vacant(path, replace); err != nil {
		return report, "", err
	}
	report, err = install(ctx, filepath.Join(dir, newFile), path, f, report.Bytes, func(name string) error {
		if !replace || Vacant(path, false) == nil {
			return settle(name, path)
		}
		if err := unused(path); err != nil {
			return err
		}
		aside = path + time.Now().UTC().Format(".before-20060102T150405Z")
		if err := settle(path, aside); err != nil {
			return err
		}
		return os.Rename(name, path)
	})
	if err != nil {
		return report, "", err
	}
	return report, aside, nil
}

// unused tells whether no process has a store's file open, be it damaged or not.
func unused(path string) error {
	db, err := bbolt.Open(path, wantFile, boltOptions(BoltOptions{}, true))
	if err == nil {
		return db.Close()
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("the file %s is in use by a running server: stop that one first", path)
	}
	return nil
}
