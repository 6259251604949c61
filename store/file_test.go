package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"mcpbridge/session"
	"mcpbridge/store"
)

const (
	fillBridges = 30
	fillTools   = 3
)

// filled makes a store with something in each bucket and returns its directory
// and file. The last two commits leave the same content, so that it makes no
// difference which of the two meta pages is believed.
func filled(t *testing.T) (dir, path string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	s := unsynced(t, dir)
	for n := range fillBridges {
		id := session.BridgeID(fmt.Sprintf("bridge%03d", n))
		b := crashBridge(id)
		if n == 5 {
			check(t, s.CreateTenant(t.Context(), store.Tenant{ID: "team"}))
			b.Tenant = "team"
		}
		check(t, s.CreateBridge(t.Context(), 1, b, crashTokens(id)...))
		put := crashRegistrations(id, fillTools)
		if n == 7 { // some pages of overflow
			put[0].Tools[0].Definition = bytes.Repeat([]byte("{}"), 10_000)
		}
		check(t, s.Save(t.Context(), 0, 1, []session.Change{{Bridge: id, Revision: fillTools, Put: put}}))
		check(t, s.EndSession(t.Context(), id, "s", time.Now().Add(time.Hour)))
	}
	_, err := s.Secret(t.Context(), "k", func() []byte { return []byte("secret") })
	check(t, err)
	check(t, s.TouchTokens(t.Context(), map[string]time.Time{crashTokens("bridge003")[0].ID: time.Unix(1, 0)}))
	for range 2 {
		check(t, s.PutToken(t.Context(), store.Token{ID: "admin", Kind: store.AdminToken}))
	}
	check(t, s.Close())
	return dir, filepath.Join(dir, store.FileName)
}

// everything reads all there is, or fails.
func everything(t *testing.T, s store.Store) (list []any, err error) {
	t.Helper()
	keep := func(v any, err2 error) {
		list = append(list, v)
		err = errors.Join(err, err2)
	}
	wrap := func(v any, err error) { keep(v, err) }
	bridges, err2 := s.Bridges(t.Context(), "", 10_000)
	wrap(bridges, err2)
	for n := range fillBridges {
		id := session.BridgeID(fmt.Sprintf("bridge%03d", n))
		b, err := s.Bridge(t.Context(), id)
		wrap(b, err)
		tokens, err := s.Tokens(t.Context(), id)
		wrap(tokens, err)
		snapshot, err := s.Load(t.Context(), id)
		wrap(snapshot, err)
		ended, err := s.SessionEnded(t.Context(), id, "s")
		wrap(ended, err)
	}
	tokens, err2 := s.Tokens(t.Context(), "")
	wrap(tokens, err2)
	tenants, err2 := s.Tenants(t.Context(), "", 10)
	wrap(tenants, err2)
	own, err2 := s.BridgesOf(t.Context(), "team", "", 10)
	wrap(own, err2)
	return list, err
}

func unsynced(t testing.TB, dir string) *store.Bolt {
	t.Helper()
	s, err := store.Unsynced(dir)
	check(t, err)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return b
}

func TestWhatWasWrittenIsThereAfterReopening(t *testing.T) {
	dir, _ := filled(t)
	s := unsynced(t, dir)
	defer s.Close() //nolint:errcheck // read only
	got, err := everything(t, s)
	check(t, err)
	if want := crashBridge("bridge007"); !reflect.DeepEqual(got[0].([]store.Bridge)[7], want) || len(got[0].([]store.Bridge)) != fillBridges {
		t.Errorf("bridges %v", got[0])
	}
	if snapshot := got[1+7*4+2].(session.Snapshot); len(snapshot.Registrations[0].Tools[0].Definition) != 20_000 {
		t.Errorf("snapshot %v", snapshot)
	}
	secret, err := s.Secret(t.Context(), "k", nil)
	if string(secret) != "secret" || err != nil {
		t.Errorf("secret %q, %v", secret, err)
	}
}

func TestNewDirectoriesAndFilesAreTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	check(t, unsynced(t, dir).Close())
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, store.FileName): 0o600} {
		info, err := os.Stat(path)
		check(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	check(t, err)
	if len(names) != 1 {
		t.Errorf("left over: %v", names)
	}
}

func TestAHalfMadeFileIsRemoved(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o700))
	half := filepath.Join(dir, store.FileName+".new-123")
	check(t, os.WriteFile(half, []byte("half"), 0o600))
	check(t, unsynced(t, dir).Close())
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", half, err)
	}
}

// setMeta changes both meta pages, with bbolt out of the way.
func setMeta(file []byte, edit func(meta []byte)) {
	for page := range 2 {
		edit(file[page*os.Getpagesize()+16:])
	}
}

// TestOpeningSaysWhatIsWrong: one sentence, that names the path and what to do;
// and the file is left as it was.
func TestOpeningSaysWhatIsWrong(t *testing.T) {
	const (
		restore = "restore it from a backup, or move it away to start with an empty store"
		chmod   = "so that its owner alone can read and write it: run chmod"
	)
	page := os.Getpagesize()
	content := func(edit func(file []byte) []byte) func(t *testing.T, dir, path string) {
		return func(t *testing.T, _, path string) {
			check(t, os.WriteFile(path, edit(read(t, path)), 0o600))
		}
	}
	bolt := func(edit func(tx *bbolt.Tx) error) func(t *testing.T, dir, path string) {
		return func(t *testing.T, _, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			check(t, err)
			check(t, db.Update(edit))
			check(t, db.Close())
		}
	}
	mode := func(ofDir, ofFile fs.FileMode) func(t *testing.T, dir, path string) {
		return func(t *testing.T, dir, path string) {
			check(t, os.Chmod(path, ofFile))
			check(t, os.Chmod(dir, ofDir))
		}
	}
	for _, test := range []struct {
		name string
		harm func(t *testing.T, dir, path string)
		want []string // the path stands for PATH, the directory for DIR
	}{
		{"empty", content(func([]byte) []byte { return nil }), []string{"PATH was truncated (it has 0 bytes", restore}},
		{"cut to a byte", content(func(f []byte) []byte { return f[:1] }), []string{"PATH was truncated (it has 1 bytes", restore}},
		{"cut to less than a page", content(func(f []byte) []byte { return f[:1000] }), []string{"PATH was truncated (it has 1000 bytes", restore}},
		{"cut to one page", content(func(f []byte) []byte { return f[:page] }), []string{"PATH was truncated", restore}},
		{"cut to two pages", content(func(f []byte) []byte { return f[:2*page] }), []string{"PATH was truncated", restore}},
		{"cut to four pages", content(func(f []byte) []byte { return f[:4*page] }), []string{"PATH was truncated", restore}},
		{"garbage", content(func(f []byte) []byte { return bytes.Repeat([]byte("garbage!"), len(f)/8) }), []string{"PATH is damaged (neither of its two meta pages is valid)", restore}},
		{"zeros", content(func(f []byte) []byte { clear(f); return f }), []string{"PATH is damaged (neither", restore}},
		{"both meta pages flipped", content(func(f []byte) []byte { setMeta(f, func(m []byte) { m[40] ^= 1 }); return f }), []string{"PATH is damaged (neither", restore}},
		{"another version of bbolt", content(func(f []byte) []byte {
			setMeta(f, func(m []byte) { binary.NativeEndian.PutUint32(m[4:], 3) })
			return f
		}), []string{"PATH was written in another version of bbolt's format", "use a newer program"}},
		{"a newer format", bolt(func(tx *bbolt.Tx) error {
			// Records may have changed with it: that must not be called damage.
			_ = tx.Bucket([]byte("bridges")).Put([]byte("new"), []byte{9})
			return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0, 0, 0, 2})
		}), []string{"PATH has format 2, which is newer than the 1", "use a newer program"}},
		{"records of a newer version", bolt(func(tx *bbolt.Tx) error {
			key, payload := []byte("bridge003"), []byte("of tomorrow")
			sum := crc32.Checksum(append(bytes.Clone(key), payload...), crc32.MakeTable(crc32.Castagnoli))
			return tx.Bucket([]byte("bridges")).Put(key, append(binary.BigEndian.AppendUint32([]byte{3}, sum), payload...))
		}), []string{"PATH has records of version 3, which is newer than the 2", "use a newer program"}},
		{"no such format", bolt(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0, 0, 0, 0}) }), []string{"PATH is damaged", restore}},
		{"no format", bolt(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("format")) }), []string{"PATH is damaged (it has no format number)", restore}},
		{"a bucket is missing", bolt(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("tokens")) }), []string{"PATH is damaged (the bucket tokens is missing)", restore}},
		{"a rotten record", bolt(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("bridges"))
			v := bytes.Clone(b.Get([]byte("bridge003")))
			v[20]++
			return b.Put([]byte("bridge003"), v)
		}), []string{"PATH is damaged", "bridge003", restore}},
		{"another program's file", func(t *testing.T, _, path string) {
			check(t, os.Remove(path))
			bolt(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })(t, "", path)
		}, []string{"PATH has no bucket", "another program's: choose another directory"}},
		{"locked", func(t *testing.T, dir, _ string) {
			s := unsynced(t, dir)
			t.Cleanup(func() { check(t, s.Close()) })
		}, []string{"PATH is locked by another process", "choose another directory"}},
		{"a directory others may enter", mode(0o750, 0o600), []string{"DIR has mode 0750, want 0700", chmod}},
		{"a directory others may only write", mode(0o702, 0o600), []string{"DIR has mode 0702, want 0700", chmod}},
		{"a file others may read", mode(0o700, 0o604), []string{"PATH has mode 0604, want 0600", chmod}},
		{"a file the group may write", mode(0o700, 0o620), []string{"PATH has mode 0620, want 0600", chmod}},
		{"a read-only file", mode(0o700, 0o400), []string{"PATH has mode 0400, want 0600", chmod}},
		{"a read-only directory", mode(0o500, 0o600), []string{"DIR has mode 0500, want 0700", chmod}},
		{"the file is a directory", func(t *testing.T, _, path string) {
			check(t, os.Remove(path))
			check(t, os.Mkdir(path, 0o700))
		}, []string{"PATH is not a regular file: move it away"}},
		{"the directory is a file", func(t *testing.T, dir, path string) {
			check(t, os.Remove(path))
			check(t, os.Remove(dir))
			check(t, os.WriteFile(dir, nil, 0o600))
		}, []string{"DIR is not a directory: choose another one"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, path := filled(t)
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
			test.harm(t, dir, path)
			before, _ := os.ReadFile(path)
			s, err := store.OpenBolt(dir, store.BoltOptions{LockTimeout: time.Millisecond})
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			text := err.Error()
			for _, want := range test.want {
				want = strings.NewReplacer("PATH", path, "DIR", dir).Replace(want)
				if !strings.Contains(text, want) {
					t.Errorf("%q\ndoes not say %q", text, want)
				}
			}
			if !strings.HasPrefix(text, "store: open: ") || strings.Contains(text, "\n") || len(text) > 500 {
				t.Errorf("not one sentence: %q", text)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			t.Log(strings.ReplaceAll(text, dir, "DIR"))
		})
	}
}

