package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"mcpbridge/store"
)

func TestEveryBucketIsChecked(t *testing.T) {
	for _, bucket := range store.Buckets() {
		if !store.Decoded(bucket) {
			t.Errorf("the records of %s are not read", bucket)
		}
	}
}

func TestASoundFileHasNoFaults(t *testing.T) {
	_, path := filled(t)
	before := read(t, path)
	report, err := store.CheckFile(t.Context(), path)
	check(t, err)
	if report.Err() != nil || report.File != path || report.Bytes != int64(len(before)) || report.Format != 1 {
		t.Errorf("%+v", report)
	}
	records := map[string]int{}
	for _, b := range report.Buckets {
		records[b.Bucket] = b.Records
		if b.Bytes == 0 || b.Unknown {
			t.Errorf("%+v", b)
		}
	}
	for bucket, want := range map[string]int{
		"meta": 1, "bridges": fillBridges, "tokens": 2*fillBridges + 1, "holdings": 2*fillBridges + 1, "registrations": fillBridges,
		"revisions": fillBridges, "endings": fillBridges, "expiries": fillBridges, "secrets": 1, "uses": 1, "tenants": 1, "belongings": 1,
	} {
		if records[bucket] != want {
			t.Errorf("%s has %d records, want %d", bucket, records[bucket], want)
		}
	}
	if !bytes.Equal(read(t, path), before) {
		t.Error("the file was changed")
	}
}

// TestCheckSaysWhatIsWrong harms a file in ways that opening it finds, and in ways that
// it does not.
func TestCheckSaysWhatIsWrong(t *testing.T) {
	content := func(edit func(file []byte) []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { check(t, os.WriteFile(path, edit(read(t, path)), 0o600)) }
	}
	in := func(bucket string, edit func(b *bbolt.Bucket) error) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			check(t, err)
			check(t, db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte(bucket))
				check(t, err)
				return edit(b)
			}))
			check(t, db.Close())
		}
	}
	without := func(bucket, key string) func(t *testing.T, path string) {
		return in(bucket, func(b *bbolt.Bucket) error {
			if b.Get([]byte(key)) == nil {
				t.Errorf("%s has no %q", bucket, key)
			}
			return b.Delete([]byte(key))
		})
	}
	moved := func(bucket, from, to string) func(t *testing.T, path string) {
		return in(bucket, func(b *bbolt.Bucket) error { return b.Put([]byte(to), bytes.Clone(b.Get([]byte(from)))) })
	}
	for name, test := range map[string]struct {
		harm func(t *testing.T, path string)
		want []string // faults; or the error
	}{
		"empty":   {content(func([]byte) []byte { return nil }), []string{"it is empty"}},
		"cut":     {content(func(f []byte) []byte { return f[:4*os.Getpagesize()] }), []string{"it was truncated: it has"}},
		"garbage": {content(func(f []byte) []byte { return bytes.Repeat([]byte("garbage!"), len(f)/8) }), []string{"neither of its two meta pages is valid"}},
		"a rotten record": {in("bridges", func(b *bbolt.Bucket) error {
			v := bytes.Clone(b.Get([]byte("bridge003")))
			v[20]++
			return b.Put([]byte("bridge003"), v)
		}), []string{`bucket bridges, key "bridge003": the record's checksum is wrong`}},
		"a record that moved": {moved("registrations", "bridge003\x00p", "bridge004\x00p"), []string{`bucket registrations, key "bridge004\x00p": the record's checksum is wrong`}},
		"no bridge":           {without("bridges", "bridge003"), []string{`bucket registrations, key "bridge003\x00p": it belongs to the bridge "bridge003", which is not there`}},
		"no token":            {without("tokens", "bridge003-p"), []string{`bucket holdings, key "bridge003\x00bridge003-p": it belongs to the token "bridge003-p", which is not there`}},
		"no used token":       {without("tokens", "bridge003-c"), []string{`bucket uses, key "bridge003-c"`, "bucket holdings"}},
		"no holding":          {without("holdings", "bridge003\x00bridge003-p"), []string{"the token \"bridge003-p\" is missing among those of its bridge"}},
		"no tenant":           {without("tenants", "team"), []string{`bucket bridges, key "bridge005": it belongs to the tenant "team", which is not there`}},
		"no belonging":        {without("belongings", "team\x00bridge005"), []string{"the bridge bridge005 is missing among those of its tenant team"}},
		"no bucket": {func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			check(t, err)
			check(t, db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("revisions")) }))
			check(t, db.Close())
		}, []string{"the bucket revisions is missing"}},
		"no format":    {in("meta", func(b *bbolt.Bucket) error { return b.Delete([]byte("format")) }), []string{"it has no format number"}},
		"newer format": {in("meta", func(b *bbolt.Bucket) error { return b.Put([]byte("format"), []byte{0, 0, 0, 2}) }), []string{"error: store: check: the file PATH has format 2, which is newer than the 1 that this program knows: use a newer program"}},
		"another's": {func(t *testing.T, path string) {
			check(t, os.Remove(path))
			in("theirs", func(*bbolt.Bucket) error { return nil })(t, path)
		}, []string{`error: store: check: the file PATH has no bucket "meta", so it is another program's`}},
		"not there": {func(t *testing.T, path string) { check(t, os.Remove(path)) }, []string{"error: store: check: stat PATH: no such file or directory"}},
		"in use": {func(t *testing.T, path string) {
			s := unsynced(t, filepath.Dir(path))
			t.Cleanup(func() { check(t, s.Close()) })
		}, []string{"error: store: check: the file PATH is in use by a running server: check a backup of it, or stop the server"}},
		"a newer program's bucket": {in("tomorrow", func(b *bbolt.Bucket) error { return b.Put([]byte("k"), []byte("v")) }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, path := filled(t)
			test.harm(t, path)
			report, err := store.CheckFile(t.Context(), path)
			said := strings.Join(report.Faults, "\n")
			if err != nil {
				said = "error: " + err.Error()
			}
			if faulty := report.Err() != nil; faulty != (len(report.Faults) > 0) || len(test.want) == 0 && said != "" {
				t.Errorf("said %q, Err %v", said, report.Err())
			}
			for _, want := range test.want {
				if want = strings.ReplaceAll(want, "PATH", path); !strings.Contains(said, want) {
					t.Errorf("%q\ndoes not say %q", said, want)
				}
			}
		})
	}
}

