package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	official "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/session"
)

// whole is an event with all its fields.
type whole struct{ id, data, retry string }

// nextWhole returns the next event, also one without data.
func (e *events) nextWhole() (w whole, err error) {
	for begun := false; ; {
		line, err := e.in.ReadString('\n')
		if err != nil {
			return w, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			w.id, begun = value, true
		case "data":
			w.data, begun = value, true
		case "retry":
			w.retry = value
		case "":
			if line == "" && begun {
				return w, nil
			}
		}
	}
}

func (e *events) wantWhole(substring string) whole {
	e.t.Helper()
	w, err := e.nextWhole()
	if err != nil || !strings.Contains(w.data, substring) {
		e.t.Fatalf("event %+v, %v; want one with %q", w, err, substring)
	}
	return w
}

func (e *events) wantEnd() {
	e.t.Helper()
	if w, err := e.nextWhole(); !errors.Is(err, io.EOF) {
		e.t.Errorf("the stream goes on with %+v, %v", w, err)
	}
}

// resume opens a stream from after an event.
func (w *world) resume(id string, headers ...string) *events {
	w.t.Helper()
	return w.stream("GET", w.mcpURL("b"), "", append([]string{"Last-Event-ID", id}, headers...)...)
}

func progressFrame(call string, n int) string {
	return fmt.Sprintf(`{"type":"progress","callId":%q,"progress":%d}`, call, n)
}

// begin starts a call with progress whose stream is open, and returns both ends.
func (w *world) beginStream(p *peer, id string, headers ...string) (*events, frame) {
	w.t.Helper()
	calls := make(chan frame, 1)
	go func() {
		f, err := p.tryNext(w.t.Context())
		if err == nil {
			p.send(progressFrame(f.CallID, 1))
		}
		calls <- f
	}()
	e := w.stream("POST", w.mcpURL("b"), progressCall(id, `"t"`), headers...)
	return e, <-calls
}

func TestBrokenStreamIsResumedWithEachEventOnce(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26"} {
		t.Run(version, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			headers := w.initializeAs("b", version, "{}")
			other := w.stream("GET", w.mcpURL("b"), "", headers...) // must see nothing of it
			e, f := w.beginStream(p, "7", headers...)
			sent, seen, last := 1, 0, ""
			read := func() {
				ev, err := e.nextWhole()
				if err != nil {
					t.Fatal(err)
				}
				if ev.id == "" {
					t.Fatalf("event without an id: %+v", ev)
				}
				last = ev.id
				if ev.data == "" {
					return
				}
				seen++
				if !strings.Contains(ev.data, fmt.Sprintf(`"progress":%d}`, seen)) {
					t.Fatalf("event %d is %+v", seen, ev)
				}
			}
			send := func() {
				for range random.IntN(4) {
					sent++
					p.send(progressFrame(f.CallID, sent))
				}
			}
			if version == "2025-11-25" {
				if ev, err := e.nextWhole(); err != nil || ev.data != "" || ev.retry != "1000" || ev.id == "" {
					t.Fatalf("the first event is %+v, %v", ev, err)
				}
			}
			read()
			for range 500 {
				send()
				for n := random.IntN(sent - seen + 1); n > 0; n-- {
					read()
				}
				if seen < sent { // within an event
					_, _ = io.CopyN(io.Discard, e.in, random.Int64N(30))
				}
				e.close()
				send()
				e = w.resume(last, headers...)
			}
			p.result(f.CallID, done)
			for seen < sent {
				read()
			}
			result := e.wantWhole(`{"jsonrpc":"2.0","id":7,"result":` + done + `}`)
			if seen != sent || result.id == "" {
				t.Errorf("%d of %d events; the result is %+v", seen, sent, result)
			}
			e.wantEnd()
			// After the end: the result again, and nothing after it.
			w.resume(last, headers...).wantWhole(`"result":` + done)
			w.resume(result.id, headers...).wantEnd()
			if n := other.in.Buffered(); n > 60 {
				t.Errorf("the session's own stream has %d bytes", n)
			}
			other.close()
		})
	}
}