// rot opens a copy of a file that edit has changed, and reads and writes
// everything in it. Nothing may panic; what is read without an error is right. It
// tells whether Open refused.
func rot(t *testing.T, dir string, file []byte, want []any, edit func(file []byte)) (refused bool) {
	t.Helper()
	path := filepath.Join(dir, store.FileName)
	harmed := bytes.Clone(file)
	edit(harmed)
	check(t, os.WriteFile(path, harmed, 0o600))
	s, err := store.Unsynced(dir)
	if err != nil {
		return true
	}
	defer s.Close() //nolint:errcheck // it may be damaged
	if got, err := everything(t, s); err != nil {
		t.Errorf("opened, but: %v", err)
	} else if !reflect.DeepEqual(got, want) {
		t.Error("opened, and read something else")
	}
	for n := range fillBridges {
		if err := s.DeleteBridge(t.Context(), 1, session.BridgeID(fmt.Sprintf("bridge%03d", n))); err != nil {
			t.Errorf("opened, but: %v", err)
		}
	}
	return false
}

// TestEveryRottenPageIsFound spoils each page of a file in several ways: either
// it was free, and all is well, or Open refuses.
func TestEveryRottenPageIsFound(t *testing.T) {
	_, path := filled(t)
	file := read(t, path)
	page := os.Getpagesize()
	used := make(map[int]bool)
	db, err := bbolt.Open(path, 0o600, nil)
	check(t, err)
	size := 0
	check(t, db.View(func(tx *bbolt.Tx) error {
		size = int(tx.Size()) / page
		for id := range size {
			if p, err := tx.Page(id); err == nil && p.Type != "free" && id > 1 {
				used[id] = true
			}
		}
		return nil
	}))
	check(t, db.Close())
	dir, _ := filled(t)
	s := unsynced(t, dir)
	want, err := everything(t, s)
	check(t, err)
	check(t, s.Close())
	for id := range size {
		if id > 1 && !used[id] && id%8 != 0 {
			continue // some of the free ones will do
		}
		for name, edit := range map[string]func([]byte){
			"zeroed": func(p []byte) { clear(p) },
			"ones":   func(p []byte) { copy(p, bytes.Repeat([]byte{0xff}, page)) },
			"head":   func(p []byte) { copy(p[8:], bytes.Repeat([]byte{0xff}, 40)) },
			"body":   func(p []byte) { copy(p[page/2:], bytes.Repeat([]byte{0x5a}, page/2)) },
		} {
			refused := rot(t, dir, file, want, func(f []byte) { edit(f[id*page : (id+1)*page]) })
			if refused && !used[id] {
				t.Errorf("page %d, %s: refused, though it is free or a spare meta page", id, name)
			}
			if !refused && used[id] && (name == "zeroed" || name == "ones" || name == "head") && !overflow(file, id*page) {
				t.Errorf("page %d, %s: opened", id, name)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// overflow tells whether a page is not the first of its run.
func overflow(file []byte, at int) bool {
	return binary.NativeEndian.Uint64(file[at:]) != uint64(at/os.Getpagesize()) //nolint:gosec // positive
}

// TestFlippedBitsAreFoundOrHarmless flips bits all over the used pages.
func TestFlippedBitsAreFoundOrHarmless(t *testing.T) {
	dir, path := filled(t)
	s := unsynced(t, dir)
	want, err := everything(t, s)
	check(t, err)
	check(t, s.Close())
	file := read(t, path)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	found := 0
	for range 200 {
		at := random.IntN(len(file) / 2) // the rest is room to grow
		if rot(t, dir, file, want, func(f []byte) { f[at] ^= 1 << random.IntN(8) }) {
			found++
		}
		if t.Failed() {
			t.Fatalf("byte %d of page %d", at%os.Getpagesize(), at/os.Getpagesize())
		}
	}
	if found == 0 {
		t.Error("no flip was found")
	}
}

// TestDamageWhileOpenIsAnError spoils the file under an open store: its memory
// map sees that at once, as it would see a page going bad on the disk.
func TestDamageWhileOpenIsAnError(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"garbage": func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			check(t, err)
			defer f.Close() //nolint:errcheck // written
			info, err := f.Stat()
			check(t, err)
			page := int64(os.Getpagesize())
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(info.Size()-2*page)), 2*page)
			check(t, err)
		},
		"cut": func(t *testing.T, path string) { check(t, os.Truncate(path, int64(2*os.Getpagesize()))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := filled(t)
			s := unsynced(t, dir)
			harm(t, path)
			errs := map[string]error{}
			_, errs["Bridge"] = s.Bridge(t.Context(), "bridge001")
			_, errs["Load"] = s.Load(t.Context(), "bridge001")
			_, errs["Bridges"] = s.Bridges(t.Context(), "", 10)
			errs["CreateBridge"] = s.CreateBridge(t.Context(), 1, store.Bridge{ID: "new"})
			errs["Save"] = s.Save(t.Context(), 0, 1, []session.Change{{Bridge: "bridge001"}})
			for method, err := range errs {
				if err == nil || !strings.Contains(err.Error(), path+" is damaged (") {
					t.Errorf("%s = %v", method, err)
				}
			}
			_ = s.Close() // ends, whatever it says
		})
	}
}

