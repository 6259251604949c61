package store

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	for page := range len(file) / minPage { // flags, count, overflow, and the fields of the first element
		for _, field := range []int{8, 10, 12, pageHead, pageHead + 4, pageHead + 8, pageHead + 12} {
			f.Add(uint16(page*minPage+field), []byte{0xff, 0xff, 0xff, 0x7f}) //nolint:gosec // a small file
		}
	}
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

// leaves are the offsets of the pages of the bucket "secrets", in the order of
// their keys.
func leaves(t *testing.T, file []byte) (at []int) {
	t.Helper()
	for page := 2 * minPage; page < len(file); page += minPage {
		if native.Uint64(file[page:]) == uint64(page/minPage) && native.Uint16(file[page+8:]) == leafPage && lastKey(file[page:])[0] == 'k' { //nolint:gosec // positive
			at = append(at, page)
		}
	}
	slices.SortFunc(at, func(a, b int) int { return bytes.Compare(lastKey(file[a:]), lastKey(file[b:])) })
	if len(at) < 3 {
		t.Fatalf("%d leaves, want some", len(at))
	}
	return at
}

// lastKey is the key of a leaf's last element.
func lastKey(page []byte) []byte {
	at := pageHead + (int(native.Uint16(page[10:]))-1)*pageElement
	from := at + int(native.Uint32(page[at+4:]))
	return page[from : from+int(native.Uint32(page[at+8:]))]
}

func TestTheCheckFindsWhatBboltWouldFollow(t *testing.T) {
	for name, harm := range map[string]func(file []byte) (want string){
		"a key beyond the next page's": func(file []byte) string {
			lastKey(file[leaves(t, file)[0]:])[1] = 0xff
			return "out of order"
		},
		"a key before its page's": func(file []byte) string {
			page := file[leaves(t, file)[1]:]
			page[pageHead+int(native.Uint32(page[pageHead+4:]))+1] = 0
			return "out of order"
		},
		"a used page in the list of free ones": func(file []byte) string {
			meta, _ := currentMeta(bytes.NewReader(file), int64(len(file)))
			list := file[meta.freelist*minPage:]
			if native.Uint16(list[10:]) == 0 {
				native.PutUint16(list[10:], 1)
			}
			native.PutUint64(list[pageHead:], uint64(leaves(t, file)[0]/minPage)) //nolint:gosec // positive
			return "is used twice"
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := small(t)
			want := harm(file)
			err := checkPages(bytes.NewReader(file), int64(len(file)), maxChecked, func(_, _, _ []byte) {})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("checkPages = %v, want %q", err, want)
			}
		})
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
