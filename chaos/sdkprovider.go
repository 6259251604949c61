package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"mcpbridge/clients/provider"
)

// sdkProvider is a provider of the Go SDK, with the SDK's own back-off.
type sdkProvider struct {
	*line
	random  *rand.Rand
	version int
	every   time.Duration // between sets, about; 0 for one set alone
	drop    time.Duration // between broken connections, about; 0 for never
}

// run keeps the provider connected until ctx ends.
func (p *sdkProvider) run(ctx context.Context, base string) error {
	s, err := provider.New(provider.Config{
		URL: base + "/b/" + p.bridge + "/provider", Provider: p.name,
		HTTP:       p.client(),
		Registered: func(provider.Registration) { p.ready(p.number()) },
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	dropped := make(chan struct{})
	go func() { // ends with ctx
		defer close(dropped)
		for p.drop > 0 && sleep(ctx, p.drop/2+rand.N(p.drop)) {
			p.cut()
		}
	}()
	for ctx.Err() == nil {
		err := p.set(ctx, s)
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("chaos: provider %s: %w", p.name, err)
		}
		if p.every == 0 && err == nil {
			break
		}
		sleep(ctx, p.every/2+rand.N(p.every+1))
	}
	<-dropped
	return <-ran
}

// set registers the next set.
func (p *sdkProvider) set(ctx context.Context, s *provider.Provider) error {
	p.version++
	size := 1 + p.random.IntN(4)
	tools := make([]provider.Tool, 0, size)
	for i := range size {
		name := callTool(p.name)
		if i > 0 {
			name = setTool(p.name, i)
		}
		tools = append(tools, provider.Tool{Name: name, Description: setText(p.version, size), InputSchema: json.RawMessage(schema), Handle: p.handle})
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	p.h.Add(Event{Kind: RegBegin, Bridge: p.bridge, Who: p.name, N: p.version})
	if _, err := s.SetTools(ctx, tools...); err != nil {
		return err
	}
	p.h.Add(Event{Kind: RegAcked, Bridge: p.bridge, Who: p.name, N: p.version})
	return nil
}

// schema is that of every tool.
const schema = `{"type":"object","properties":{"id":{"type":"string"},"ms":{"type":"integer"}},"required":["id"]}`

// job is what a call asks for.
type job struct {
	ID string
	MS int
}

// took is the time that a call asks for.
func (j job) took() time.Duration { return time.Duration(j.MS) * time.Millisecond }

func (p *sdkProvider) handle(ctx context.Context, c *provider.Call) (provider.Result, error) {
	var j job
	if err := c.Bind(&j); err != nil {
		return provider.Result{}, err
	}
	// The SDK keeps the bridge's ID to itself: this one is as good, for what it tells.
	p.h.Add(Event{Kind: Exec, Bridge: p.bridge, Who: p.name, Tool: c.Name, ID: j.ID, CallID: "sdk " + j.ID, Conn: p.number()})
	sleep(ctx, j.took())
	text := answerText(j.ID)
	p.h.Add(Event{Kind: Answer, ID: j.ID, Text: text})
	return provider.Text(text), nil
}

// answerText is an answer that no other call gets.
func answerText(id string) string { return fmt.Sprintf("%s %016x", id, rand.Uint64()) }

// provideFrom makes a provider's line.
func provideFrom(h *History, bridge, name, from string) *line {
	return &line{h: h, bridge: bridge, name: name, dial: dialer(from)}
}
