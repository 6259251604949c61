package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// orderly shows whether calls that wait for their provider are delivered in their
// order. The bridge is its own, so that the calls in flight are its own: each call is
// made once the bridge has the one before.
type orderly struct {
	r    *run
	http *http.Client
}

func newOrderly(r *run) *orderly {
	return &orderly{r, &http.Client{
		Timeout:   2 * time.Second,
		Transport: &http.Transport{DialContext: dialer(r.world.from(clientAddress)).DialContext},
	}}
}

// run goes on until ctx ends.
func (o *orderly) run(ctx context.Context) error {
	defer o.http.CloseIdleConnections()
	p := &rawProvider{
		line:   provideFrom(o.r.h, orderBridge, "last", o.r.world.from(providerAddress)),
		random: rand.New(rand.NewPCG(1, 2)), polite: true,
	}
	base := o.r.server.url()
	for round := 0; ctx.Err() == nil; round++ {
		// It stays until its tool is acknowledged, or a fault takes too long.
		stay, leave := context.WithTimeout(ctx, 20*time.Second)
		errs := make(chan error, 1)
		go func() { errs <- p.run(stay, base) }()
		for !p.isReady() && sleep(stay, 10*time.Millisecond) {
		}
		// The calls of the last round have ended, or will.
		for inFlight(ctx, o.http, base, orderBridge) != 0 && sleep(stay, 10*time.Millisecond) {
		}
		leave()
		if err := <-errs; err != nil {
			return err
		}
		o.round(ctx, p, round)
	}
	return nil
}

// round makes calls while the provider is away, and then lets it come back.
func (o *orderly) round(ctx context.Context, p *rawProvider, round int) {
	const most = 12
	var calls sync.WaitGroup
	var ended atomic.Int64
	whole := context.WithoutCancel(ctx)
	base := o.r.server.url()
	for i := range most {
		c := newClient(o.r.h, base, orderBridge, fmt.Sprintf("o%d.%d", round, i), modernEra, o.r.world.from(clientAddress))
		calls.Go(func() {
			defer c.http.CloseIdleConnections()
			c.Call(whole, callTool(p.name), 0)
			ended.Add(1)
		})
		n := 0
		for begun := time.Now(); time.Since(begun) < time.Second && ctx.Err() == nil; {
			if n = inFlight(ctx, o.http, base, orderBridge); n == i+1 || ended.Load() > 0 {
				break
			}
			sleep(ctx, 2*time.Millisecond)
		}
		if n != i+1 || ended.Load() > 0 { // a fault: what waits is delivered all the same
			break
		}
		o.r.h.Add(Event{Kind: CallAccepted, ID: c.Name + "-1"})
	}
	stay, leave := context.WithTimeout(whole, 30*time.Second)
	done := make(chan error, 1)
	go func() { done <- p.run(stay, base) }()
	calls.Wait()
	leave()
	if err := <-done; err != nil {
		o.r.h.Add(Event{Kind: Broke, Text: err.Error()})
	}
}