func TestEachMessageIsOnOneStream(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	e, f := w.beginStream(p, "1", headers...)
	prime := e.wantWhole("")
	e.wantWhole(`"progress":1}`)
	taken := w.resume(prime.id, headers...) // while the first response is still there
	taken.wantWhole(`"progress":1}`)
	get := w.stream("GET", w.mcpURL("b"), "", headers...)
	if ev := get.wantWhole(""); ev.data != "" || ev.id == "" || ev.id == prime.id {
		t.Errorf("the session's own stream begins with %+v", ev)
	}
	p.send(progressFrame(f.CallID, 2))
	taken.wantWhole(`"progress":2}`)
	q := w.provider("b", "q", "")
	q.register(tool("z"))
	get.wantWhole("list_changed")
	p.result(f.CallID, done)
	taken.wantWhole(`"result":` + done)
	taken.wantEnd()
	e.wantEnd()
}

// TestAnswerIsKeptWhileItIsWritten: a call's stream that is not yet taken by its client
// is not the first to make room for others of the session.
func TestAnswerIsKeptWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		headers := w.initialize("b")
		e, f := w.beginStream(p, "1", headers...)
		prime := e.wantWhole("")
		e.wantWhole(`"progress":1}`)
		long := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 100_000) + `"}]}`
		p.result(f.CallID, long) // which the client does not read
		synctest.Wait()
		for n := range 20 {
			other, f := w.beginStream(p, fmt.Sprint(n+2), headers...)
			other.wantWhole("")
			other.wantWhole(`"progress":1}`)
			p.result(f.CallID, done)
			other.wantWhole(`"result":` + done)
			other.wantEnd()
		}
		e.close()
		e = w.resume(prime.id, headers...)
		e.wantWhole(`"progress":1}`)
		e.wantWhole(`"result":` + long)
		w.end()
	})
}

func TestGetStreamIsResumed(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	e := w.stream("GET", w.mcpURL("b"), "", headers...)
	prime := e.wantWhole("")
	p.register(tool("a2"))
	first := e.wantWhole("tools/list_changed")
	e.close()
	e = w.resume(prime.id, headers...) // as if the first event had been lost
	if again := e.wantWhole(""); again.data != "" || again.id != prime.id {
		t.Errorf("it begins with %+v", again)
	}
	if ev := e.wantWhole("tools/list_changed"); ev.id != first.id {
		t.Errorf("event %+v, want %+v", ev, first)
	}
	p.register(tool("a3"))
	second := e.wantWhole("tools/list_changed")
	if second.id == first.id {
		t.Errorf("two events have the id %s", first.id)
	}
	newer := w.resume(second.id, headers...) // replaces the other
	for {
		ev, err := e.nextWhole()
		if errors.Is(err, io.EOF) {
			break
		}
		if !strings.Contains(ev.data, "list_changed") { // a change may be told twice, never not at all
			t.Fatalf("event %+v, %v", ev, err)
		}
	}
	newer.wantWhole("")
	p.register(tool("a4"))
	newer.wantWhole("tools/list_changed")
	newer.close()

	// The next process does not have the stream: the client may have missed anything.
	w.restart()
	e = w.resume(second.id, headers...)
	e.wantWhole("")
	e.wantWhole("tools/list_changed")
}

