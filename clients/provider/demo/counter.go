package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"mcpbridge/clients/provider"
)

// counter is a number in a file. A crash leaves the old value or the new one.
type counter struct {
	path string     // fixed at construction
	mu   sync.Mutex // held over a whole call: values come one after the other
}

func (c *counter) call(_ context.Context, call *provider.Call) (provider.Result, error) {
	in := struct{ By int64 }{By: 1}
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	value, err := c.add(in.By)
	if err != nil {
		return provider.Result{}, err
	}
	text := strconv.FormatInt(value, 10)
	r := provider.Text(text)
	r.Structured = []byte(`{"value":` + text + `}`)
	return r, nil
}

// add changes the counter and returns its new value once that is durable.
func (c *counter) add(by int64) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, err := c.read()
	if err != nil || by == 0 {
		return value, err
	}
	if by > 0 && value > math.MaxInt64-by || by < 0 && value < math.MinInt64-by {
		return 0, errors.New("the counter cannot count that far")
	}
	value += by
	return value, c.write(value)
}

// read is the counter's value: 0 where there is no file yet. Its errors do not
// tell clients where the file is.
func (c *counter) read() (int64, error) {
	b, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the counter cannot be read: %w", bare(err))
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, errors.New("the counter's file holds no number")
	}
	return value, nil
}

func (c *counter) write(value int64) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the counter cannot be written: %w", bare(err))
		}
	}()
	folder := filepath.Dir(c.path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, filepath.Base(c.path)+".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, value)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), c.path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// syncFolder makes a rename in a folder durable.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	// Some systems cannot sync a folder, and need not.
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// bare is a file error without its path.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
