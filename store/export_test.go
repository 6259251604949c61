package store

// Unsynced opens a Bolt whose commits do not reach the disk, for tests that
// commit a lot and never crash.
func Unsynced(dir string) (*Bolt, error) { return OpenBolt(dir, BoltOptions{noSync: true}) }
