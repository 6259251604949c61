package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var server string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mcpbridge-hostile-")
	if err == nil {
		server = filepath.Join(dir, "mcpbridge")
		cmd := exec.Command("go", "build", "-o", server, "./cmd/mcpbridge")
		cmd.Dir = ".."
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	leave := func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile: building the server:", err)
		leave(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(leave))
}

// mostMemory is what the server may hold while all enemies attack at once, in bytes: far
// below what one of them tries to make it hold.
const mostMemory = 512 << 20

// TestEnemiesHarmNobodyElse: all attack one process at once. Each gets what it should;
// the calls of a bridge that nobody attacks are all answered, and memory stays bounded.
func TestEnemiesHarmNobodyElse(t *testing.T) {
	t.Parallel()
	target, err := start(t.Context(), server, t.TempDir(), "--ping", "8s")
	if err != nil {
		t.Fatal(err)
	}
	quit, calm := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-quit.Done():
				return
			}
			if err := target.call(t.Context(), n); err != nil {
				t.Errorf("a victim: %v", err)
				return
			}
			if memory, err := target.memory(); err != nil || memory > mostMemory {
				t.Errorf("the server holds %d MiB, %v", memory>>20, err)
				return
			}
		}
	}()
	begun := time.Now()
	brief := func(int) bool { return time.Since(begun) < 2*time.Second } // the slow ones offend once
	var wg sync.WaitGroup
	for _, e := range enemies() {
		wg.Go(func() {
			got, err := e.attack(t.Context(), target, brief)
			if err != nil {
				t.Error(err)
			}
			for text, times := range got {
				if !e.deserved(text) {
					t.Errorf("%s: got %.300q %d times, want %s", e.name, text, times, e.gets)
				}
			}
		})
	}
	wg.Wait()
	calm()
	<-watched
	if err := target.stop(); err != nil {
		t.Error(err)
	}
}

// TestNothingIsHeldAfterALoad is make soak in short.
func TestNothingIsHeldAfterALoad(t *testing.T) {
	t.Parallel()
	target, err := start(t.Context(), server, t.TempDir(), soakArgs...)
	if err != nil {
		t.Fatal(err)
	}
	quick := slices.DeleteFunc(enemies(), func(e enemy) bool { return e.slow })
	if err := soak(t.Context(), target, quick, 5*time.Second, t.Output()); err != nil {
		t.Error(err)
	}
	if err := target.stop(); err != nil {
		t.Error(err)
	}
}

func TestWhatHasGrownIsFound(t *testing.T) {
	before := held{goroutines: 10, files: 10, heap: 20 << 20}
	if err := (held{goroutines: 13, files: 8, heap: 31 << 20}).over(before); err != nil {
		t.Errorf("what is tolerated: %v", err)
	}
	err := held{goroutines: 14, files: 14, heap: 33 << 20}.over(before)
	for _, want := range []string{"14 goroutines were 10", "14 descriptors were 10", "34603008 bytes of heap were 20971520"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestOffenderThatGetsAwayIsFound(t *testing.T) {
	e := enemy{gets: `413 .*4194304|cut`}
	for got, want := range map[string]bool{
		"413 the body may have at most 4194304 bytes": true, "cut": true,
		"200 {}": false, "413": false, "": false,
	} {
		if e.deserved(got) != want {
			t.Errorf("%q counts as %v", got, !want)
		}
	}
}
