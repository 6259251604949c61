// Command everything is the provider that the official MCP conformance suite is
// run against, in one of two dialects: over bridge.v1 it offers every fixture of the
// suite that is a tool; over mcp it is an MCP server of revision 2026-07-28 that
// dials out, and offers prompts, resources and completion too.
//
// Its answers are genuine: the fixtures do what the suite describes them to do, and
// know nothing of the checks. What a dialect cannot carry is listed in its
// expected-failures files beside this folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"mcpbridge/clients/provider"
)

func main() {
	url := flag.String("url", "", "the bridge's provider `URL`, like ws://127.0.0.1:8080/b/conformance/provider")
	dialect := flag.String("dialect", "bridge.v1", "the `dialect` to speak: bridge.v1 or mcp")
	token := flag.String("token", "", "the bridge's provider `token`; none by default")
	flag.Parse()
	if *url == "" || *dialect != "bridge.v1" && *dialect != subprotocol || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *dialect, *url, *token)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run offers the fixtures until ctx ends.
func run(ctx context.Context, dialect, url, token string) error {
	cfg := provider.Config{
		URL:      url,
		Token:    token,
		Provider: "everything",
		Title:    "MCP conformance fixtures",
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if dialect == subprotocol {
		s, err := newServer(cfg)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}
	p, err := newProvider(cfg)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}
