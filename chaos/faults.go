package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// The faults.
const (
	FaultKill         = "kill"          // SIGKILL, and a start
	FaultTerm         = "term"          // SIGTERM, and a start
	FaultStop         = "stop"          // SIGSTOP, and SIGCONT
	FaultFull         = "disk-full"     // no space is left, for a while
	FaultFullKill     = "disk-full-die" // killed and started while no space is left
	FaultReadOnly     = "read-only"     // started on a file system, then a file, that cannot be written
	FaultDamage       = "damage"        // started on a store of which bytes were changed
	FaultClock        = "clock"         // the wall clock is stepped
	FaultCutClients   = "cut-clients"   // no packet from or to clients
	FaultCutProviders = "cut-providers" // no packet from or to providers
	FaultCutAll       = "cut-all"       // no packet at all
)

// ends tells which faults may end a connection without an answer: a server that is
// told to stop answers first, and one that only waits loses nobody.
var ends = map[string]bool{
	FaultKill: true, FaultFullKill: true, FaultReadOnly: true, FaultDamage: true, FaultCutClients: true, FaultCutAll: true,
}

// restarts are the faults after which the server is another process.
var restarts = map[string]bool{FaultKill: true, FaultTerm: true, FaultFullKill: true, FaultReadOnly: true, FaultDamage: true}

// unseen are the faults that no call may notice.
var unseen = map[string]bool{FaultFull: true, FaultClock: true}

// fault is something that goes wrong, and is mended before it returns. Its error is
// the server's fault, or the harness's own.
type fault struct {
	name   string
	weight int
	make   func(ctx context.Context, r *run) error
}

// faults are all those that can be made here; without says which cannot, and why.
func (r *run) faults() (list []fault, without []string) {
	list = []fault{
		{FaultKill, 4, killed},
		{FaultTerm, 3, terminated},
		{FaultStop, 3, stopped},
		{FaultDamage, 1, damaged},
	}
	if r.world.disk {
		list = append(list, fault{FaultFull, 3, filled}, fault{FaultFullKill, 1, filledAndKilled}, fault{FaultReadOnly, 1, readOnly})
	}
	if r.world.network {
		list = append(list,
			fault{FaultCutClients, 2, func(ctx context.Context, r *run) error { return cut(ctx, r, clientAddress) }},
			fault{FaultCutProviders, 3, func(ctx context.Context, r *run) error { return cut(ctx, r, providerAddress) }},
			fault{FaultCutAll, 2, func(ctx context.Context, r *run) error { return cut(ctx, r, clientAddress, providerAddress) }})
	}
	if r.clock {
		list = append(list, fault{FaultClock, 2, stepped})
	} else {
		without = append(without, "clock steps: the binary was given, and has the machine's own clock")
	}
	return list, append(without, r.world.missing...)
}

// between draws a time.
func (r *run) between(a, b time.Duration) time.Duration {
	return a + time.Duration(r.random.Int64N(int64(b-a)))
}

func killed(ctx context.Context, r *run) error {
	r.server.kill()
	sleep(ctx, r.between(0, 1500*time.Millisecond))
	return r.server.start(ctx)
}

func terminated(ctx context.Context, r *run) error {
	if err := r.server.stop(); err != nil {
		return err
	}
	sleep(ctx, r.between(0, 500*time.Millisecond))
	return r.server.start(ctx)
}

func stopped(ctx context.Context, r *run) error {
	if err := r.server.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, r.between(200*time.Millisecond, 4*time.Second))
	if err := r.server.signal(syscall.SIGCONT); err != nil {
		return err
	}
	return r.server.ready(ctx)
}

func cut(ctx context.Context, r *run, addresses ...string) error {
	mend, err := r.world.cut(ctx, addresses...)
	if err != nil {
		return err
	}
	sleep(ctx, r.between(300*time.Millisecond, 8*time.Second))
	return mend()
}

func filledAndKilled(ctx context.Context, r *run) error {
	free, err := r.world.fill()
	if err != nil {
		return err
	}
	sleep(ctx, r.between(0, 2*time.Second))
	r.server.kill()
	// It may refuse to start, or serve what it has; it may not spoil anything.
	if err := r.server.launch(); err != nil {
		return errors.Join(err, free())
	}
	r.server.expected.Store(true)
	sleep(ctx, r.between(200*time.Millisecond, 2*time.Second))
	if err := free(); err != nil {
		return err
	}
	select {
	case <-r.server.ended:
		return r.server.start(ctx)
	default:
	}
	r.server.expected.Store(false)
	if err := r.server.ready(ctx); err == nil {
		return nil
	}
	r.server.kill() // it was about to refuse
	return r.server.start(ctx)
}

func readOnly(ctx context.Context, r *run) error {
	r.server.kill()
	if err := r.world.readOnly(true); err != nil {
		return err
	}
	err := r.server.refuses(ctx)
	if back := r.world.readOnly(false); back != nil {
		return errors.Join(err, back)
	}
	if err != nil {
		return fmt.Errorf("on a read-only file system: %w", err)
	}
	if err := os.Chmod(r.server.file(), 0o400); err != nil {
		return err
	}
	if err := r.server.refuses(ctx); err != nil {
		return fmt.Errorf("on a read-only file: %w", err)
	}
	if err := os.Chmod(r.server.file(), 0o600); err != nil {
		return err
	}
	return r.server.start(ctx)
}

// damaged changes the store under a server that is not running. It must refuse to
// start, for else it would go on without what was acknowledged.
func damaged(ctx context.Context, r *run) error {
	r.server.kill()
	name := r.server.file()
	good, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	bad := append([]byte(nil), good...)
	for i := range bad[:min(len(bad), 4*4096)] { // the meta pages, and the roots after them
		bad[i] ^= byte(rand.IntN(256))
	}
	if err := os.WriteFile(name, bad, 0o600); err != nil {
		return err
	}
	refused := r.server.refuses(ctx)
	if err := os.WriteFile(name, good, 0o600); err != nil {
		return err
	}
	if refused != nil {
		return fmt.Errorf("on a damaged store: %w", refused)
	}
	return r.server.start(ctx)
}

// stepped steps the server's wall clock, there and back: see clock.go.
func stepped(ctx context.Context, r *run) error {
	there, back := syscall.SIGUSR1, syscall.SIGUSR2
	if r.random.IntN(2) == 0 {
		there, back = back, there
	}
	if err := r.server.signal(there); err != nil {
		return err
	}
	sleep(ctx, r.between(time.Second, 4*time.Second))
	if err := r.server.signal(back); err != nil {
		return err
	}
	return r.server.ready(ctx)
}
