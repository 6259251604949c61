package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"mcpbridge/clients/provider"
)

// bulk is a tool's description, in bytes. Each time there is one tool more, for the store
// writes again to the pages of those that were taken off.
const bulk = 200 << 10

// filled fills the disk, and lets a provider register. The server must say that it is not
// ready, and must not acknowledge what it cannot write; when there is space it must be
// ready again by itself, and have lost nothing that it was sent.
func filled(ctx context.Context, r *run) error {
	free, err := r.world.fill()
	if err != nil {
		return err
	}
	r.fills++
	var tools []provider.Tool
	for i := range r.fills {
		tools = append(tools, provider.Tool{
			Name: fmt.Sprintf("bulk%d", i), Description: strings.Repeat("x", bulk), InputSchema: json.RawMessage(schema),
			Handle: func(context.Context, *provider.Call) (provider.Result, error) { return provider.Result{}, nil },
		})
	}
	registered := make(chan struct{})
	var once sync.Once
	p, err := provider.New(provider.Config{
		URL: "ws://" + r.server.address + "/b/bulk/provider", Provider: "bulk", Retain: time.Nanosecond, Tools: tools,
		Registered: func(provider.Registration) { once.Do(func() { close(registered) }) },
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return errors.Join(err, free())
	}
	run, leave := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = p.Run(run) // whatever ends it, its registration tells
	}()
	defer func() { leave(); <-gone }()

	noticed := within(ctx, 10*time.Second, func() bool { return !r.server.says(ctx, "/readyz") })
	sleep(ctx, r.between(0, 5*time.Second))
	early := false
	select {
	case <-registered:
		early = true // there were free pages enough. Nothing checks here that it is durable
	default:
	}
	if err := free(); err != nil {
		return err
	}
	if !noticed && !early && ctx.Err() == nil {
		return errors.New("the server neither acknowledges nor says that it cannot write")
	}
	r.noticed = r.noticed || noticed
	if err := r.server.ready(ctx); err != nil {
		return err
	}
	select {
	case <-registered:
		return nil
	case <-ctx.Done():
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("what was registered on a full disk was not acknowledged in the 10 s after it had space: %w", context.DeadlineExceeded)
	}
}

// within waits until it is so; false if it is not in time.
func within(ctx context.Context, d time.Duration, so func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}
