package store_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpbridge/session"
	"mcpbridge/store"
)

func TestRestoreBringsBackEverything(t *testing.T) {
	dir, _ := filled(t)
	s := unsynced(t, dir)
	want, err := everything(t, s)
	check(t, err)
	backup := backUp(t, s)
	check(t, s.DeleteBridge(t.Context(), 1, "bridge003"))
	check(t, s.Close())
	got, err := everything(t, restored(t, backup))
	check(t, err)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRestoreHarmsNothing: not the store that is there, unless it is asked to, nor a
// directory for the sake of a backup that is not sound.
func TestRestoreHarmsNothing(t *testing.T) {
	_, backup := filled(t)
	dir, path := filled(t)
	mine := read(t, path)
	if _, _, err := store.Restore(t.Context(), backup, dir, false); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path+" exists") {
		t.Errorf("over a store: %v", err)
	}
	s := unsynced(t, dir)
	if _, _, err := store.Restore(t.Context(), backup, dir, true); err == nil || !strings.Contains(err.Error(), path+" is in use by a running server: stop that one first") {
		t.Errorf("over a store in use: %v", err)
	}
	check(t, s.Close())
	rotten := filepath.Join(t.TempDir(), "rotten")
	check(t, os.WriteFile(rotten, bytes.Repeat([]byte("garbage!"), 10_000), 0o600))
	if _, _, err := store.Restore(t.Context(), rotten, dir, true); err == nil || !strings.Contains(err.Error(), rotten+" is damaged") {
		t.Errorf("from garbage: %v", err)
	}
	if !bytes.Equal(read(t, path), mine) {
		t.Fatal("the store was changed")
	}
	fresh := filepath.Join(t.TempDir(), "data")
	if _, _, err := store.Restore(t.Context(), rotten, fresh, false); err == nil {
		t.Error("garbage was restored")
	}
	if _, err := os.Stat(fresh); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}

	_, aside, err := store.Restore(t.Context(), backup, dir, true)
	check(t, err)
	if !bytes.Equal(read(t, path), read(t, backup)) || !bytes.Equal(read(t, aside), mine) {
		t.Error("the store was not replaced, or is not kept")
	}
	names, err := os.ReadDir(dir)
	check(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || len(names) != 2 {
		t.Errorf("%v, %v; in its directory %v", info, err, names)
	}
}

// TestADamagedStoreIsReplaced: that is what a backup is for.
func TestADamagedStoreIsReplaced(t *testing.T) {
	_, backup := filled(t)
	dir, path := filled(t)
	check(t, os.WriteFile(path, []byte("garbage"), 0o600))
	_, _, err := store.Restore(t.Context(), backup, dir, true)
	check(t, err)
	check(t, unsynced(t, dir).Close())
}

// TestStoresOfEveryEarlierFormatAreRead: what each earlier program wrote is checked,
// restored, read and written on. See testdata/formats/README.md.
func TestStoresOfEveryEarlierFormatAreRead(t *testing.T) {
	formats := []string{"1-first", "2-kinds", "3-tasks", "4-about", "5-pins"}
	files, err := filepath.Glob("testdata/formats/*.db.gz")
	check(t, err)
	if len(files) != len(formats) {
		t.Fatalf("the files are %v", files)
	}
	at := func(s int64) time.Time { return time.Unix(1_785_240_000+s, 0).UTC() }
	for has, name := range formats {
		has++
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", "formats", name+".db.gz"))
			check(t, err)
			defer f.Close() //nolint:errcheck // read only
			z, err := gzip.NewReader(f)
			check(t, err)
			file, err := io.ReadAll(z)
			check(t, err)
			path := filepath.Join(t.TempDir(), "old")
			check(t, os.WriteFile(path, file, 0o600))
			s := restored(t, path)

			b, err := s.Bridge(t.Context(), "ann")
			check(t, err)
			want := store.Bridge{
				ID: "ann", Name: "Ann's <bridge>", Owner: "ann", Policy: json.RawMessage(`{ "instances":"single" }`),
				Created: at(0), Updated: at(1), Version: 3,
			}
			if diff := gocmp.Diff(want, b); diff != "" {
				t.Error(diff)
			}
			bridges, err := s.BridgesOf(t.Context(), "", "", 10)
			if err != nil || len(bridges) != 2 || bridges[1].ID != "bob" {
				t.Errorf("bridges %+v, %v", bridges, err)
			}
			tokens, err := s.Tokens(t.Context(), "ann")
			wantTokens := []store.Token{
				{ID: "annclient000", Kind: store.ClientToken, Bridge: "ann", Hash: [32]byte{1}, Created: at(0)},
				{ID: "annprovider0", Kind: store.ProviderToken, Bridge: "ann", Hash: [32]byte{2}, Created: at(0), Expires: at(4_000_000_000)},
			}
			if err != nil || !reflect.DeepEqual(tokens, wantTokens) {
				t.Error(err, gocmp.Diff(wantTokens, tokens))
			}
			if admin, err := s.Token(t.Context(), "admin0000000"); err != nil || admin.Hash != [32]byte{3} {
				t.Errorf("admin token %+v, %v", admin, err)
			}
			if key, err := s.Secret(t.Context(), "handles", nil); err != nil || string(key) != "a key of the fixture's, 32 bytes" {
				t.Errorf("secret %q, %v", key, err)
			}
			if ended, err := s.SessionEnded(t.Context(), "ann", "ended"); err != nil || !ended {
				t.Errorf("ended %t, %v", ended, err)
			}
			snapshot, err := s.Load(t.Context(), "ann")
			check(t, err)
			if diff := gocmp.Diff(earlier(has, at), snapshot); diff != "" {
				t.Error(diff)
			}

			written(t, s)
			again := backUp(t, s)
			written2, err := restored(t, again).Load(t.Context(), "ann")
			check(t, err)
			if written2.Revision != 8 || len(written2.Tasks) == 0 || len(written2.Pins) == 0 {
				t.Errorf("after the backup: %+v", written2)
			}
		})
	}
}

