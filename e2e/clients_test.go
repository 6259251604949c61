package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpbridge/clients/provider"
)

// mcpClient is a client that others wrote, in the hands of a test.
type mcpClient interface {
	connect(ctx context.Context) (identity, error)
	list(ctx context.Context) ([]definition, error)
	// call returns the text of a result's first block.
	call(ctx context.Context, tool string, arguments map[string]any) (string, error)
	// listen asks for changes again, where the library leaves that to the
	// application.
	listen(ctx context.Context) error
	close() error
}

// identity is what a client learns of the bridge.
type identity struct{ Name, Version, Revision string }

// definition is what a client makes of a tool's definition.
type definition struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

// report is a progress notification as the client passes it on.
type report struct {
	Progress, Total float64
	Message         string
}

// exchange is one HTTP request of a client and the status of its answer.
type exchange struct {
	Method  string // of the JSON-RPC message, or of HTTP where there is none
	Session string // Mcp-Session-Id
	Status  int
}

// sightings is what happens to a client.
type sightings struct {
	progress chan report
	changed  chan struct{} // tools/list_changed
	ended    chan struct{} // its subscription ended
	told     chan note     // every other notification; see tour_test.go
	asked    chan note     // requests of the server

	mu        sync.Mutex
	exchanges []exchange
}

func newSightings() *sightings {
	return &sightings{
		progress: make(chan report, 100), changed: make(chan struct{}, 100), ended: make(chan struct{}, 100),
		told: make(chan note, 100), asked: make(chan note, 100),
	}
}

func (s *sightings) note(x exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanges = append(s.exchanges, x)
}

// take returns the exchanges since the last take.
func (s *sightings) take() []exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.exchanges
	s.exchanges = nil
	return all
}

// watched is a transport that notes a Go client's exchanges.
type watched struct {
	http.RoundTripper
	seen *sightings
}

// RoundTrip implements [http.RoundTripper].
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchange{Method: r.Method, Session: r.Header.Get("Mcp-Session-Id")}
	if r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			var message struct{ Method string }
			text, _ := io.ReadAll(body)
			if json.Unmarshal(text, &message) == nil && message.Method != "" {
				x.Method = message.Method
			}
		}
	}
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		x.Status = resp.StatusCode
		w.seen.note(x)
	}
	return resp, err
}

// watchedHTTP is an HTTP client of the test's own.
func watchedHTTP(t testing.TB, seen *sightings) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: watched{transport, seen}}
}

// How a client hears of changes once the server has been killed and started
// again.
const (
	byItself  = iota // its library opens the stream again
	whenAsked        // the application has to listen again
	never            // its library neither listens again nor lets the application
)

// library is a client library in one of its modes.
type library struct {
	revision string // the newest that it and the bridge speak
	hears    int    // changes after a restart
	client   func(t testing.TB, url string, seen *sightings) mcpClient
	needs    func() error // what must be installed first; may be nil
}

// hasSession tells whether the revision has sessions.
func (l library) hasSession() bool { return l.revision < "2026-07-28" }

var libraries = map[string]library{
	"go-sdk":                {"2026-07-28", never, goSDK(""), nil},
	"go-sdk 2025-11-25":     {"2025-11-25", byItself, goSDK("2025-11-25"), nil},
	"go-sdk 2025-06-18":     {"2025-06-18", byItself, goSDK("2025-06-18"), nil},
	"mcp-go":                {"2026-07-28", whenAsked, mcpGo(false), nil},
	"mcp-go legacy":         {"2025-11-25", byItself, mcpGo(true), nil},
	"typescript-sdk 1":      {"2025-11-25", byItself, script("sdk1.mjs"), packages},
	"typescript-sdk 2":      {"2025-11-25", byItself, script("client2.mjs", "legacy"), packages},
	"typescript-sdk 2 auto": {"2026-07-28", whenAsked, script("client2.mjs", "auto"), packages},
}

// greetSchema is one that every library shows whole. mcp-go drops "$schema".
const greetSchema = `{"type":"object",` +
	`"properties":{"name":{"type":"string","description":"Whom to greet.","examples":["Ærøskøbing"]}},"required":["name"],"additionalProperties":false}`

