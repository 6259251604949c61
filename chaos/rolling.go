package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// rollingBridges share the load, so that what comes while the server is away is not more
// than a bridge may have in flight.
const rollingBridges = 20

func home(n int) string { return "home-" + strconv.Itoa(n%rollingBridges) }

// rolling stops the server and starts it again, many times under load, and returns an
// error if a client that comes again when it is told to saw one, or a call ran twice.
func rolling(ctx context.Context, out io.Writer, binary, dir string, restarts, perSecond int) error {
	s, err := serving(ctx, binary, dir)
	if err != nil {
		return err
	}
	defer s.close()
	ran := newCounter()
	provides, leave := context.WithCancel(ctx)
	var offering sync.WaitGroup
	defer offering.Wait()
	defer leave()
	var registered atomic.Int64
	for i := range rollingBridges {
		offering.Go(func() {
			_ = new(dropped).provide(provides, s.address, home(i), "p", ran.tool("count"), func() { registered.Add(1) })
		})
	}
	if !within(ctx, startWait, func() bool { return registered.Load() == rollingBridges }) {
		return errors.New("chaos: the providers could not register")
	}
	c := newCaller(s.address)
	defer c.http.CloseIdleConnections()
	var m meter
	loading, rest := context.WithCancel(ctx)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		m.load(loading, perSecond, func(n int) (int, error) { return c.call(ctx, home(n), "count", strconv.Itoa(n)) })
	}()
	begun := time.Now()
	for i := range restarts {
		sleep(ctx, time.Second)
		if !within(ctx, startWait, func() bool { return registered.Load() >= int64(rollingBridges*(i+1)) }) {
			err = errors.New("chaos: the providers did not come back")
			break
		}
		if err = s.stop(); err != nil {
			break
		}
		if err = s.start(ctx); err != nil {
			break
		}
	}
	sleep(ctx, time.Second)
	rest()
	<-loaded
	fmt.Fprintf(out, "rolling     %d restarts in %v at %d calls a second\n", restarts, time.Since(begun).Round(time.Millisecond), perSecond)
	fmt.Fprintf(out, "calls       %d, of which %d failed, and %d ran more than once; %d retries\n", len(m.took), len(m.failed), ran.again(), m.retries)
	fmt.Fprintf(out, "took        median %v, p99 %v, longest %v\n", m.at(0.5), m.at(0.99), m.at(1))
	if len(m.failed) > 0 || ran.again() > 0 {
		err = errors.Join(err, errFound, errors.Join(m.failed[:min(len(m.failed), 5)]...))
	}
	return err
}
