// Command chaos runs the binary under load and makes things go wrong: it kills the
// server, stops it, tells it to end, fills its disk, makes its file read-only or
// damages it, steps its clock, cuts its network. Clients of two eras and providers
// record what they do and see; a checker finds what of it breaks a guarantee of
// ARCHITECTURE.md.
//
//	go run ./chaos -d 10m
//
// It runs in a network and a mount namespace of its own, where that is possible (as
// root, or where users may have user namespaces), so that nothing else notices; if
// not, it says which faults are not made. The exit status is 1 on a violation.
//
// Run it from the repository's root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// errFound tells that there are violations; they have been printed.
var errFound = errors.New("chaos: violations")

func main() {
	inside := len(os.Args) > 1 && os.Args[1] == insideFlag
	args := os.Args[1:]
	if inside {
		args = args[1:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := start(ctx, os.Stdout, args, inside)
	stop()
	if err != nil {
		if err != errFound { //nolint:errorlint // what is joined to it is told
			fmt.Fprintln(os.Stderr, err)
		}
		status = 1
	}
	os.Exit(status)
}

// start reads the arguments, builds the server if need be, enters namespaces if it
// can, and runs.
func start(ctx context.Context, w io.Writer, args []string, inside bool) (status int, err error) {
	flags := flag.NewFlagSet("chaos", flag.ExitOnError)
	duration := flags.Duration("d", time.Minute, "for how `long` to make faults")
	seed := flags.Uint64("seed", 0, "the faults' `seed`: which come, when, and for how long; default: a random one")
	binary := flags.String("bin", "", "the `binary` under test; default: one built for the run")
	clock := flags.Bool("clock", true, "build the binary so that its clock can be stepped (this compiles the standard library)")
	rule := flags.String("broken", "", "build a server that breaks a `rule`: "+strings.Join(brokenRules(), ", "))
	only := flags.String("faults", "", "the `faults` to make, separated by commas; default: all")
	dir := flags.String("o", "", "keep logs and the history in `folder`; default: a temporary one, kept on a violation")
	mode := flags.String("mode", "faults", "`what` to do: faults; rolling, restarts under load; or storm, which drops many providers at once")
	root := flags.String("root", ".", "`folder` of the repository")
	built := flags.Bool("stepped", false, "the binary's clock can be stepped")
	_ = flags.Parse(args) // exits
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return 1, err
		}
	} else if err := os.MkdirAll(*dir, 0o755); err != nil {
		return 1, err
	}
	if *binary == "" {
		if *binary, err = compile(ctx, *root, *dir, *clock, *rule); err != nil {
			return 1, err
		}
		*built = *clock
	}
	switch *mode {
	case "rolling":
		return 0, rolling(ctx, w, *binary, *dir, 20, 1000)
	case "storm":
		return 0, storm(ctx, w, *binary, *dir, 2000, 200, 10*time.Second)
	}
	if !inside {
		again := []string{
			"-d", duration.String(), "-seed", fmt.Sprint(*seed), "-bin", *binary, "-o", *dir, "-faults", *only,
			fmt.Sprintf("-stepped=%v", *built),
		}
		status, ok, why := enter(ctx, w, again)
		if ok {
			return status, nil
		}
		fmt.Fprintf(w, "not run: needs root, or user namespaces: %s: %s\n", strings.Join([]string{FaultFull, FaultFullKill, FaultReadOnly, FaultCutClients, FaultCutProviders, FaultCutAll}, ", "), why)
	}
	o := options{duration: *duration, seed: *seed, binary: *binary, clock: *built, inside: inside, dir: *dir, out: w}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	fmt.Fprintf(w, "chaos       seed %d, %v; logs and history in %s\n", *seed, *duration, *dir)
	found, err := chaos(ctx, o)
	if err == nil && len(found) > 0 {
		err = errFound
	}
	return 0, err
}