// TestExpiredEndingsArePruned: they go a few at a time, whoever ends a session.
func TestExpiredEndingsArePruned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := unsynced(t, dir)
	check(t, s.CreateBridge(t.Context(), 1, store.Bridge{ID: "b"}))
	long := time.Now().Add(-time.Hour)
	const expired = 40
	for n := range expired {
		check(t, s.EndSession(t.Context(), "b", fmt.Sprint(n), long.Add(time.Duration(n)*time.Second)))
	}
	check(t, s.EndSession(t.Context(), "b", "living", time.Now().Add(time.Hour)))
	check(t, s.Close())
	count := func() (endings, expiries int) {
		db, err := bbolt.Open(filepath.Join(dir, store.FileName), 0o600, nil)
		check(t, err)
		defer db.Close() //nolint:errcheck // read only
		check(t, db.View(func(tx *bbolt.Tx) error {
			endings, expiries = tx.Bucket([]byte("endings")).Stats().KeyN, tx.Bucket([]byte("expiries")).Stats().KeyN
			return nil
		}))
		return endings, expiries
	}
	if a, b := count(); a != 1 || b != 1 {
		t.Errorf("%d endings and %d expiries are left, want the living one", a, b)
	}
	s = unsynced(t, dir)
	check(t, s.DeleteBridge(t.Context(), 1, "b"))
	check(t, s.Close())
	if a, b := count(); a != 0 || b != 0 {
		t.Errorf("%d endings and %d expiries outlive their bridge", a, b)
	}
}