// TestManyFaultsAreCounted: the report stays short whatever the file.
func TestManyFaultsAreCounted(t *testing.T) {
	_, path := filled(t)
	db, err := bbolt.Open(path, 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *bbolt.Tx) error {
		for n := range 200 {
			check(t, tx.Bucket([]byte("tokens")).Put([]byte{'x', byte(n)}, []byte("rotten")))
		}
		return nil
	}))
	check(t, db.Close())
	report, err := store.CheckFile(t.Context(), path)
	check(t, err)
	if len(report.Faults) != 20 || report.More != 180 || !strings.Contains(report.Err().Error(), "is damaged: bucket tokens") ||
		!strings.HasSuffix(report.Err().Error(), ", and 199 more faults") {
		t.Errorf("%d faults and %d more: %v", len(report.Faults), report.More, report.Err())
	}
}

// TestCheckOfRottenPagesReports: whatever page is spoilt, the check ends with a report.
func TestCheckOfRottenPagesReports(t *testing.T) {
	_, path := filled(t)
	file := read(t, path)
	page := os.Getpagesize()
	found := 0
	for id := 2; id < len(file)/page; id++ {
		harmed := bytes.Clone(file)
		copy(harmed[id*page+8:], bytes.Repeat([]byte{0xff}, 40))
		check(t, os.WriteFile(path, harmed, 0o600))
		report, err := store.CheckFile(t.Context(), path)
		check(t, err)
		if report.Err() != nil {
			found++
		}
	}
	if found < 10 {
		t.Errorf("%d of %d pages were found to be spoilt", found, len(file)/page)
	}
}

func TestACheckEndsWithItsContext(t *testing.T) {
	_, path := filled(t)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := store.CheckFile(ctx, path); !errors.Is(err, gone) {
		t.Errorf("CheckFile = %v", err)
	}
}
