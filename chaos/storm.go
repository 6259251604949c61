package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stormRooms is how many providers of a storm share a bridge.
const stormRooms = 10

// storm drops the connections of many providers at once. Each has to register again and
// answer; nobody is told that tools changed, for none has; calls on another bridge are
// timed before and meanwhile.
func storm(ctx context.Context, out io.Writer, binary, dir string, providers, perSecond int, quietFor time.Duration) error {
	s, err := serving(ctx, binary, dir)
	if err != nil {
		return err
	}
	defer s.close()
	c := newCaller(s.address)
	defer c.http.CloseIdleConnections()
	running, leave := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer leave()

	ran := newCounter()
	var registered atomic.Int64
	offer := func(d *dropped, bridge, name, tool string) {
		wg.Go(func() { _ = d.provide(running, s.address, bridge, name, ran.tool(tool), func() { registered.Add(1) }) })
	}
	offer(new(dropped), "victim", "p", "t")
	all := make([]*dropped, providers)
	for i := range all {
		all[i] = new(dropped)
		offer(all[i], room(i), seat(i), tool(i))
	}
	until := func(n int64) error {
		if !within(ctx, time.Minute, func() bool { return registered.Load() >= n }) {
			return fmt.Errorf("chaos: %d of %d registrations after a minute", registered.Load(), n)
		}
		return nil
	}
	if err := until(int64(providers) + 1); err != nil {
		return err
	}
	var told atomic.Int64
	for i := 0; i < providers; i += stormRooms {
		if err := c.listen(running, &wg, room(i), &told); err != nil {
			return err
		}
	}

	victim := func(n int) (int, error) {
		return c.call(ctx, "victim", "t", "v"+strconv.Itoa(n)+"-"+strconv.FormatInt(registered.Load(), 36))
	}
	var quiet, stormy meter
	during(ctx, quietFor, func(quit context.Context) { quiet.load(quit, perSecond, victim) })

	calm, over := context.WithCancel(ctx)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		stormy.load(calm, perSecond, victim)
	}()
	begun := time.Now()
	for _, d := range all {
		d.drop()
	}
	err = until(2*int64(providers) + 1)
	back := time.Since(begun)
	var answered meter
	for i := range all {
		retries, callErr := c.call(ctx, room(i), tool(i), "after-"+strconv.Itoa(i))
		answered.note(time.Since(begun), retries, callErr)
	}
	answering := time.Since(begun)
	sleep(ctx, time.Second) // for what might still be told
	over()
	<-loaded
	fmt.Fprintf(out, "storm       %d providers on %d bridges dropped at once\n", providers, (providers+stormRooms-1)/stormRooms)
	fmt.Fprintf(out, "back        all had registered again after %v, each had answered a call after %v; %d calls failed\n", back.Round(time.Millisecond), answering.Round(time.Millisecond), len(answered.failed))
	fmt.Fprintf(out, "told        %d list_changed, though no tool changed\n", told.Load())
	fmt.Fprintf(out, "victim      %d calls a second on another bridge; p99 quiet %v, during the storm %v, ratio %.2f; %d calls failed\n",
		perSecond, quiet.at(0.99), stormy.at(0.99), float64(stormy.at(0.99))/float64(quiet.at(0.99)), len(quiet.failed)+len(stormy.failed))
	failed := errors.Join(errors.Join(answered.failed...), errors.Join(quiet.failed...), errors.Join(stormy.failed...))
	if failed != nil || told.Load() > 0 {
		err = errors.Join(err, errFound, failed)
	}
	return err
}

func room(i int) string { return "storm-" + strconv.Itoa(i/stormRooms) }
func seat(i int) string { return fmt.Sprintf("p%d", i%stormRooms) }

// tool is how a provider's tool is exposed.
func tool(i int) string { return "t" + strings.TrimPrefix(seat(i), "p") }

// during lets something run for a time.
func during(ctx context.Context, d time.Duration, f func(quit context.Context)) {
	quit, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	f(quit)
}

// listen opens the stream of an MCP session on a bridge, and counts what it is told.
func (c *caller) listen(ctx context.Context, wg *sync.WaitGroup, bridge string, told *atomic.Int64) error {
	url := "http://" + c.address + "/b/" + bridge + "/mcp"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"storm","version":"1"}}}`))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if r, err = http.NewRequestWithContext(ctx, http.MethodGet, url, nil); err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id"))
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	stream := &http.Client{Transport: c.http.Transport} // without the timeout of a call
	resp, err = stream.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return fmt.Errorf("chaos: a stream was answered %d", resp.StatusCode)
	}
	wg.Go(func() {
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if strings.Contains(lines.Text(), "list_changed") {
				told.Add(1)
			}
		}
	})
	return nil
}
