package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Bounds of one commit: the writes in it, and about how many bytes they hold.
// The first write is always taken.
const (
	maxCommitWrites = 1024
	maxCommitBytes  = 16 << 20
)

// A write is one caller's part of a commit. It may run several times, each time
// in a transaction that has seen none of its earlier runs.
type write struct {
	size  int                   // of what it writes, in bytes, about
	check func(*bbolt.Tx) error // reads only; its error refuses this write alone
	apply func(*bbolt.Tx) error

	err  error
	turn chan bool // capacity 1: true means lead the next commit, false means done
}

// committer brings concurrent writes into one transaction. Whoever finds it idle
// leads: commits what has gathered, its own write first, and hands the lead to
// the first that came meanwhile. So a lone write waits for nobody, a commit takes
// all that arrived during the one before, and no goroutine is kept. (bbolt's own
// Batch seals a batch before it has the writer's lock, and so needs a delay that
// lone writes pay for.)
type committer struct {
	db   *bbolt.DB // fixed at construction
	path string    // fixed at construction

	mu      sync.Mutex // guards what follows; never held over I/O
	queue   []*write
	busy    bool
	closed  bool
	damage  error          // once set, no further write touches the file
	running sync.WaitGroup // the writes that were let in
}

// do runs a write in some commit and waits until it is durable or refused.
func (c *committer) do(w *write) error {
	w.turn = make(chan bool, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed
	}
	c.running.Add(1)
	defer c.running.Done()
	c.queue = append(c.queue, w)
	if c.busy {
		c.mu.Unlock()
		if lead := <-w.turn; !lead {
			return w.err
		}
		c.mu.Lock()
	}
	c.busy = true
	batch, damage := c.take(), c.damage
	c.mu.Unlock()

	if damage == nil {
		damage = c.commit(batch)
	} else {
		for _, w := range batch {
			w.err = damage
		}
	}

	c.mu.Lock()
	c.damage = damage
	if c.busy = len(c.queue) > 0; c.busy {
		c.queue[0].turn <- true
	}
	c.mu.Unlock()
	for _, w := range batch[1:] {
		w.turn <- false
	}
	return w.err
}

// take removes the next commit's writes from the queue.
func (c *committer) take() []*write {
	n, bytes := 0, 0
	for n < len(c.queue) && n < maxCommitWrites && (n == 0 || bytes+c.queue[n].size <= maxCommitBytes) {
		bytes += c.queue[n].size
		n++
	}
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	return batch
}

// commit runs the writes in one transaction and sets their errors. A write whose
// apply fails is left out and the rest runs again. It returns an error only if
// the file turned out to be damaged.
func (c *committer) commit(batch []*write) (damage error) {
	for len(batch) > 0 {
		bad, err, damage := c.transact(batch)
		if bad < 0 {
			for _, w := range batch {
				if err != nil {
					w.err = err
				}
			}
			return damage
		}
		batch[bad].err = err
		rest := make([]*write, 0, len(batch)-1)
		batch = append(append(rest, batch[:bad]...), batch[bad+1:]...)
	}
	return nil
}

// transact tries one transaction. bad is the index of the write whose apply
// failed, -1 if none did.
func (c *committer) transact(batch []*write) (bad int, err, damage error) {
	var tx *bbolt.Tx
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			damage = damaged(c.path, p)
			bad, err = -1, damage
			abandon(tx)
		}
	}()
	if tx, err = c.db.Begin(true); err != nil {
		return -1, err, nil
	}
	applied := false
	for i, w := range batch {
		if w.err = nil; w.check != nil {
			if w.err = w.check(tx); w.err != nil {
				continue
			}
		}
		if err := w.apply(tx); err != nil {
			return i, errors.Join(err, tx.Rollback()), nil
		}
		applied = true
	}
	if !applied {
		return -1, tx.Rollback(), nil
	}
	return -1, tx.Commit(), nil
}

// abandon gives up a transaction in which bbolt panicked. Rollback reads no
// page; should it panic all the same, the writer's lock stays taken, and nobody
// asks for it again.
func abandon(tx *bbolt.Tx) {
	defer func() { _ = recover() }()
	if tx != nil {
		_ = tx.Rollback()
	}
}

// close refuses further writes and waits for those let in.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// view runs f in a read transaction. bbolt trusts its pages: on a damaged one it
// panics or reads outside the file, and both become an error here. Nothing that
// f keeps may point into the transaction.
func view(ctx context.Context, db *bbolt.DB, path string, f func(*bbolt.Tx) error) (err error) {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged(path, p)
		}
	}()
	if err = db.View(f); errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}

// damaged is the one sentence about a file that cannot be trusted.
func damaged(path string, reason any) error {
	return fmt.Errorf("the file %s is damaged (%v): %s", path, reason, remedy)
}
