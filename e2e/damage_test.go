package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"go.etcd.io/bbolt"
)

// A store that cannot be used is told in one sentence, and stays as it is.
func TestUnusableStoreIsOneSentenceAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	good := goodStore(t)
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir, file string)
		says   string
	}{
		"newer format": {func(t *testing.T, _, file string) { newerFormat(t, file) }, `has format 4294967295, which is newer than the \d+ that this program knows: use a newer program`},
		"other program's": {func(t *testing.T, _, file string) {
			remove(t, file)
			update(t, file, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("widgets")); return err })
		}, `is another program's: choose another directory`},
		"empty":             {truncate(0), `was truncated .*: restore it`},
		"only its start":    {truncate(100), `was truncated .*: restore it`},
		"first pages alone": {truncate(2 * 4096), `was truncated .*: restore it`},
		"cut in a page":     {truncate(5*4096 - 1), `was truncated .*: restore it`},
		"no database":       {overwrite(0, 16384, 'x'), `: restore it`},
		"one byte of a record": {func(t *testing.T, _, file string) {
			flip(t, file, "Greets somebody.")
		}, `damaged.*: restore it`},
		"random pages": {func(t *testing.T, dir, file string) {
			overwrite(2*4096, 4096, 0xa5)(t, dir, file)
			overwrite(3*4096, 4096, 0xa5)(t, dir, file)
			overwrite(4*4096, 4096, 0xa5)(t, dir, file)
			overwrite(5*4096, 4096, 0xa5)(t, dir, file)
		}, `damaged.*: restore it`},
		"file for all":      {func(t *testing.T, _, file string) { chmod(t, file, 0o644) }, `has mode 0644, want 0600 .*: run chmod 0600 on it`},
		"file of a group":   {func(t *testing.T, _, file string) { chmod(t, file, 0o660) }, `has mode 0660, want 0600 .*: run chmod 0600 on it`},
		"directory for all": {func(t *testing.T, dir, _ string) { chmod(t, dir, 0o755) }, `has mode 0755, want 0700 .*: run chmod 0700 on it`},
		"a directory": {func(t *testing.T, _, file string) {
			remove(t, file)
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		}, `is not a regular file: move it away`},
		"a file for directory": {func(t *testing.T, dir, _ string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, `is not a directory: choose another one`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, storeFile)
			chmod(t, dir, 0o700)
			chmod(t, file, 0o600)
			c.damage(t, dir, file)
			refused(t, dir, c.says)
		})
	}
	t.Run("used by another server", func(t *testing.T) {
		t.Parallel()
		s := serve(t, "--open")
		refused(t, s.data, `is locked by another process: end that one, or choose another directory`)
		if a := s.do("GET", "/readyz", ""); a.status != 200 {
			t.Errorf("the first server: %d %s", a.status, a.body)
		}
		s.stop()
	})
}

// storeFile is the store's file in the directory.
const storeFile = "mcpbridge.db"

// refused starts a server on a directory, which it must refuse in one sentence of
// that pattern, and leave as it is.
func refused(t *testing.T, dir, says string) {
	t.Helper()
	before := files(t, dir)
	run(t, "serve", "--open", "--listen", "127.0.0.1:0", "--data", dir).
		want(t, 1, ``, `mcpbridge: [^\n]*`+regexp.QuoteMeta(dir)+`[^\n]*`+says+`[^\n]*\n`)
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Errorf("before\n%v\nafter\n%v", before, after)
	}
}

// files has the mode and the hash of everything in a directory, itself included.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		all[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[path] += fmt.Sprintf(" %d bytes %x", len(text), sha256.Sum256(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// goodStore is a directory with a store of a few bridges and tools.
func goodStore(t *testing.T) string {
	t.Helper()
	s := serve(t, "--open")
	for _, bridge := range []string{"a", "b", "c"} {
		s.provide(bridge, "", greet("greet"), greet("wave"))
	}
	s.stop()
	return s.data
}

func update(t *testing.T, file string, f func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(f); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// newerFormat writes the highest format number where a store has its own.
func newerFormat(t *testing.T, file string) {
	t.Helper()
	update(t, file, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0xff, 0xff, 0xff, 0xff})
	})
}

// truncate cuts a store's file to a size.
func truncate(size int64) func(*testing.T, string, string) {
	return func(t *testing.T, _, file string) {
		t.Helper()
		if err := os.Truncate(file, size); err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite writes n times the same byte into a store's file.
func overwrite(at int64, n int, b byte) func(*testing.T, string, string) {
	return func(t *testing.T, _, file string) {
		t.Helper()
		change(t, file, func(text []byte) {
			for i := range n {
				text[at+int64(i)] = b
			}
		})
	}
}

// flip changes one bit of the last record that has a text.
func flip(t *testing.T, file, in string) {
	t.Helper()
	change(t, file, func(text []byte) {
		found := regexp.MustCompile(regexp.QuoteMeta(in)).FindAllIndex(text, -1)
		if found == nil {
			t.Fatalf("%q is not in the file", in)
		}
		for _, at := range found { // old pages, which nobody reads, may have it too
			text[at[0]] ^= 1
		}
	})
}

func change(t *testing.T, file string, f func([]byte)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f(text)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
