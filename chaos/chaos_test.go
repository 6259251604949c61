package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own binary be the command that enters the namespaces.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == insideFlag {
		main()
	}
	os.Exit(m.Run())
}

// command runs chaos on this repository, and tells what it printed and whether it
// found violations.
func runCommand(t *testing.T, args ...string) (out string, found bool) {
	t.Helper()
	var w bytes.Buffer
	status, err := start(t.Context(), &w, append([]string{"-root", "..", "-clock=false", "-o", filepath.Join(t.TempDir(), "out")}, args...), false)
	if err != nil && !errors.Is(err, errFound) {
		t.Fatal(err)
	}
	t.Logf("\n%s", &w)
	return w.String(), status == 1 || errors.Is(err, errFound)
}

func serverOf(t *testing.T) string {
	t.Helper()
	binary, err := compile(t.Context(), "..", t.TempDir(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// The bounded form of `make chaos`.
func TestFaultsBreakNoGuarantee(t *testing.T) {
	t.Parallel()
	out, found := runCommand(t, "-d", "12s", "-seed", "4")
	if found {
		t.Error("a guarantee was broken")
	}
	for _, must := range []string{"\nviolations  0\n", "result ", " acknowledged; "} {
		if !strings.Contains(out, must) {
			t.Errorf("the output lacks %q", must)
		}
	}
}

// A full disk is told of, nothing is acknowledged that is not written, and all goes on by
// itself when there is space.
func TestAFullDiskIsToldOfAndLeft(t *testing.T) {
	t.Parallel()
	out, found := runCommand(t, "-d", "8s", "-seed", "1", "-faults", FaultFull)
	if found || !strings.Contains(out, "noticed by /readyz: true") {
		t.Error("a guarantee was broken, or nobody was told")
	}
}

// make rolling, in short.
func TestRestartsUnderLoadAreHidden(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := rolling(t.Context(), &out, serverOf(t), t.TempDir(), 2, 200); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", &out)
}

// make storm, in short.
func TestAllComeBackFromAStormAndNobodyIsTold(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := storm(t.Context(), &out, serverOf(t), t.TempDir(), 100, 50, 2*time.Second); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", &out)
}

// A server that breaks a rule is found out.
func TestBrokenServersAreFoundOut(t *testing.T) {
	t.Parallel()
	for rule, c := range map[string]struct {
		finds  Rule
		faults string
	}{
		"ack-early": {RuleDurable, FaultKill},
		"twice":     {RuleOnce, "none"},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			out, found := runCommand(t, "-d", "6s", "-seed", "1", "-faults", c.faults, "-broken", rule)
			if !found || !strings.Contains(out, "VIOLATION   "+string(c.finds)) {
				t.Errorf("no violation of %s was found", c.finds)
			}
		})
	}
}

// Whatever can be broken on purpose is still there to be broken.
func TestEveryBreakFitsTheSource(t *testing.T) {
	for rule, edits := range broken {
		for _, e := range edits {
			text, err := os.ReadFile(filepath.Join("..", e.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), e.from); n != 1 {
				t.Errorf("%s: %s has %q %d times, want once", rule, e.file, e.from, n)
			}
		}
	}
}

func TestUnknownBreakIsRefused(t *testing.T) {
	if _, err := compile(t.Context(), "..", t.TempDir(), false, "everything"); err == nil || !strings.Contains(err.Error(), "ack-early") {
		t.Errorf("err %v, want one that names what can be broken", err)
	}
}
