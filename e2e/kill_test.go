package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// How many providers register while the server is killed. A bridge knows at most
// 32 of them.
const (
	killBridges    = 5
	killPerBridge  = 10
	killAhead      = 3   // registrations that a provider sends before it waits
	killDefaultRun = 8   // rounds
	killMostAcks   = 600 // of a round, before the kill
)

// toolset is one registration: definitions by name, as they were sent.
type toolset map[string]string

// registrant is a provider that registers one set of tools after another.
type registrant struct {
	bridge, name string
	random       *rand.Rand
	serial       int

	listed toolset   // what the bridge listed last
	sent   []toolset // since then, in their order
	acked  int       // how many of sent were acknowledged
}

// next is a new set, different from every other. Its definitions have what a
// server could change that reads and writes them anew: white space, escapes, the
// order of members, members nobody knows, and numbers that no float64 holds.
func (r *registrant) next() toolset {
	r.serial++
	set := toolset{}
	for i := range r.random.IntN(5) {
		name := fmt.Sprintf("%s-%d", r.name, i)
		set[name] = fmt.Sprintf(`{"zz": 1.0 ,"description":"set %d \u00e6 æ \/ `+"\u2028"+` %s","name":"%s",`+
			`"inputSchema":{ "type":"object","x-big":%d9007199254740993,"properties":{"b":{},"a":{"type":["string","null"]}}},"_meta":{"a/b":[1e2,-0.0]}}`,
			r.serial, strings.Repeat("x", r.random.IntN(2000)), name, r.serial)
	}
	return set
}

func (r *registrant) message(id int, set toolset) []byte {
	tools := slices.Collect(maps.Values(set))
	return []byte(`{"type":"registerTools","replace":true,"id":` + strconv.Itoa(id) + `,"tools":[` + strings.Join(tools, ",") + `]}`)
}

// register registers until the connection is lost, which it must be: by the death
// of the server. acks counts acknowledgements.
func (r *registrant) register(ctx context.Context, s *server, acks *atomic.Int64) error {
	r.sent, r.acked = nil, 0
	ws, resp, err := websocket.Dial(ctx, s.socketURL(r.bridge), &websocket.DialOptions{HTTPClient: s.http})
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return lost(ctx, s, err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	hello := `{"type":"hello","protocol":1,"provider":"` + r.name + `"}`
	if err := ws.Write(ctx, websocket.MessageText, []byte(hello)); err != nil {
		return lost(ctx, s, err)
	}
	for greeted := false; ; {
		for greeted && len(r.sent) < r.acked+killAhead {
			set := r.next()
			r.sent = append(r.sent, set) // even if only a part of it gets out
			if err := ws.Write(ctx, websocket.MessageText, r.message(len(r.sent), set)); err != nil {
				break // what was acknowledged until then is still to be read
			}
		}
		_, text, err := ws.Read(ctx)
		if err != nil {
			return lost(ctx, s, err)
		}
		var m struct {
			Type     string
			ID       int
			Tools    []struct{ Name string }
			Rejected []json.RawMessage
		}
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%w in %s", err, text)
		}
		switch m.Type {
		case "welcome":
			greeted = true
		case "registered":
			if m.ID != r.acked+1 || len(m.Tools) != len(r.sent[r.acked]) || len(m.Rejected) > 0 {
				return fmt.Errorf("%s got %s, want set %d of %d tools", r.name, text, r.acked+1, len(r.sent[r.acked]))
			}
			r.acked++
			acks.Add(1)
		case "ping":
		default:
			return fmt.Errorf("%s got %s", r.name, text)
		}
	}
}

// lost is nil if a connection was lost because the server is dead.
func lost(ctx context.Context, s *server, err error) error {
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), err)
	}
}

// check compares what the bridge lists of the provider with what it may list: the
// set that was acknowledged last, or one that was sent later.
func (r *registrant) check(t *testing.T, listed toolset) {
	t.Helper()
	may := r.sent[r.acked:]
	last := r.listed
	if r.acked > 0 {
		last = r.sent[r.acked-1]
	}
	for _, set := range append([]toolset{last}, may...) {
		if maps.Equal(set, listed) {
			r.listed = listed
			return
		}
	}
	t.Errorf("bridge %s lists of %s\n%v\nacknowledged last (%d of %d):\n%v", r.bridge, r.name, listed, r.acked, len(r.sent), last)
}

func TestAcknowledgedRegistrationsSurviveKills(t *testing.T) {
	rounds := killDefaultRun
	if text := os.Getenv("MCPBRIDGE_E2E_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("MCPBRIDGE_E2E_ROUNDS is %q, want a number of rounds", text)
		}
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var all []*registrant
	for b := range killBridges {
		for p := range killPerBridge {
			all = append(all, &registrant{
				bridge: fmt.Sprintf("bridge-%d", b), name: fmt.Sprintf("p%d-%d", b, p),
				random: rand.New(rand.NewPCG(seed, uint64(len(all)+1))), listed: toolset{},
			})
		}
	}
	s := serve(t, "--open")
	acknowledged, later, unacknowledged := 0, 0, 0
	for round := range rounds {
		// The moment: so many acknowledgements, and a time within which the disk
		// writes a few more.
		enough := int64(0)
		if random.IntN(4) > 0 {
			enough = random.Int64N(killMostAcks)
		}
		killRound(t, s, all, enough, time.Duration(random.Int64N(int64(12*time.Millisecond))))
		if t.Failed() {
			t.Fatalf("round %d, seed %d", round+1, seed)
		}
		s.restart()
		listed := listAll(s)
		for _, r := range all {
			r.check(t, listed[r.name])
			acknowledged += r.acked
			unacknowledged += len(r.sent) - r.acked
			if n := len(r.sent) - r.acked; n > 0 && slices.ContainsFunc(r.sent[r.acked:], func(set toolset) bool { return len(set) > 0 && maps.Equal(set, r.listed) }) {
				later++
			}
		}
		if t.Failed() {
			t.Fatalf("round %d, seed %d", round+1, seed)
		}
	}
	s.stop()
	t.Logf("%d rounds: %d registrations acknowledged, none lost; of %d more that were sent, %d are listed", rounds, acknowledged, unacknowledged, later)
}

