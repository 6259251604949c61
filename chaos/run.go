package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How many peers a run has. Each of the bridges has two providers, one of the SDK
// and one that writes frames; the bridge "order" has a provider and a client of its
// own.
const (
	bridges          = 4
	clientsPerBridge = 6 // half of each era
	orderBridge      = "order"
)

// run is one run of the harness.
type run struct {
	h      *History
	world  *world
	server *Server
	random *rand.Rand // of the faults; one goroutine uses it
	clock  bool       // the server's clock can be stepped
	say    func(format string, args ...any)

	fills   int            // how often the disk was full
	noticed bool           // the server said that it could not write, at least once
	made    map[string]int // faults
}

// options are what a run is told.
type options struct {
	duration time.Duration
	seed     uint64
	binary   string
	clock    bool
	inside   bool
	only     []string // faults to make; all for none
	dir      string   // for logs, the store and the history
	out      io.Writer
}

// chaos makes faults under load for a while, and checks what the peers saw. It
// returns the violations; an error is the harness's own.
func chaos(ctx context.Context, o options) (found []Violation, err error) {
	w, err := arrange(ctx, o.dir, o.inside)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	f, err := os.Create(filepath.Join(o.dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := NewHistory(f)
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(h, o.binary, address, filepath.Join(w.dir, "data"), filepath.Join(o.dir, "server.log"), serverArgs...)
	if err != nil {
		return nil, err
	}
	defer s.close()
	r := &run{
		h: h, world: w, server: s, random: rand.New(rand.NewPCG(o.seed, 0)), clock: o.clock, made: map[string]int{},
		say: func(format string, args ...any) { fmt.Fprintf(o.out, format+"\n", args...) },
	}
	list, without := r.faults()
	for _, what := range without {
		r.say("not run: %s", what)
	}
	if len(o.only) > 0 {
		list = slices.DeleteFunc(list, func(f fault) bool { return !slices.Contains(o.only, f.name) })
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	peers := newPeers(r, o.seed)
	if err := peers.start(ctx); err != nil {
		return nil, err
	}
	trouble := r.trouble(ctx, list, o.duration)
	peers.stop()
	if trouble == nil {
		trouble = s.stop()
	}
	if trouble != nil {
		h.Add(Event{Kind: Broke, Text: trouble.Error()})
	}
	if text := s.crashed(); text != "" {
		h.Add(Event{Kind: Broke, Text: "the server crashed: " + text})
	}
	for _, err := range peers.failed() {
		h.Add(Event{Kind: Broke, Text: err.Error()})
	}
	events, err := h.Events()
	if err != nil {
		return nil, err
	}
	found = Check(events)
	r.report(events, found)
	return found, nil
}

// trouble makes faults until d has passed, with time between them in which all must
// go well. An error is what the server should not have done.
func (r *run) trouble(ctx context.Context, list []fault, d time.Duration) error {
	total := 0
	for _, f := range list {
		total += f.weight
	}
	end := time.Now().Add(d)
	// The first fault comes soon, for a short run to have some.
	for pause := time.Second; total > 0 && time.Now().Add(pause).Before(end) && sleep(ctx, pause); pause = r.between(500*time.Millisecond, min(12*time.Second, d/5)) {
		at := r.random.IntN(total)
		i := 0
		for at >= list[i].weight {
			at -= list[i].weight
			i++
		}
		r.made[list[i].name]++
		r.h.Add(Event{Kind: FaultBegin, Fault: list[i].name})
		err := list[i].make(ctx, r)
		r.h.Add(Event{Kind: FaultEnd, Fault: list[i].name})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", list[i].name, err)
		}
	}
	sleep(ctx, min(max(0, time.Until(end)), time.Minute))
	return nil
}

// report says what happened.
func (r *run) report(events []Event, found []Violation) {
	outcomes, kinds := map[Outcome]int{}, map[Kind]int{}
	for _, e := range events {
		kinds[e.Kind]++
		if e.Kind == CallEnd {
			outcomes[e.Outcome]++
		}
	}
	r.say("faults      %s (server started %d times)", tally(r.made), r.server.starts)
	r.say("calls       %d: %s", kinds[CallEnd], tally(outcomes))
	r.say("executions  %d", kinds[Exec])
	r.say("sets        %d registered, %d acknowledged; %d lists", kinds[RegBegin], kinds[RegAcked], kinds[Listed])
	r.say("connections %d of providers", connections.Load())
	if r.made[FaultFull] > 0 {
		r.say("disk full   noticed by /readyz: %v", r.noticed)
	}
	const most = 20
	for _, v := range found[:min(len(found), most)] {
		r.say("VIOLATION   %v", v)
	}
	if len(found) > most {
		r.say("... and %d more", len(found)-most)
	}
	r.say("violations  %d", len(found))
}

// tally is counts, in the order of their names.
func tally[K ~string](counts map[K]int) string {
	var all []string
	for k, n := range counts {
		all = append(all, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// peers are the clients and providers of a run.
type peers struct {
	r         *run
	clients   []*Client
	providers []func(context.Context) error
	names     map[string][]string // of providers, by bridge

	leave  context.CancelFunc // for providers
	quit   context.CancelFunc // for clients
	wg, cg sync.WaitGroup     // providers, clients

	mu   sync.Mutex
	errs []error
}

func newPeers(r *run, seed uint64) *peers {
	p := &peers{r: r, names: map[string][]string{}}
	h, base := r.h, r.server.url()
	random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(len(p.providers)+1))) }
	for b := range bridges {
		bridge := "bridge" + strconv.Itoa(b)
		sdk := &sdkProvider{line: provideFrom(h, bridge, "sdk", r.world.from(providerAddress)), random: random(), every: 2 * time.Second, drop: 20 * time.Second}
		p.providers = append(p.providers, func(ctx context.Context) error { return sdk.run(ctx, base) })
		raw := &rawProvider{line: provideFrom(h, bridge, "raw", r.world.from(providerAddress)), random: random(), every: time.Second, drop: 8 * time.Second}
		p.providers = append(p.providers, func(ctx context.Context) error { return raw.run(ctx, base) })
		p.names[bridge] = []string{"sdk", "raw"}
		for i := range clientsPerBridge {
			era := []string{sessionEra, modernEra}[i%2]
			p.clients = append(p.clients, newClient(h, base, bridge, fmt.Sprintf("c%d.%d", b, i), era, r.world.from(clientAddress)))
		}
	}
	return p
}

// start connects everybody, and returns once every provider was acknowledged.
func (p *peers) start(ctx context.Context) error {
	work, quit := context.WithCancel(ctx)
	stay, leave := context.WithCancel(ctx)
	p.quit, p.leave = quit, leave
	for _, run := range p.providers {
		p.wg.Go(func() { p.note(run(stay)) })
	}
	if err := p.offered(ctx); err != nil {
		p.stop()
		return err
	}
	for i, c := range p.clients {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		if i%clientsPerBridge == 0 {
			p.cg.Go(func() { p.lists(work, c) })
		} else {
			p.cg.Go(func() { p.calls(work, c, random) })
		}
	}
	p.cg.Go(func() { p.note(newOrderly(p.r).run(work)) })
	return nil
}

// offered waits until the tools of every provider are listed.
func (p *peers) offered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for bridge, names := range p.names {
		c := newClient(NewHistory(nil), p.r.server.url(), bridge, "first", modernEra, "")
		for {
			var page struct{ Tools []definition }
			r := c.ask(ctx, "tools/list", "", "")
			if r.outcome == Result && json.Unmarshal(r.result, &page) == nil && len(seen(page.Tools)) == len(names) {
				break
			}
			if !sleep(ctx, 20*time.Millisecond) {
				return fmt.Errorf("chaos: the tools of bridge %s are not all listed: %v", bridge, page.Tools)
			}
		}
	}
	return nil
}

// calls makes one call after the other until ctx ends; the last is answered.
func (p *peers) calls(ctx context.Context, c *Client, random *rand.Rand) {
	whole := context.WithoutCancel(ctx)
	if !c.Start(whole) {
		return
	}
	names := p.names[c.Bridge]
	for sleep(ctx, time.Duration(random.IntN(60))*time.Millisecond) {
		ms := random.IntN(10)
		if random.IntN(12) == 0 {
			ms = random.IntN(2500)
		}
		c.Call(whole, callTool(names[random.IntN(len(names))]), ms)
	}
}

func (p *peers) lists(ctx context.Context, c *Client) {
	whole := context.WithoutCancel(ctx)
	for more := c.Start(whole); more; more = sleep(ctx, 50*time.Millisecond) {
		c.List(whole)
	}
	c.List(whole) // what is there at the end
}

// stop ends the clients, once their last calls have ended, and then the providers.
func (p *peers) stop() {
	p.quit()
	p.cg.Wait()
	p.leave()
	p.wg.Wait()
	for _, c := range p.clients {
		c.http.CloseIdleConnections()
	}
}

// note keeps what a peer should not have seen.
func (p *peers) note(err error) {
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
	}
}

func (p *peers) failed() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs
}

// freeAddress is a loopback address whose port was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	for range 100 {
		// Below what systems give to connections and to port 0.
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000))))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", errors.New("chaos: no port is free")
}

// inFlight is how many calls a bridge has; -1 when it does not say.
func inFlight(ctx context.Context, client *http.Client, base, bridge string) int {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/b/"+bridge+"/health", nil)
	if err != nil {
		return -1
	}
	resp, err := client.Do(q)
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	var v struct{ CallsInFlight int }
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&v) != nil {
		return -1
	}
	return v.CallsInFlight
}
