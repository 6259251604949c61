// Command conformance runs the official MCP conformance suite against the built
// binary: it starts a bridge and, for each dialect of the provider socket, the
// provider of everything/ on a bridge of its own; it runs the suite once for each
// dialect and revision, prints what the suite found, and ends with one line for each:
//
//	conformance 2025-11-25 scored 20/30 (bridge.v1)
//
// A scenario counts as passed if it has a success and neither a failure nor a
// warning; only those that the revision's frozen requirements name are counted.
// The exit status is 1 on a failure that is not in the expected-failures file of
// the dialect and revision, and on an entry there that passes.
//
// Run it from the repository's root. The suite, and a Node.js that can run it,
// are pinned by package-lock.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// folder is where this command and the suite's package.json live.
const folder = "conformance"

// errFailed tells that the suite found something that it should not have; it
// has been printed.
var errFailed = errors.New("conformance: failed")

func main() {
	binary := flag.String("bin", filepath.Join("bin", "mcpbridge"), "the `binary` under test")
	out := flag.String("o", "", "keep logs and the suite's results in `folder`; default: a temporary one")
	dialects := flag.String("dialects", "bridge.v1,mcp", "the `dialects` of the provider to run, separated by commas")
	revisions := flag.String("revisions", "2025-11-25,2026-07-28", "the `revisions` to run, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *binary, *out, strings.Split(*dialects, ","), strings.Split(*revisions, ","))
	stop()
	if err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, binary, out string, dialects, revisions []string) (err error) {
	suite, err := findSuite(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if out == "" {
		out = filepath.Join(work, "out")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	everything := filepath.Join(work, "everything")
	build := exec.CommandContext(ctx, "go", "build", "-o", everything, "./"+folder+"/everything")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("conformance: build the provider: %w\n%s", err, text)
	}

	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	server, err := start(ctx, filepath.Join(out, "server.log"), binary,
		"serve", "--open", "--listen", address, "--data", filepath.Join(work, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if err := server.until(ctx, func(ctx context.Context) bool { return healthy(ctx, "http://"+address+"/healthz") }); err != nil {
		return err
	}

	var scores []score
	failed := false
	for _, dialect := range dialects {
		all, ok, err := runDialect(ctx, w, suite, everything, address, out, dialect, revisions)
		if err != nil {
			return err
		}
		scores = append(scores, all...)
		failed = failed || !ok
	}
	fmt.Fprintln(w)
	for _, s := range scores {
		fmt.Fprintln(w, s)
	}
	if failed {
		return errFailed
	}
	return nil
}

// runDialect runs the suite for each revision against a provider that speaks a
// dialect, and tells whether all was as expected.
func runDialect(ctx context.Context, w io.Writer, suite *suite, everything, address, out, dialect string, revisions []string) (scores []score, ok bool, err error) {
	bridge := address + "/b/conformance-" + strings.ReplaceAll(dialect, ".", "-")
	out = filepath.Join(out, dialect)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, false, err
	}
	provider, err := start(ctx, filepath.Join(out, "provider.log"), everything,
		"-dialect", dialect, "-url", "ws://"+bridge+"/provider")
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, provider.stop()) }()
	if err := provider.until(ctx, func(ctx context.Context) bool { return offered(ctx, "http://"+bridge+"/mcp", dialect) }); err != nil {
		return nil, false, err
	}
	ok = true
	for _, revision := range revisions {
		s, expected, err := suite.run(ctx, w, "http://"+bridge+"/mcp", dialect, revision, filepath.Join(out, revision))
		if err != nil {
			return nil, false, err
		}
		scores = append(scores, s)
		ok = ok && expected
	}
	return scores, ok, nil
}

// startTimeout bounds how long a process may take to do what it was started for.
const startTimeout = 30 * time.Second
