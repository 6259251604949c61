package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// score is how many of a revision's required scenarios passed.
type score struct {
	dialect, revision string
	passed, required  int
}

func (s score) String() string {
	return fmt.Sprintf("conformance %s scored %d/%d (%s)", s.revision, s.passed, s.required, s.dialect)
}

// check is one check of a scenario, as the suite writes it to checks.json.
type check struct {
	ID           string `json:"id"`
	Status       string `json:"status"` // SUCCESS FAILURE WARNING SKIPPED INFO
	Description  string `json:"description"`
	ErrorMessage string `json:"errorMessage"`
}

func (c check) failed() bool { return c.Status == "FAILURE" || c.Status == "WARNING" }

// passed tells whether a scenario has a success and nothing against it.
func passed(checks []check) bool {
	success := false
	for _, c := range checks {
		if c.failed() {
			return false
		}
		success = success || c.Status == "SUCCESS"
	}
	return success
}

// scored counts the required scenarios. One without results has not passed.
func scored(dialect, revision string, required []string, results map[string][]check) score {
	s := score{dialect: dialect, revision: revision, required: len(required)}
	for _, scenario := range required {
		if passed(results[scenario]) {
			s.passed++
		}
	}
	return s
}

// requirements reads the scenarios that a revision requires of servers: the list
// under the key server of a YAML file that knows no other nesting.
func requirements(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("conformance: the suite has no such revision: %w", err)
	}
	var scenarios []string
	server := false
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimRight(line, " \r\n")
		item, isItem := strings.CutPrefix(strings.TrimSpace(line), "- ")
		switch {
		case line == "":
		case !strings.HasPrefix(line, " "):
			server = line == "server:"
		case server && isItem:
			scenarios = append(scenarios, item)
		}
	}
	if len(scenarios) == 0 {
		return nil, fmt.Errorf("conformance: %s requires nothing of servers", path)
	}
	return scenarios, nil
}

// stamp is what the suite appends to the name of a scenario's folder.
var stamp = regexp.MustCompile(`-\d{4}-\d{2}-\d{2}T[\d-]+Z$`)

// readResults reads the suite's output folder: scenario → checks.
func readResults(folder string) (map[string][]check, error) {
	files, err := filepath.Glob(filepath.Join(folder, "server-*", "checks.json"))
	if err != nil {
		return nil, err
	}
	results := make(map[string][]check, len(files))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var checks []check
		if err := json.Unmarshal(b, &checks); err != nil {
			return nil, fmt.Errorf("conformance: %s: %w", file, err)
		}
		name := filepath.Base(filepath.Dir(file))
		results[stamp.ReplaceAllString(strings.TrimPrefix(name, "server-"), "")] = checks
	}
	return results, nil
}

// printFailures prints the checks that keep required scenarios from passing.
func printFailures(w io.Writer, required []string, results map[string][]check) {
	fmt.Fprintln(w, "\nFailed checks of required scenarios:")
	for _, scenario := range required {
		for _, c := range results[scenario] {
			if c.failed() {
				printCheck(w, "", scenario, c)
			}
		}
	}
}

func printCheck(w io.Writer, indent, scenario string, c check) {
	why := c.ErrorMessage
	if why == "" {
		why = c.Description
	}
	if runes := []rune(why); len(runes) > 300 {
		why = string(runes[:300]) + "…"
	}
	fmt.Fprintf(w, "  %s%s %s:%s: %s\n", indent, strings.ToLower(c.Status), scenario, c.ID, strings.ReplaceAll(why, "\n", " "))
}

// printUnscored prints how the scenarios went that the suite runs beside those that a
// revision requires, with the checks that failed.
func printUnscored(w io.Writer, required []string, results map[string][]check) {
	fmt.Fprintln(w, "\nScenarios that are not scored:")
	for _, scenario := range slices.Sorted(maps.Keys(results)) {
		if slices.Contains(required, scenario) {
			continue
		}
		verdict := "passed"
		switch {
		case slices.ContainsFunc(results[scenario], check.failed):
			verdict = "failed"
		case !passed(results[scenario]):
			verdict = "the suite checked nothing"
		}
		fmt.Fprintf(w, "  %s: %s\n", scenario, verdict)
		for _, c := range results[scenario] {
			if c.failed() {
				printCheck(w, "  ", scenario, c)
			}
		}
	}
}