// earlier is what the program that knew so many formats kept of the bridge ann.
func earlier(has int, at func(int64) time.Time) session.Snapshot {
	s := session.Snapshot{Revision: 7, Registrations: []session.Registration{{
		Provider: "laptop", Title: "Laptop", Version: "1.0", Retain: 24 * time.Hour, LeftAt: at(3),
		Tools: []session.Tool{{
			Name: "add", Exposed: "add-1a2b", NameAt: 9, NameEnd: 14, Timeout: 90 * time.Second, Headers: true,
			Definition: json.RawMessage("{ \"name\":\"add\", \"description\":\"<b>&\u2028\" }\n"),
		}},
	}}}
	if has >= 2 {
		s.Registrations[0].Tools = append(s.Registrations[0].Tools, session.Tool{
			Kind: session.KindPrompt, Name: "greet", Exposed: "greet", NameAt: 8, NameEnd: 15, Definition: json.RawMessage(`{"name":"greet"}`),
		})
	}
	if has >= 3 {
		s.Tasks = []session.Task{{
			ID: "task0", Principal: "annclient000", Tool: "add-1a2b", Created: at(4), Updated: at(5), Expires: at(4_000_000_000), Deadline: at(6),
			Status: session.TaskDone, Result: json.RawMessage(`{"n":9007199254740993}`), Provider: "laptop", Key: "k", CallID: "c-1",
		}}
	}
	if has >= 4 {
		s.Registrations = append(s.Registrations, session.Registration{
			Provider: "server", Retain: time.Hour, About: session.About{Instructions: "Call add first.\n", Extensions: json.RawMessage(`{"io.example/x":{ }}`)},
		})
	}
	if has >= 5 {
		s.Pins = []session.Pinned{{
			PinKey: session.PinKey{Provider: "laptop", Name: "add"}, Hash: [32]byte{4}, Since: at(7),
			Held: &session.Tool{Name: "add", Definition: json.RawMessage(`{"name":"add","description":"changed"}`), NameAt: 8, NameEnd: 13},
		}}
	}
	return s
}

// written writes something to each bucket that came later.
func written(t *testing.T, s *store.Bolt) {
	t.Helper()
	check(t, s.Save(t.Context(), 0, 1, []session.Change{{
		Bridge: "ann", Revision: 8,
		PutTasks: []session.Task{{ID: "task1"}},
		PutPins:  []session.Pinned{{PinKey: session.PinKey{Provider: "laptop", Name: "new"}}},
	}}))
	check(t, s.CreateTenant(t.Context(), store.Tenant{ID: "team"}))
	check(t, s.CreateBridge(t.Context(), 1, store.Bridge{ID: "cat", Tenant: "team"}))
	check(t, s.TouchTokens(t.Context(), map[string]time.Time{"annclient000": time.Unix(1, 0)}))
}