func TestStreamThatIsNotKeptIsToldAsTheCallsError(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	e, _ := w.beginStream(p, `"x\""`, headers...)
	prime := e.wantWhole("")
	w.restart()
	e = w.resume(prime.id, headers...)
	e.want(`{"jsonrpc":"2.0","id":"x\"","error":{"code":-32603,"message":"the answer's stream is not kept any more; the outcome is unknown"}}`)
	e.wantEnd()
	if a := w.do("GET", w.mcpURL("b"), "", append([]string{"Last-Event-ID", "aaa..3"}, headers...)...); a.status != 400 || !strings.Contains(a.body, "not kept") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, garbage := range []string{"x", "a", ".", "a.", "a.x", "g.1", "aaa.%%%.1x"} {
		w.resume(garbage, headers...).close() // as a stream of no request
	}
	if a := w.do("GET", w.mcpURL("b"), "", "Last-Event-ID", prime.id, "Mcp-Session-Id", "x"); a.status != 404 {
		t.Errorf("another session: %d", a.status)
	}
	// Another session's event is not replayed.
	p = w.provider("b", "p", "")
	p.register(tool("a"))
	e, f := w.beginStream(p, "1", headers...)
	prime = e.wantWhole("")
	w.resume(prime.id, w.initialize("b")...).want(`"id":1,"error"`)
	p.result(f.CallID, done)
	e.want("progress")
	e.want(done)
}

func TestClientIsAskedAcrossABreak(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initializeAs("b", "2025-11-25", `{"elicitation":{}}`)
	e, f := w.beginStream(p, "1", headers...)
	prime := e.wantWhole("")
	e.close()
	p.result(f.CallID, askingResult)
	e = w.resume(prime.id, headers...)
	e.wantWhole("progress")
	asked := e.wantWhole("elicitation/create")
	var request struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(asked.data), &request); err != nil {
		t.Fatal(err)
	}
	e.close()
	if a := w.post("b", `{"jsonrpc":"2.0","id":`+string(request.ID)+`,"result":{"action":"decline"}}`, headers...); a.status != 202 {
		t.Errorf("%d", a.status)
	}
	p.result(p.want("callTool").CallID, done)
	e = w.resume(asked.id, headers...)
	e.wantWhole(`"id":1,"result":` + done)
	e.wantEnd()
}

func TestReplayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		headers := w.initialize("b")
		e, f := w.beginStream(p, "1", headers...)
		prime := e.wantWhole("")
		e.close()
		for n := range 1000 {
			p.send(progressFrame(f.CallID, n+2))
		}
		large := `{"content":[],"x":"` + strings.Repeat("x", 2<<20) + `"}`
		p.result(f.CallID, large)
		synctest.Wait()
		// The newest is kept whatever its size; it leaves no room for others.
		e = w.resume(prime.id, headers...)
		result := e.wantWhole(`"result":` + large[:20])
		e.wantEnd()
		// Another, whose result is small: the newest 256 events.
		e, f = w.beginStream(p, "2", headers...)
		prime = e.wantWhole("")
		e.close()
		for n := range 1000 {
			p.send(progressFrame(f.CallID, n+2))
		}
		p.result(f.CallID, done)
		synctest.Wait()
		e = w.resume(prime.id, headers...)
		for n := range 255 {
			e.wantWhole(fmt.Sprintf(`"progress":%d}`, 1001-254+n))
		}
		e.wantWhole(done)
		e.wantEnd()
		// For five minutes.
		time.Sleep(4*time.Minute + 59*time.Second)
		e = w.resume(strings.TrimSuffix(result.id, ".1002")+".0", headers...)
		e.wantWhole(`"id":1,"result"`)
		time.Sleep(time.Second)
		w.resume(prime.id, headers...).want(`"id":2,"error":{"code":-32603`)
		// Sixteen streams of a session: one more has no ids, and works.
		_ = p.ws.CloseNow()
		p = w.provider("b", "p", "")
		p.register(tool("a"))
		reading := make(chan struct{})
		go func() {
			defer close(reading)
			for range 17 {
				if f, err := p.tryNext(context.Background()); err == nil {
					p.send(progressFrame(f.CallID, 1))
				}
			}
		}()
		for n := range 17 {
			e := w.stream("POST", w.mcpURL("b"), progressCall(fmt.Sprint(n), `"t"`), headers...)
			if ev := e.wantWhole(""); (ev.id != "") != (n < 16) {
				t.Errorf("stream %d begins with %+v", n, ev)
			}
		}
		<-reading
		_ = p.ws.CloseNow()
		w.end()
	})
}

