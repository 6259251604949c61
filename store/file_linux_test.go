package store_test

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"mcpbridge/store"
)

// TestNoPermissionIsExplained opens a store of somebody else's. Root may open
// anything, so as root the thread reads files as nobody meanwhile.
func TestNoPermissionIsExplained(t *testing.T) {
	const nobody = 65534
	dir, path := filled(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() == 0 {
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer syscall.Setfsuid(0) //nolint:errcheck // it cannot fail for root
	} else {
		check(t, os.Chmod(dir, 0))
		defer os.Chmod(dir, 0o700) //nolint:errcheck // so that it can be removed
	}
	s, err := store.OpenBolt(dir, store.BoltOptions{})
	if err == nil {
		_ = s.Close()
		t.Fatal("it was opened")
	}
	named := strings.Contains(err.Error(), path) || strings.Contains(err.Error(), dir)
	if !named || !strings.Contains(err.Error(), "permission") && !strings.Contains(err.Error(), "chmod") {
		t.Errorf("OpenBolt = %v", err)
	}
}
