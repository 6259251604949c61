package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRequirementsAreReadFromTheServerList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	text := "# why\nserver:\n  - a-b # not this\n  # - c\n  - d\n\nclient:\n  - e\nnot_scored:\n  - scenario: f\n    leg: server\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := requirements(path); err != nil || !slices.Equal(got, []string{"a-b", "d"}) {
		t.Errorf("requirements = %q, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("client:\n  - e\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := requirements(path); err == nil {
		t.Errorf("no server list: %q", got)
	}
	if _, err := requirements(path + "x"); err == nil {
		t.Error("no file is no error")
	}
}

func TestScoreCountsRequiredScenariosOnly(t *testing.T) {
	folder := t.TempDir()
	for name, checks := range map[string]string{
		"server-good-2026-01-02T03-04-05-678Z":       `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"INFO"},{"id":"c","status":"SKIPPED"}]`,
		"server-sep-2026-07-2026-01-02T03-04-05Z":    `[{"id":"a","status":"SUCCESS"}]`,
		"server-bad-2026-01-02T03-04-05-678Z":        `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"FAILURE","errorMessage":"two\nlines"}]`,
		"server-warned-2026-01-02T03-04-05-678Z":     `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"WARNING","description":"should"}]`,
		"server-idle-2026-01-02T03-04-05-678Z":       `[{"id":"a","status":"SKIPPED"}]`,
		"server-not-scored-2026-01-02T03-04-05-678Z": `[{"id":"a","status":"SUCCESS"}]`,
	} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name, "checks.json"), []byte(checks), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	results, err := readResults(folder)
	if err != nil || len(results) != 6 {
		t.Fatalf("results = %v, %v", results, err)
	}
	required := []string{"good", "sep-2026-07", "bad", "warned", "idle", "absent"}
	if got := scored("mcp", "2026-07-28", required, results).String(); got != "conformance 2026-07-28 scored 2/6 (mcp)" {
		t.Errorf("score = %q", got)
	}
	var b strings.Builder
	printFailures(&b, required, results)
	for _, want := range []string{"failure bad:b: two lines\n", "warning warned:b: should\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("failures = %q, want %q", b.String(), want)
		}
	}
}

func TestUnscoredScenariosAreToldApart(t *testing.T) {
	var b strings.Builder
	printUnscored(&b, []string{"required"}, map[string][]check{
		"required": {{ID: "r", Status: "FAILURE"}},
		"good":     {{ID: "g", Status: "SUCCESS"}},
		"bad":      {{ID: "b", Status: "WARNING", Description: "why"}, {ID: "c", Status: "SUCCESS"}},
		"empty":    {{ID: "e", Status: "SKIPPED"}},
	})
	const want = "\nScenarios that are not scored:\n  bad: failed\n    warning bad:b: why\n  empty: the suite checked nothing\n  good: passed\n"
	if b.String() != want {
		t.Errorf("printed %q", b.String())
	}
}

func TestSummaryIsTheEndOfTheOutput(t *testing.T) {
	if got := summary("x\n=== SUMMARY ===\n\x1b[31mred\x1b[0m\n\n"); got != "=== SUMMARY ===\nred" {
		t.Errorf("summary = %q", got)
	}
	if got := summary("crashed"); got != "" {
		t.Errorf("summary = %q", got)
	}
}

// TestEveryExpectedFailureHasAReason keeps the baselines honest.
func TestEveryExpectedFailureHasAReason(t *testing.T) {
	files, err := filepath.Glob("expected-failures-*.yml")
	if err != nil || len(files) != 4 {
		t.Fatalf("files = %v, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(string(b)) {
			item, isItem := strings.CutPrefix(strings.TrimSpace(line), "- ")
			if !isItem {
				continue
			}
			name, reason, _ := strings.Cut(item, " # ")
			if strings.TrimSpace(reason) == "" || seen[name] {
				t.Errorf("%s: %q has no reason or is there twice", file, name)
			}
			seen[name] = true
		}
	}
}