// greet greets; steps reports three steps of progress and ends once the test has
// seen them.
func greet(name string) provider.Tool {
	return provider.Tool{
		Name: name, Title: "Greeting", Description: "Greets somebody.", InputSchema: json.RawMessage(greetSchema),
		Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
			var in struct{ Name string }
			if err := call.Bind(&in); err != nil {
				return provider.Result{}, err
			}
			return provider.Text("Hello, " + in.Name + "!"), nil
		},
	}
}

func steps(seen <-chan struct{}) provider.Tool {
	return provider.Tool{
		Name: "steps", Description: "Takes three steps.",
		Handle: func(ctx context.Context, call *provider.Call) (provider.Result, error) {
			for i, message := range []string{"left", "right", "left again"} {
				call.Progress(float64(i+1), 3, message)
			}
			select {
			case <-seen:
				return provider.Text("arrived"), nil
			case <-ctx.Done():
				return provider.Result{}, context.Cause(ctx)
			}
		},
	}
}

func TestForeignClientsWorkAndOutliveAKill(t *testing.T) {
	for name, lib := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if lib.needs != nil {
				if err := lib.needs(); err != nil {
					t.Fatal(err)
				}
			}
			s := serve(t, "--open")
			j := &journey{t: t, server: s, seen: newSightings(), library: lib, arrived: make(chan struct{}, 1)}
			j.provider = s.provide("home", "", greet("greet"), steps(j.arrived))
			j.client = lib.client(t, s.mcpURL("home"), j.seen)
			j.connect()
			j.list("greet", "steps")
			j.greet()
			j.progress()
			j.change("greet", "steps", "wave")
			j.restart()
			j.changeAfterRestart()
			if err := j.client.close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// journey is what a client does and must see.
type journey struct {
	library
	t        *testing.T
	server   *server
	provider *provider.Provider
	client   mcpClient
	seen     *sightings
	arrived  chan struct{} // lets the tool steps end
	session  string        // Mcp-Session-Id; empty without sessions
}

func (j *journey) connect() {
	j.t.Helper()
	got, err := j.client.connect(patient(j.t))
	if want := (identity{"mcpbridge", version, j.revision}); err != nil || got != want {
		j.t.Fatalf("connected to %+v, %v; want %+v", got, err, want)
	}
	j.stream()
}

// stream waits until the client is told of changes.
func (j *journey) stream() {
	j.t.Helper()
	j.server.until("home", "the client's stream", func(h health) bool { return h.Streams == 1 })
}

// list checks that the client sees these tools, the first of which is greet.
func (j *journey) list(want ...string) {
	j.t.Helper()
	tools, err := j.client.list(patient(j.t))
	if err != nil {
		j.t.Fatalf("tools/list: %v", err)
	}
	var got []string
	for _, tool := range tools {
		got = append(got, tool.Name)
		if tool.Name != "greet" {
			continue
		}
		if tool.Title != "Greeting" || tool.Description != "Greets somebody." || canonical(j.t, tool.InputSchema) != canonical(j.t, []byte(greetSchema)) {
			j.t.Errorf("the client sees %+v with schema %s", tool, tool.InputSchema)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		j.t.Errorf("the client sees the tools %q, want %q", got, want)
	}
}

// find lists until the client sees a tool: without news of it, not before what it
// keeps of the last list has expired.
func (j *journey) find(tool string) {
	j.t.Helper()
	ctx := patient(j.t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		tools, err := j.client.list(ctx)
		if err != nil {
			j.t.Fatalf("tools/list: %v", err)
		}
		if slices.ContainsFunc(tools, func(d definition) bool { return d.Name == tool }) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			j.t.Fatalf("%v while waiting for the tool %q in %+v", context.Cause(ctx), tool, tools)
		}
	}
}

// canonical is JSON with its members in order.
func canonical(t testing.TB, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (j *journey) greet() {
	j.t.Helper()
	got, err := j.client.call(patient(j.t), "greet", map[string]any{"name": "Ærøskøbing"})
	if want := "Hello, Ærøskøbing!"; err != nil || got != want {
		j.t.Fatalf("call = %q, %v; want %q", got, err, want)
	}
}

// progress makes a call that ends only once its progress has arrived, so that
// none of it can have been kept back until the end.
func (j *journey) progress() {
	j.t.Helper()
	type ended struct {
		text string
		err  error
	}
	result := make(chan ended, 1)
	ctx := patient(j.t)
	go func() { // ends with the call, for whose result we wait
		text, err := j.client.call(ctx, "steps", nil)
		result <- ended{text, err}
	}()
	for _, want := range []report{{1, 3, "left"}, {2, 3, "right"}, {3, 3, "left again"}} {
		if got := await(j.t, j.seen.progress, "progress"); got != want {
			j.t.Errorf("progress %+v, want %+v", got, want)
		}
	}
	j.arrived <- struct{}{}
	if got := await(j.t, result, "the result"); got.err != nil || got.text != "arrived" {
		j.t.Errorf("call = %q, %v", got.text, got.err)
	}
}

// set makes these the provider's tools.
func (j *journey) set(names ...string) {
	j.t.Helper()
	var tools []provider.Tool
	for _, name := range names {
		if name == "steps" {
			tools = append(tools, steps(j.arrived))
		} else {
			tools = append(tools, greet(name))
		}
	}
	if _, err := j.provider.SetTools(patient(j.t), tools...); err != nil {
		j.t.Fatalf("SetTools: %v", err)
	}
}

// change makes these the provider's tools, and the client hears and sees it.
func (j *journey) change(names ...string) {
	j.t.Helper()
	j.set(names...)
	await(j.t, j.seen.changed, "tools/list_changed")
	j.list(names...)
}

// restart kills the server and starts it again. The client's next call works as if
// nothing had happened.
func (j *journey) restart() {
	j.t.Helper()
	for _, x := range j.seen.take() {
		if x.Method == "tools/call" {
			j.session = x.Session
		}
	}
	if (j.session != "") != j.hasSession() {
		j.t.Errorf("revision %s has the session %q", j.revision, j.session)
	}
	j.server.restart()
	j.server.until("home", "the provider's return", func(h health) bool { return len(h.Providers) == 1 && h.Providers[0].Connected })
	j.greet()
	j.list("greet", "steps", "wave")

	calls := 0
	for _, x := range j.seen.take() {
		switch {
		case x.Method == "initialize" || x.Method == "server/discover":
			j.t.Errorf("the client began anew: %+v", x)
		case x.Session != j.session || x.Status != http.StatusOK:
			j.t.Errorf("after the restart: %+v, want 200 for the session %q", x, j.session)
		case x.Method == "tools/call":
			calls++
		}
	}
	if calls != 1 {
		j.t.Errorf("the client needed %d calls", calls)
	}
}

// changeAfterRestart checks how the client hears of changes after a restart.
func (j *journey) changeAfterRestart() {
	j.t.Helper()
	switch j.hears {
	case whenAsked:
		await(j.t, j.seen.ended, "the end of the subscription")
		if err := j.client.listen(patient(j.t)); err != nil {
			j.t.Fatalf("listen: %v", err)
		}
	case never:
		j.set("greet", "steps", "wave", "bow")
		j.find("bow")
		if h := j.server.health("home"); h.Streams != 0 || len(j.seen.changed) != 0 {
			j.t.Errorf("%d streams and %d changes: the library has learnt to listen again", h.Streams, len(j.seen.changed))
		}
		return
	}
	j.stream()
	// What changed while nobody listened is no news: the client is told once at
	// most.
	for len(j.seen.changed) > 0 {
		<-j.seen.changed
	}
	j.change("greet", "steps", "wave", "bow")
	for _, x := range j.seen.take() {
		if x.Method == "initialize" || strings.HasPrefix(x.Method, "server/") || x.Session != j.session {
			j.t.Errorf("the client began anew: %+v", x)
		}
	}
}
