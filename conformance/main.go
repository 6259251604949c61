// Command conformance runs the official MCP conformance suite against the built
// binary: it starts a bridge and the provider of everything/, runs the suite
// once for each revision, prints what the suite found, and ends with one line
// for each revision:
//
//	conformance 2025-11-25 scored 18/30
//
// A scenario counts as passed if it has a success and neither a failure nor a
// warning; only those that the revision's frozen requirements name are counted.
// The exit status is 1 on a failure that is not in the revision's
// expected-failures file, and on an entry there that passes.
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
	revisions := flag.String("revisions", "2025-11-25,2026-07-28", "the `revisions` to run, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *binary, *out, strings.Split(*revisions, ","))
	stop()
	if err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, binary, out string, revisions []string) (err error) {
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
	bridge := "http://" + address + "/b/conformance/mcp"
	server, err := start(ctx, filepath.Join(out, "server.log"), binary,
		"serve", "--open", "--listen", address, "--data", filepath.Join(work, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if err := server.until(ctx, func(ctx context.Context) bool { return healthy(ctx, "http://"+address+"/healthz") }); err != nil {
		return err
	}
	provider, err := start(ctx, filepath.Join(out, "provider.log"), everything,
		"-url", "ws://"+address+"/b/conformance/provider")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.stop()) }()
	if err := provider.until(ctx, func(ctx context.Context) bool { return listed(ctx, bridge, "test_simple_text") }); err != nil {
		return err
	}

	var scores []score
	failed := false
	for _, revision := range revisions {
		s, ok, err := suite.run(ctx, w, bridge, revision, filepath.Join(out, revision))
		if err != nil {
			return err
		}
		scores = append(scores, s)
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

// startTimeout bounds how long a process may take to do what it was started for.
const startTimeout = 30 * time.Second
