package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpbridge/session"
	"mcpbridge/store"
)

// backUp takes a backup of a store and returns its file, which CheckFile has found
// sound.
func backUp(t *testing.T, s *store.Bolt) string {
	t.Helper()
	r, size, err := s.Backup(t.Context())
	check(t, err)
	path := filepath.Join(t.TempDir(), "backup")
	report, err := store.WriteBackup(t.Context(), path, r, size, false)
	check(t, err)
	check(t, r.Close())
	if len(report.Faults) > 0 || report.File != path || report.Bytes != size || report.Format != 1 {
		t.Fatalf("report %+v", report)
	}
	return path
}

// restored opens the store that Restore makes from a backup.
func restored(t *testing.T, backup string) *store.Bolt {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	_, aside, err := store.Restore(t.Context(), backup, dir, false)
	check(t, err)
	if aside != "" {
		t.Errorf("there was nothing to set aside, but %s", aside)
	}
	s := unsynced(t, dir)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// TestBackupDuringWrites: what the restored store has is what the store
// had at one moment, between the begin and the end of the backup.
//
// Every writer has two bridges, which it creates and then saves one after the other, in
// an endless row: at any moment the first one is as far as the second, or one ahead. A
// record's content follows from its revision.
func TestBackupDuringWrites(t *testing.T) {
	const (
		writers = 32   // they share commits: a slow disk slows them little
		before  = 1500 // writes before the first backup
		backups = 3
	)
	dir := filepath.Join(t.TempDir(), "data")
	s, err := store.OpenBolt(dir, store.BoltOptions{}) // durable, as in service
	check(t, err)
	var (
		mu    sync.Mutex
		acked = map[session.BridgeID]uint64{} // revision; guarded by mu
		total int                             // guarded by mu
		more  = make(chan struct{}, 1)
		wg    sync.WaitGroup
	)
	told := func(id session.BridgeID, rev uint64) {
		mu.Lock()
		defer mu.Unlock()
		acked[id] = rev
		total++
		select {
		case more <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for w := range writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				pair := []session.BridgeID{session.BridgeID(fmt.Sprintf("w%d-%05d-a", w, n)), session.BridgeID(fmt.Sprintf("w%d-%05d-b", w, n))}
				for rev := range uint64(4) {
					for _, id := range pair {
						var err error
						if rev == 0 {
							err = s.CreateBridge(ctx, 1, crashBridge(id), crashTokens(id)...)
						} else {
							err = s.Save(ctx, 0, 1, []session.Change{{Bridge: id, Revision: rev, Put: crashRegistrations(id, rev)}})
						}
						if err != nil {
							if ctx.Err() == nil {
								t.Errorf("write %s %d: %v", id, rev, err)
							}
							return
						}
						told(id, rev)
					}
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	count := func() int { mu.Lock(); defer mu.Unlock(); return total }
	start := time.Now()
	for goal := range backups {
		for count() < before*(goal+1) {
			select {
			case <-more:
			case <-time.After(patience):
				t.Fatalf("%d writes in %v", count(), time.Since(start))
			}
		}
		mu.Lock()
		acknowledged := maps.Clone(acked)
		mu.Unlock()
		began, wrote := time.Now(), count()
		backup := backUp(t, s)
		took, during := time.Since(began), count()-wrote
		if during == 0 {
			t.Error("nothing was written during the backup")
		}
		got := restored(t, backup)
		compare(t, got, writers, acknowledged)
		info, err := os.Stat(backup)
		check(t, err)
		t.Logf("backup of %d KiB in %v, during which %d writes were acknowledged; %d before it", info.Size()>>10, took, during, wrote)
	}
	elapsed, wrote := time.Since(start), count()
	cancel()
	wg.Wait()
	check(t, s.Close())
	t.Logf("%.0f writes a second", float64(wrote)/elapsed.Seconds()) // as fast as the disk lets them
}

// patience bounds every wait of these tests; nothing waits for it to pass.
const patience = 60 * time.Second

// compare tells whether a store is as the writers left theirs at one moment, not before
// all in acknowledged was.
func compare(t *testing.T, s *store.Bolt, writers int, acknowledged map[session.BridgeID]uint64) {
	t.Helper()
	bridges, err := s.Bridges(t.Context(), "", 1_000_000)
	check(t, err)
	has := map[session.BridgeID]uint64{}
	for _, b := range bridges {
		if want := crashBridge(b.ID); !reflect.DeepEqual(b, want) {
			t.Fatal(gocmp.Diff(want, b))
		}
		tokens, err := s.Tokens(t.Context(), b.ID)
		if want := crashTokens(b.ID); err != nil || !reflect.DeepEqual(tokens, want) {
			t.Fatal(err, gocmp.Diff(want, tokens))
		}
		got, err := s.Load(t.Context(), b.ID)
		check(t, err)
		want := session.Snapshot{Revision: got.Revision}
		if got.Revision > 0 {
			want.Registrations = crashRegistrations(b.ID, got.Revision)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatal(gocmp.Diff(want, got))
		}
		has[b.ID] = got.Revision
	}
	for id, rev := range acknowledged {
		if got, there := has[id]; !there || got < rev {
			t.Fatalf("%s was acknowledged at revision %d, and is at %d, there %t", id, rev, got, there)
		}
	}
	last := map[string]int{}
	for id := range has {
		var w, n int
		var half string
		_, err := fmt.Sscanf(strings.ReplaceAll(string(id), "-", " "), "w%d %d %s", &w, &n, &half)
		check(t, err)
		last[fmt.Sprint(w)] = max(last[fmt.Sprint(w)], n)
	}
	// steps counts the writes that a bridge has seen: its creation and its revisions.
	steps := func(w, n int, half string) int {
		rev, there := has[session.BridgeID(fmt.Sprintf("w%d-%05d-%s", w, n, half))]
		if !there {
			return 0
		}
		return int(rev) + 1 //nolint:gosec // a few
	}
	for w := range writers {
		for n := range last[fmt.Sprint(w)] + 1 {
			a, b := steps(w, n, "a"), steps(w, n, "b")
			if n < last[fmt.Sprint(w)] && (a != 4 || b != 4) || a != b && a != b+1 {
				t.Fatalf("writer %d, pair %d: %d and %d writes; that was never so", w, n, a, b)
			}
		}
	}
}

// TestABackupHoldsUpNoWriter lets a copy stand still and writes more than the file had
// room for, beyond what bbolt would map of it.
func TestABackupHoldsUpNoWriter(t *testing.T) {
	const (
		piece = 1 << 20
		full  = 70  // MiB of the file: more than headroomFrom
		added = 130 // MiB
	)
	if runtime.GOOS == "windows" {
		t.Log("there the map makes the file as large: it is not made larger than need be")
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := unsynced(t, dir)
	check(t, s.CreateBridge(t.Context(), 1, store.Bridge{ID: "b"}))
	save := func(ctx context.Context, n uint64) error {
		return s.Save(ctx, 0, 1, []session.Change{{Bridge: "b", Revision: n, Put: []session.Registration{{
			Provider: session.ProviderID(fmt.Sprint("p", n)), Tools: []session.Tool{{Name: "t", Definition: bytes.Repeat([]byte("x"), piece)}},
		}}}})
	}
	for n := range uint64(full) {
		check(t, save(t.Context(), n+1))
	}
	check(t, s.Close())
	s = unsynced(t, dir)
	r, w, err := os.Pipe()
	check(t, err)
	ended := make(chan error, 1)
	go func() {
		err := store.CopyTo(t.Context(), s, w)
		_ = w.Close()
		ended <- err
	}()
	first := make([]byte, 1)
	_, err = io.ReadFull(r, first) // the copy is under way, and stands until its pipe is read
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(added) {
			if err := save(ctx, full+n+1); err != nil {
				t.Error(err)
				return
			}
		}
		if _, err := s.Bridge(ctx, "b"); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the writes wait for the copy")
	}
	_, err = io.Copy(io.Discard, r)
	check(t, err)
	if err := <-ended; !errors.Is(err, syscall.ESPIPE) { // a pipe has no beginning to return to
		t.Error(err)
	}
	<-done
	check(t, r.Close())
	check(t, s.Close())
}

// TestBackupsLetTheFileBe: pages that a backup kept from use are used again after it.
func TestBackupsLetTheFileBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := unsynced(t, dir)
	path := filepath.Join(dir, store.FileName)
	check(t, s.CreateBridge(t.Context(), 1, store.Bridge{ID: "b"}))
	round := func() int64 {
		r, _, err := s.Backup(t.Context())
		check(t, err)
		if _, _, err := s.Backup(t.Context()); !errors.Is(err, store.ErrBackingUp) {
			t.Fatalf("a second backup: %v", err)
		}
		for n := range uint64(100) {
			check(t, s.Save(t.Context(), 0, 1, []session.Change{{Bridge: "b", Revision: n, Put: crashRegistrations("b", 5)}}))
		}
		check(t, r.Close())
		check(t, r.Close()) // once more does no harm
		info, err := os.Stat(path)
		check(t, err)
		return info.Size()
	}
	var sizes []int64
	for range 20 {
		sizes = append(sizes, round())
	}
	if sizes[19] > sizes[4] {
		t.Errorf("the file grew with every backup: %v", sizes)
	}
	left, err := filepath.Glob(path + ".*")
	check(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	check(t, s.Close())
	if _, _, err := s.Backup(t.Context()); err == nil || errors.Is(err, store.ErrBackingUp) {
		t.Errorf("backup of a closed store: %v", err)
	}
}

func TestABackupEndsWithItsContext(t *testing.T) {
	s := unsynced(t, filepath.Join(t.TempDir(), "data"))
	defer s.Close() //nolint:errcheck // a test's
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, _, err := s.Backup(ctx); !errors.Is(err, gone) {
		t.Errorf("Backup = %v", err)
	}
	if r, _, err := s.Backup(t.Context()); err != nil {
		t.Errorf("the next one: %v", err)
	} else {
		check(t, r.Close())
	}
}

// TestAFullDiskIsExplained writes to the device that is always full.
func TestAFullDiskIsExplained(t *testing.T) {
	dir, path := filled(t)
	s := unsynced(t, dir)
	defer s.Close() //nolint:errcheck // a test's
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	check(t, err)
	defer full.Close() //nolint:errcheck // a device
	err = store.CopyTo(t.Context(), s, full)
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), path+" is on a full file system: free some space") {
		t.Errorf("copy: %v", err)
	}
	f, err := os.Open(path)
	check(t, err)
	defer f.Close() //nolint:errcheck // read only
	err = store.Fill(t.Context(), full, f, 1)
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "/dev/full is on a full file system: free some space") {
		t.Errorf("fill: %v", err)
	}
}

// TestABackupIsWholeOrNotThere: what is cut short, damaged, newer or in the way leaves
// the target as it was, and nothing beside it.
func TestABackupIsWholeOrNotThere(t *testing.T) {
	_, path := filled(t)
	whole := read(t, path)
	for name, test := range map[string]struct {
		content []byte
		size    int64
		there   bool
		want    string
	}{
		"cut short":  {whole[:len(whole)-1], int64(len(whole)), false, "it was cut off after"},
		"damaged":    {bytes.Repeat([]byte{7}, len(whole)), int64(len(whole)), false, "neither of its two meta pages is valid"},
		"empty":      {nil, 0, false, "it is empty"},
		"in the way": {whole, int64(len(whole)), true, "PATH exists: choose another name, or move it away"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			target := filepath.Join(dir, "b")
			if test.there {
				check(t, os.WriteFile(target, []byte("mine"), 0o644))
			}
			_, err := store.WriteBackup(t.Context(), target, bytes.NewReader(test.content), test.size, false)
			if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(test.want, "PATH", target)) {
				t.Errorf("WriteBackup = %v", err)
			}
			if errors.Is(err, fs.ErrExist) != test.there {
				t.Errorf("%v is fs.ErrExist: %t", err, !test.there)
			}
			names, err := os.ReadDir(dir)
			check(t, err)
			if test.there && string(read(t, target)) != "mine" || len(names) > 1 || len(names) == 1 != test.there {
				t.Errorf("left: %v", names)
			}
		})
	}
	target := filepath.Join(t.TempDir(), "b")
	check(t, os.WriteFile(target, []byte("old"), 0o644))
	_, err := store.WriteBackup(t.Context(), target, bytes.NewReader(whole), int64(len(whole)), true)
	check(t, err)
	info, err := os.Stat(target)
	check(t, err)
	if !bytes.Equal(read(t, target), whole) || info.Mode().Perm() != 0o600 {
		t.Errorf("replaced with %d bytes, mode %v", info.Size(), info.Mode())
	}
}
