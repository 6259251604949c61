package main

import (
	"context"
	"net/http"
	"strings"
	"time"
)

type healthcheckCmd struct {
	Server  string        `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server. Default: ${default}."`
	Timeout time.Duration `default:"3s" help:"How long it may take to answer. Default: ${default}."`
}

// Run asks the server whether it is ready.
func (c *healthcheckCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(c.Server, "/")+"/readyz", nil)
	if err != nil {
		return usagef("--server is %q, want an http or https URL", address(c.Server))
	}
	answer, err := noRedirects.Do(r)
	if err != nil {
		return unreachable(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	return nil
}
