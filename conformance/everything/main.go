// Command everything is the provider that the official MCP conformance suite is
// run against: every fixture of the suite that a provider of tools alone can
// offer over dialect bridge.v1.
//
// Its answers are genuine: the tools do what the suite's fixtures are described
// to do, and know nothing of the checks. What needs resources, prompts or
// completion is not offered, and listed in the expected-failures files beside
// this folder.
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
	token := flag.String("token", "", "the bridge's provider `token`; none by default")
	flag.Parse()
	if *url == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *url, *token)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run offers the fixtures until ctx ends.
func run(ctx context.Context, url, token string) error {
	f, err := newFixtures(provider.Config{
		URL:      url,
		Token:    token,
		Provider: "everything",
		Title:    "MCP conformance fixtures",
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return f.Run(ctx)
}
