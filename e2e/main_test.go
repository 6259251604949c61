package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// What the built binary says it is.
const (
	version = "0.0.0-e2e"
	commit  = "0123456789abcdef0123456789abcdef01234567"
)

// binary is the built program.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childMode {
		os.Exit(child(os.Args[2:]))
	}
	dir, err := os.MkdirTemp("", "mcpbridge-e2e-")
	if err == nil {
		binary = filepath.Join(dir, "mcpbridge")
		err = build()
	}
	leave := func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		leave(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(leave))
}

func build() error {
	cmd := exec.Command("go", "build", raceFlag, "-ldflags", "-X main.version="+version+" -X main.commit="+commit, "-o", binary, "./cmd/mcpbridge")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return nil
}

// environment is ours without what would steer the binary. A binary with the race
// detector would stay a second longer than without.
func environment() []string {
	kept := []string{"GORACE=atexit_sleep_ms=0"}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "MCPBRIDGE_") && !strings.HasPrefix(entry, "GORACE=") {
			kept = append(kept, entry)
		}
	}
	return kept
}
