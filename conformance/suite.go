package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	// oldestNode is the oldest major version of Node.js that runs the suite.
	oldestNode = 22
	// suiteTimeout bounds one run of the suite, which takes about ten seconds.
	suiteTimeout = 5 * time.Minute
)

// suite is the installed conformance suite.
type suite struct {
	node    string // the program
	program string // the suite's entry point
	rules   string // folder of the frozen requirements
}

// findSuite finds the suite, and installs it by lock file if need be.
func findSuite(ctx context.Context) (*suite, error) {
	if _, err := os.Stat(filepath.Join(folder, "package-lock.json")); err != nil {
		return nil, errors.New("conformance: run this from the repository's root")
	}
	modules := filepath.Join(folder, "node_modules")
	home := filepath.Join(modules, "@modelcontextprotocol", "conformance")
	if _, err := os.Stat(home); err != nil {
		npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		npm.Dir = folder
		if text, err := npm.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("conformance: npm ci: %w\n%s", err, text)
		}
	}
	node, err := findNode(ctx, modules)
	if err != nil {
		return nil, err
	}
	return &suite{
		node:    node,
		program: filepath.Join(home, "dist", "index.js"),
		rules:   filepath.Join(home, "requirements"),
	}, nil
}

// findNode is the pinned Node.js, or the system's where none is pinned for it.
func findNode(ctx context.Context, modules string) (string, error) {
	system, machine := runtime.GOOS, runtime.GOARCH
	program := filepath.Join("bin", "node")
	if system == "windows" {
		system, program = "win", program+".exe"
	}
	if machine == "amd64" {
		machine = "x64"
	}
	pinned := filepath.Join(modules, "node-"+system+"-"+machine, program)
	if _, err := os.Stat(pinned); err == nil {
		return filepath.Abs(pinned)
	}
	version, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("conformance: Node.js %d or newer is missing: %w", oldestNode, err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		return "", fmt.Errorf("conformance: Node.js is %s; the suite needs %d or newer", strings.TrimSpace(string(version)), oldestNode)
	}
	return "node", nil
}

// run runs the suite for a dialect and a revision, and tells the score and whether it is as
// expected. Results and the suite's output stay in out.
func (s *suite) run(ctx context.Context, w io.Writer, url, dialect, revision, out string) (score, bool, error) {
	required, err := requirements(filepath.Join(s.rules, revision+".yaml"))
	if err != nil {
		return score{}, false, err
	}
	results := filepath.Join(out, "results")
	if err := os.RemoveAll(results); err != nil {
		return score{}, false, err
	}
	if err := os.MkdirAll(results, 0o755); err != nil {
		return score{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.node, s.program, "server", "--url", url,
		"--requirements", revision,
		"--expected-failures", filepath.Join(folder, "expected-failures-"+dialect+"-"+revision+".yml"),
		"-o", results)
	cmd.WaitDelay = stopGrace
	text, failure := cmd.CombinedOutput()
	if err := os.WriteFile(filepath.Join(out, "suite.log"), text, 0o644); err != nil {
		return score{}, false, err
	}
	if failure != nil {
		if _, ok := errors.AsType[*exec.ExitError](failure); !ok || ctx.Err() != nil {
			return score{}, false, fmt.Errorf("conformance: the suite was ended: %w", errors.Join(context.Cause(ctx), failure))
		}
	}
	checked, err := readResults(results)
	if err != nil {
		return score{}, false, err
	}
	report := summary(string(text))
	if report == "" {
		return score{}, false, fmt.Errorf("conformance: the suite ended early:\n%s", text)
	}
	fmt.Fprintf(w, "\n%s over %s: the suite says\n%s\n", revision, dialect, report)
	printFailures(w, required, checked)
	printUnscored(w, required, checked)
	return scored(dialect, revision, required, checked), failure == nil, nil
}

var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// summary is what the suite prints at its end, without colours.
func summary(text string) string {
	i := strings.LastIndex(text, "=== SUMMARY ===")
	if i < 0 {
		return ""
	}
	return strings.TrimSpace(colour.ReplaceAllString(text[i:], ""))
}