// TestReplayOfAllSessionsIsBounded: together they keep 64 MiB; those that ended first go
// first.
func TestReplayOfAllSessionsIsBounded(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	large := `{"content":[],"x":"` + strings.Repeat("x", 4<<20) + `"}`
	var headers [20][]string
	var primes [20]string
	for n := range headers {
		headers[n] = w.initialize("b")
		e, f := w.beginStream(p, "1", headers[n]...)
		primes[n] = e.wantWhole("").id
		p.result(f.CallID, large)
		e.wantWhole("progress")
		e.wantWhole("xxx")
		e.wantEnd()
	}
	w.resume(primes[0], headers[0]...).want(`"id":1,"error":{"code":-32603`)
	e := w.resume(primes[19], headers[19]...)
	e.wantWhole("xxx")
	e.wantEnd()
}

func TestDeletedSessionsStreamsAreNotResumed(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	one, f := w.beginStream(p, "1", headers...)
	prime := one.wantWhole("")
	two, g := w.beginStream(p, "2", headers...)
	taken := w.resume(prime.id, headers...)
	taken.wantWhole("progress")
	w.do("DELETE", w.mcpURL("b"), "", headers...)
	taken.wantEnd()
	if a := w.do("GET", w.mcpURL("b"), "", append([]string{"Last-Event-ID", prime.id}, headers...)...); a.status != 404 {
		t.Errorf("%d", a.status)
	}
	p.result(f.CallID, done)
	p.result(g.CallID, done) // a call's own response goes on to its end
	two.wantWhole("")
	two.wantWhole("progress")
	two.wantWhole(done)
}

func TestResumedStreamsCountAsStreams(t *testing.T) {
	w := start(t, withLimits(session.Limits{Streams: 1}))
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	e, _ := w.beginStream(p, "1", headers...)
	prime := e.wantWhole("")
	w.stream("GET", w.mcpURL("b"), "", headers...)
	if a := w.do("GET", w.mcpURL("b"), "", append([]string{"Last-Event-ID", prime.id}, headers...)...); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestModernStreamsHaveNoIDs(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	go func() {
		f := p.next()
		p.send(progressFrame(f.CallID, 1))
		p.result(f.CallID, done)
	}()
	body, h := modernRequest("tools/call", "a", `"name":"a"`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":1,`, 1)
	e := w.stream("POST", w.mcpURL("b"), body, append(h, "Last-Event-ID", "aaa.MQ.1")...)
	for _, want := range []string{"progress", "done"} {
		if ev := e.wantWhole(want); ev.id != "" {
			t.Errorf("%+v", ev)
		}
	}
	if a := w.do("GET", w.mcpURL("b"), "", "Mcp-Protocol-Version", "2026-07-28", "Last-Event-ID", "aaa.MQ.1"); a.status != 405 {
		t.Errorf("%d", a.status)
	}
}

// cutter is a RoundTripper whose event streams break after some bytes.
type cutter struct {
	next http.RoundTripper
	cuts chan int
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && resp.Header.Get("Content-Type") == "text/event-stream" {
		select {
		case n := <-c.cuts:
			resp.Body = &cut{resp.Body, n}
		default:
		}
	}
	return resp, err
}

type cut struct {
	io.ReadCloser
	left int
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func TestOfficialClientComesBackForItsAnswer(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	c := &cutter{w.client.Transport, make(chan int, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := official.NewClient(&official.Implementation{Name: "test", Version: "1"}, nil).
		Connect(ctx, &official.StreamableClientTransport{Endpoint: w.mcpURL("b"), HTTPClient: &http.Client{Transport: c}}, &official.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c.cuts <- 300
	go func() {
		f := p.next()
		for n := range 5 {
			p.send(progressFrame(f.CallID, n+1))
		}
		p.result(f.CallID, done)
	}()
	params := &official.CallToolParams{Name: "a"}
	params.SetProgressToken("t")
	result, err := s.CallTool(ctx, params)
	if err != nil || len(result.Content) != 1 {
		t.Errorf("%v, %v", result, err)
	}
}
