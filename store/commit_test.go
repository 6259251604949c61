package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
)

func opened(t *testing.T) *Bolt {
	t.Helper()
	b, err := OpenBolt(filepath.Join(t.TempDir(), "data"), BoltOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// together brings writes into one commit: the first waits in its turn until the
// others are queued.
func together(c *committer, writes ...*write) []error {
	errs := make([]error, len(writes))
	var wg sync.WaitGroup
	begun, release := make(chan bool), make(chan bool)
	wg.Go(func() {
		_ = c.do(&write{apply: func(*bbolt.Tx) error { close(begun); <-release; return nil }})
	})
	<-begun
	for i, w := range writes {
		wg.Go(func() { errs[i] = c.do(w) })
		for queued := false; !queued; {
			c.mu.Lock()
			queued = len(c.queue) > i
			c.mu.Unlock()
		}
	}
	close(release)
	wg.Wait()
	return errs
}

func putting(name string, and error) *write {
	return &write{apply: func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(secretsBucket).Put([]byte(name), []byte{1}), and)
	}}
}

func TestOneFailedWriteSpoilsNoOther(t *testing.T) {
	b := opened(t)
	bad, refused := errors.New("bad"), errors.New("refused")
	no := putting("no", nil)
	no.check = func(*bbolt.Tx) error { return refused }
	errs := together(&b.commits, putting("1", nil), putting("bad1", bad), no, putting("2", nil), putting("bad2", bad), putting("3", nil))
	for i, want := range []error{nil, bad, refused, nil, bad, nil} {
		if !errors.Is(errs[i], want) || (want == nil) != (errs[i] == nil) {
			t.Errorf("write %d = %v, want %v", i, errs[i], want)
		}
	}
	_ = b.db.View(func(tx *bbolt.Tx) error {
		for name, want := range map[string]bool{"1": true, "2": true, "3": true, "bad1": false, "bad2": false, "no": false} {
			if got := tx.Bucket(secretsBucket).Get([]byte(name)) != nil; got != want {
				t.Errorf("%s is there: %t, want %t", name, got, want)
			}
		}
		return nil
	})
}

func TestConcurrentWritesShareACommit(t *testing.T) {
	b := opened(t)
	id := func() (n int) {
		_ = b.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil })
		return n
	}
	before := id()
	var writes []*write
	for n := range 100 {
		writes = append(writes, putting(fmt.Sprint(n), nil))
	}
	for _, err := range together(&b.commits, writes...) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := id() - before; got != 2 {
		t.Errorf("%d commits, want 2", got)
	}
}

func TestACommitIsBounded(t *testing.T) {
	c := &committer{}
	for range maxCommitWrites + 1 {
		c.queue = append(c.queue, &write{size: 1})
	}
	if got := len(c.take()); got != maxCommitWrites {
		t.Errorf("%d writes taken, want %d", got, maxCommitWrites)
	}
	c.queue = []*write{{size: maxCommitBytes + 1}, {size: maxCommitBytes - 1}, {size: 1}, {size: 1}}
	for i, want := range []int{1, 2, 1, 0} {
		if got := len(c.take()); got != want {
			t.Errorf("take %d: %d writes, want %d", i, got, want)
		}
	}
}

func TestAPanicInACommitEndsWriting(t *testing.T) {
	b := opened(t)
	errs := together(&b.commits,
		putting("before", nil),
		&write{apply: func(*bbolt.Tx) error { panic("a page is rotten") }},
		putting("after", nil))
	errs = append(errs, b.commits.do(putting("later", nil)))
	for i, err := range errs {
		if err == nil || err.Error() != damaged(b.path, "a page is rotten").Error() {
			t.Errorf("write %d = %v", i, err)
		}
	}
	if list, err := b.Tokens(t.Context(), ""); err != nil || list != nil {
		t.Errorf("Tokens = %v, %v: reads go on", list, err)
	}
}

func TestCloseWaitsForWrites(t *testing.T) {
	b := opened(t)
	begun, release, closed := make(chan bool), make(chan bool), make(chan error, 1)
	written := make(chan error, 1)
	go func() {
		written <- b.commits.do(&write{apply: func(tx *bbolt.Tx) error {
			close(begun)
			<-release
			return tx.Bucket(secretsBucket).Put([]byte("k"), []byte{1})
		}})
	}()
	<-begun
	queued := make(chan error, 1)
	go func() { queued <- b.commits.do(putting("queued", nil)) }()
	for n := 0; n == 0; {
		b.commits.mu.Lock()
		n = len(b.commits.queue)
		b.commits.mu.Unlock()
	}
	go func() { closed <- b.Close() }()
	for refuses := false; !refuses; {
		b.commits.mu.Lock()
		refuses = b.commits.closed
		b.commits.mu.Unlock()
	}
	if err := b.commits.do(putting("late", nil)); !errors.Is(err, errClosed) {
		t.Errorf("a write after Close = %v", err)
	}
	select {
	case err := <-closed:
		t.Fatalf("Close = %v before the writes were done", err)
	default:
	}
	close(release)
	for name, c := range map[string]chan error{"write": written, "queued": queued, "close": closed} {
		if err := <-c; err != nil {
			t.Errorf("%s = %v", name, err)
		}
	}
}