// TestAFileOfAnOlderProgramGetsWhatItLacks: buckets that came later are made, and what
// was there stays.
func TestAFileOfAnOlderProgramGetsWhatItLacks(t *testing.T) {
	dir, path := filled(t)
	db, err := bbolt.Open(path, 0o600, nil)
	check(t, err)
	// Of what came later nothing but the records of version 1 is left.
	check(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("bridges")).Delete([]byte("bridge005")) }))
	for _, later := range []string{"tasks", "pins", "tenants", "belongings", "uses"} {
		check(t, db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(later)) }))
	}
	check(t, db.Close())
	s := unsynced(t, dir)
	b, err := s.Bridge(t.Context(), "bridge003")
	if err != nil || b.ID != "bridge003" {
		t.Fatalf("Bridge = %v, %v", b, err)
	}
	task := session.Task{ID: "k", Principal: "p"}
	pin := session.Pinned{PinKey: session.PinKey{Provider: "p", Name: "a"}}
	check(t, s.Save(t.Context(), 0, 1, []session.Change{{Bridge: "bridge003", PutTasks: []session.Task{task}, PutPins: []session.Pinned{pin}}}))
	snap, err := s.Load(t.Context(), "bridge003")
	if err != nil || len(snap.Tasks) != 1 || snap.Tasks[0].ID != "k" || len(snap.Pins) != 1 || snap.Pins[0] != pin {
		t.Fatalf("Load = %+v, %v", snap, err)
	}
	tokens, err := s.Tokens(t.Context(), "bridge003")
	if err != nil || len(tokens) == 0 || tokens[0].Tenant != "" || !tokens[0].LastUsed.IsZero() {
		t.Fatalf("Tokens = %+v, %v", tokens, err)
	}
	at := time.Unix(1_785_240_000, 0).UTC()
	check(t, s.TouchTokens(t.Context(), map[string]time.Time{tokens[0].ID: at}))
	if k, err := s.Token(t.Context(), tokens[0].ID); err != nil || !k.LastUsed.Equal(at) || k.Hash != tokens[0].Hash {
		t.Fatalf("Token = %+v, %v", k, err)
	}
	check(t, s.CreateTenant(t.Context(), store.Tenant{ID: "other"}))
	own, err := s.BridgesOf(t.Context(), "", "bridge002", 1)
	if err != nil || len(own) != 1 || own[0].ID != "bridge003" {
		t.Fatalf("the default tenant's bridges: %+v, %v", own, err)
	}
	check(t, s.Close())
}
