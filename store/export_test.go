package store

import (
	"context"
	"os"
)

// Unsynced opens a Bolt whose commits do not reach the disk, for tests that
// commit a lot and never crash.
func Unsynced(dir string) (*Bolt, error) { return OpenBolt(dir, BoltOptions{noSync: true}) }

// CopyTo is the copying part of Backup, to a file of the test's.
func CopyTo(ctx context.Context, b *Bolt, f *os.File) error {
	_, err := b.copyTo(ctx, f)
	return explain(b.path, err)
}

// Fill is the writing part of WriteBackup, to a file of the test's.
func Fill(ctx context.Context, to *os.File, from *os.File, size int64) error {
	return explain(to.Name(), fill(ctx, to, from, size))
}

// Buckets names every bucket; Decoded tells whether CheckFile reads its records.
func Buckets() [][]byte { return buckets }

// Decoded tells whether CheckFile reads the records of a bucket.
func Decoded(bucket []byte) bool { return decoders[string(bucket)] != nil }
