package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// small is a store's file with pages of 1 KiB, so that the fuzzer does not drown
// in zeros.
func small(f testing.TB) []byte {
	path := filepath.Join(f.TempDir(), FileName)
	db, err := bbolt.Open(path, wantFile, &bbolt.Options{PageSize: minPage})
	if err != nil {
		f.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := layOut(tx); err != nil {
			return err
		}
		for n := range 40 {
			key := []byte{'k', byte(n)}
			if err := tx.Bucket(secretsBucket).Put(key, encodeSecret(key, bytes.Repeat(key, 50))); err != nil {
				return err
			}
		}
		key := []byte("long")
		return tx.Bucket(secretsBucket).Put(key, encodeSecret(key, bytes.Repeat(key, 1000)))
	})
	if err != nil {
		f.Fatal(err)
	}
	size := int64(0)
	_ = db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil })
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return file[:size]
}

// FuzzPages writes a few bytes somewhere into a file: the check may say what it
// likes, but returns.
func FuzzPages(f *testing.F) {
	file := small(f)
	f.Add(uint16(2*minPage), []byte{0xff})
	f.Add(uint16(3*minPage+10), []byte{0xff, 0xff})
	f.Add(uint16(4*minPage+pageHead+8), []byte{2})
	f.Fuzz(func(_ *testing.T, at uint16, patch []byte) {
		harmed := bytes.Clone(file)
		copy(harmed[int(at)%len(harmed):], patch)
		_ = checkPages(bytes.NewReader(harmed), int64(len(harmed)), maxChecked, func(_, key, record []byte) {
			_, _ = payloadOf(key, record)
		})
	})
}

func TestTheCheckTellsEveryRecord(t *testing.T) {
	file := small(t)
	seen := 0
	err := checkPages(bytes.NewReader(file), int64(len(file)), maxChecked, func(bucket, key, record []byte) {
		if !bytes.Equal(bucket, secretsBucket) {
			return
		}
		if _, err := decodeSecret(key, record); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		seen++
	})
	if err != nil || seen != 41 {
		t.Errorf("%d records seen, %v, want 41", seen, err)
	}
}

// TestTheCheckKeepsToItsBudget: what is beyond it is not read, and not an error;
// the list of free pages is read in any case.
func TestTheCheckKeepsToItsBudget(t *testing.T) {
	file := small(t)
	for pages := range len(file) / minPage {
		r := &counter{Reader: bytes.NewReader(file)}
		if err := checkPages(r, int64(len(file)), int64(pages*minPage), func(_, _, _ []byte) {}); err != nil {
			t.Fatalf("with %d pages: %v", pages, err)
		}
		if most := int64(pages+2)*minPage + 16*(pageHead+metaSize); r.n > most { // two for the list
			t.Errorf("with %d pages: %d bytes were read, want at most %d", pages, r.n, most)
		}
	}
}

type counter struct {
	*bytes.Reader
	n int64
}

func (c *counter) ReadAt(p []byte, at int64) (int, error) {
	c.n += int64(len(p))
	return c.Reader.ReadAt(p, at)
}