// killRound lets every provider register, and kills the server in the middle.
func killRound(t *testing.T, s *server, all []*registrant, enough int64, more time.Duration) {
	t.Helper()
	ctx := patient(t)
	var acks atomic.Int64
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			if err := r.register(ctx, s, &acks); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for acks.Load() < enough && ctx.Err() == nil && !t.Failed() {
		<-tick.C
	}
	select {
	case <-time.After(more):
	case <-s.ended:
		t.Errorf("the server ended by itself:\n%s", s.stderr)
	}
	s.kill()
	wg.Wait()
}

// listAll is what every bridge lists, by provider.
func listAll(s *server) map[string]toolset {
	s.t.Helper()
	all := map[string]toolset{}
	for b := range killBridges {
		for _, raw := range s.tools(fmt.Sprintf("bridge-%d", b)) {
			var tool struct{ Name string }
			if err := json.Unmarshal(raw, &tool); err != nil {
				s.t.Fatal(err)
			}
			name := tool.Name[:strings.LastIndexByte(tool.Name, '-')]
			if all[name] == nil {
				all[name] = toolset{}
			}
			if _, twice := all[name][tool.Name]; twice {
				s.t.Errorf("%s is listed twice", tool.Name)
			}
			all[name][tool.Name] = string(raw)
		}
	}
	return all
}

// A provider that comes back after a kill is welcome, and its set is what it was.
func TestKilledServerKnowsItsProvidersAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	s.provide("home", "", greet("greet"), greet("wave"))
	before := s.tools("home")
	s.restart()
	if after := s.tools("home"); fmt.Sprintf("%s", after) != fmt.Sprintf("%s", before) {
		t.Errorf("before the kill\n%s\nafter it\n%s", before, after)
	}
	s.until("home", "the provider's return", func(h health) bool { return len(h.Providers) == 1 && h.Providers[0].Connected })
	a := s.do(http.MethodPost, "/b/home/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wave","arguments":{"name":"you"}}}`)
	if a.status != http.StatusOK || !strings.Contains(a.body, "Hello, you!") {
		t.Errorf("call: %d %s", a.status, a.body)
	}
}

// A provider still works on a call when the server is killed. What it answers
// later is no other call's answer, whatever the next process calls its calls.
func TestLateResultIsNoLaterCallsAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	p := dial(s, "home", "")
	p.send(`{"type":"registerTools","tools":[{"name":"hold","inputSchema":{"type":"object"}}]}`)
	p.want("registered")
	first := start(t, "call", s.mcpURL("home"), "hold")
	late := p.want("callTool").CallID
	resume := p.resume
	s.restart()
	first.outcome().want(t, 1, ``, `mcpbridge: [^\n]+\n`)

	p = dial(s, "home", resume)
	second := start(t, "call", s.mcpURL("home"), "hold")
	id := p.want("callTool").CallID
	if id == late {
		t.Errorf("two processes have the call ID %q", id)
	}
	p.result(late, "first")
	p.result(id, "second")
	second.outcome().want(t, 0, `second\n`, ``)
	_ = p.ws.CloseNow()
	s.stop()
}

// socket is a provider's connection in the hands of a test.
type socket struct {
	t      testing.TB
	ws     *websocket.Conn
	resume string // of the welcome
}

// dial connects a provider, which says hello with the resume token of an earlier
// connection, if there was one.
func dial(s *server, bridge, resume string) *socket {
	s.t.Helper()
	ws, resp, err := websocket.Dial(patient(s.t), s.socketURL(bridge), &websocket.DialOptions{HTTPClient: s.http})
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = ws.CloseNow() })
	p := &socket{t: s.t, ws: ws}
	p.send(`{"type":"hello","protocol":1,"provider":"raw","resume":"` + resume + `"}`)
	welcome := p.want("welcome")
	if welcome.Resumed != (resume != "") {
		s.t.Errorf("resumed %v with the token %q", welcome.Resumed, resume)
	}
	p.resume = welcome.Resume
	return p
}

func (p *socket) send(message string) {
	p.t.Helper()
	if err := p.ws.Write(patient(p.t), websocket.MessageText, []byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *socket) result(call, text string) {
	p.t.Helper()
	p.send(`{"type":"toolResult","callId":"` + call + `","result":{"content":[{"type":"text","text":"` + text + `"}]}}`)
}

// frame is what tests read of the bridge's messages.
type frame struct {
	Type, CallID, Resume string
	Resumed              bool
}

// want reads the next message but pings, which must be of a type.
func (p *socket) want(kind string) (f frame) {
	p.t.Helper()
	for f.Type == "" || f.Type == "ping" {
		_, text, err := p.ws.Read(patient(p.t))
		if err != nil {
			p.t.Fatal(err)
		}
		if err := json.Unmarshal(text, &f); err != nil {
			p.t.Fatalf("%v in %s", err, text)
		}
	}
	if f.Type != kind {
		p.t.Fatalf("got %+v, want a message of type %s", f, kind)
	}
	return f
}
