package e2e

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"mcpbridge/clients/provider"
)

// A connection on which nothing was sent is a browser's preconnect, or the loser of
// a Go client's dial race; net/http's Shutdown waits 5 s for it.
func TestSilentConnectionDoesNotHoldTheServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.health("home") // the connection before has been accepted
	began := time.Now()
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr)
	}
	if took := time.Since(began); took > stopsWithin {
		t.Errorf("stopping took %v", took)
	}
}

// A server that is told to stop does not wait for its clients' streams, nor for its
// providers.
func TestStreamsDoNotHoldTheServer(t *testing.T) {
	t.Parallel()
	for name, lib := range libraries {
		if lib.needs != nil { // one client of each revision will do
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--open")
			s.provide("home", "", greet("greet"))
			j := &journey{t: t, server: s, seen: newSightings(), library: lib}
			j.client = lib.client(t, s.mcpURL("home"), j.seen)
			j.connect()
			began := time.Now()
			s.signal(syscall.SIGTERM)
			if status := s.wait(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, s.stderr)
			}
			if took := time.Since(began); took > stopsWithin {
				t.Errorf("stopping took %v", took)
			}
		})
	}
}

func TestBridgeMayBeNamedB(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	s.provide("b", "", greet("greet"))
	for _, bridge := range []string{s.mcpURL("b"), s.url("/b/b"), s.url("/b/b/mcp/")} {
		run(t, "call", bridge, "greet", `{"name":"you"}`).want(t, 0, `Hello, you!\n`, ``)
	}
	run(t, "call", "b", "greet", `{"name":"you"}`, "--server", s.url("")).want(t, 0, `Hello, you!\n`, ``)
	s.stop()
}

// A client whose stream was away must not keep a stale list until the next change.
func TestChangeWhileAStreamIsAwayIsTold(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	p := s.provide("home", "", greet("greet"))
	j := &journey{t: t, server: s, provider: p, seen: newSightings(), library: libraries["go-sdk 2025-11-25"], arrived: make(chan struct{}, 1)}
	j.client = j.library.client(t, s.mcpURL("home"), j.seen)
	j.connect()
	s.restart()
	var tools []provider.Tool
	for _, name := range []string{"greet", "wave"} {
		tools = append(tools, greet(name))
	}
	if _, err := p.SetTools(patient(t), tools...); err != nil { // the stream comes back after 1 s or more
		t.Fatal(err)
	}
	j.stream()
	select {
	case <-j.seen.changed:
	case <-time.After(2 * time.Second):
		t.Error("the client was not told")
	}
}

// A provider that does not answer the close handshake may be a laptop asleep.
func TestSilentProviderDoesNotHoldTheServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	dial(s, "home", "") // reads no more
	began := time.Now()
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr)
	}
	if took := time.Since(began); took > stopsWithin+time.Second { // goodbye is 2 s
		t.Errorf("stopping took %v", took)
	}
}

// A call that outlasts the grace was delivered: its client must not take it for one that
// may be made again.
func TestCallThatOutlastsTheGraceIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open", "--shutdown-grace", "300ms")
	begun := make(chan struct{})
	s.provide("home", "", provider.Tool{
		Name: "stuck", Description: "Never answers.",
		Handle: func(ctx context.Context, _ *provider.Call) (provider.Result, error) {
			close(begun)
			<-ctx.Done()
			return provider.Result{}, context.Cause(ctx)
		},
	})
	call := start(t, "call", s.mcpURL("home"), "stuck")
	await(t, begun, "the call")
	s.signal(syscall.SIGTERM)
	call.outcome().want(t, 1, `the bridge is shutting down; the call was delivered, and its outcome is unknown\n`, `mcpbridge: the tool reports an error\n`)
	if status := s.wait(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr)
	}
}
