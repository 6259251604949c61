package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

// progressCall is a call that asks for progress under a token.
func progressCall(id, token string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"a","arguments":{},"_meta":{"progressToken":` + token + `}}}`
}

// TestIDsAndTokensComeBackAsTheyWere holds cases O1 and O12.
func TestIDsAndTokensComeBackAsTheyWere(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	ids := []string{`"1"`, `1`, `0`, `-1`, `9007199254740993`, `"` + strings.Repeat("i", 300) + `"`, `""`, `"\u00e9\n"`}
	streams := map[string]*events{}
	calls := map[string]string{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, id := range ids {
		wg.Go(func() {
			// The id serves as the token too: "7", 7, 0 and "" are all tokens.
			e := w.stream("POST", w.mcpURL("b"), progressCall(id, id))
			mu.Lock()
			streams[id] = e
			mu.Unlock()
		})
	}
	for range ids {
		f := p.want("callTool")
		p.send(`{"type":"progress","callId":"` + f.CallID + `","progress":1,"total":2.50,"message":"half"}`)
		calls[f.CallID] = f.raw
	}
	wg.Wait()
	for id := range calls {
		p.result(id, done)
	}
	for _, id := range ids {
		if got, want := streams[id].want("progress"), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+id+`,"progress":1,"total":2.50,"message":"half"}}`; got != want {
			t.Errorf("progress %s, want %s", got, want)
		}
		if got, want := streams[id].want("result"), `{"jsonrpc":"2.0","id":`+id+`,"result":`+done+`}`; got != want {
			t.Errorf("result %s, want %s", got, want)
		}
		if _, err := streams[id].next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the stream goes on", id)
		}
	}
	// Progress that nobody asked for reaches nobody.
	go func() {
		f := p.next()
		p.send(`{"type":"progress","callId":"` + f.CallID + `","progress":1}`)
		p.send(`{"type":"progress","callId":"made-up","progress":1}`)
		p.result(f.CallID, done)
	}()
	if a := w.post("b", callBody("1", "a", "{}")); a.body != `{"jsonrpc":"2.0","id":1,"result":`+done+`}` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("without a token: %s %s", a.header.Get("Content-Type"), a.body)
	}
}

func TestProgressOfParallelCallsStaysOnItsOwnStream(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			f, err := p.tryNext(context.Background())
			if err != nil {
				return
			}
			for n := range 3 {
				p.send(fmt.Sprintf(`{"type":"progress","callId":%q,"progress":%d,"message":%q}`, f.CallID, n, f.Params))
			}
			p.send(fmt.Sprintf(`{"type":"toolResult","callId":%q,"result":{"content":[],"n":%s}}`, f.CallID, f.Params))
		}
	}()
	headers := w.initialize("b")
	const rounds, parallel = 50, 8
	var wg sync.WaitGroup
	for c := range parallel {
		wg.Go(func() {
			for r := range rounds {
				mark := fmt.Sprintf(`{"n":%d}`, c*rounds+r)
				body := `{"jsonrpc":"2.0","id":` + fmt.Sprint(c*rounds+r) + `,"method":"tools/call","params":{"name":"a","arguments":` + mark + `,"_meta":{"progressToken":"t"}}}`
				e := w.stream("POST", w.mcpURL("b"), body, headers...)
				quoted, _ := json.Marshal(mark)
				for n := range 3 {
					e.want(fmt.Sprintf(`"progress":%d,"message":%s`, n, quoted))
				}
				e.want(`"result":{"content":[],"n":` + mark)
				e.close()
			}
		})
	}
	wg.Wait()
	_ = p.ws.CloseNow()
	<-done
}

func TestLogReachesWhoAskedForIt(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	logs := func(f frame) string {
		for _, level := range []string{"debug", "info", "error"} {
			p.send(`{"type":"log","callId":"` + f.CallID + `","level":"` + level + `","logger":"l","data":{"n":9007199254740993}}`)
		}
		return done
	}
	p.answers(logs)
	count := func(a answer) string {
		s := ""
		for _, level := range []string{"debug", "info", "error"} {
			if strings.Contains(a.body, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"`+level+`","logger":"l","data":{"n":9007199254740993}}}`) {
				s += level + " "
			}
		}
		return s
	}
	headers := w.initialize("b")
	call := callBody("1", "a", "{}")
	if got := count(w.post("b", call, headers...)); got != "info error " {
		t.Errorf("by default: %q", got)
	}
	w.post("b", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`, headers...)
	if got := count(w.post("b", call, headers...)); got != "error " {
		t.Errorf("at error: %q", got)
	}
	if got := count(w.modern("b", "tools/call", "a", `"name":"a"`)); got != "" {
		t.Errorf("modern, not asked: %q", got)
	}
	body, h := modernRequest("tools/call", "a", `"name":"a"`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1)
	if got := count(w.post("b", body, h...)); got != "debug info error " {
		t.Errorf("modern at debug: %q", got)
	}
	if a := w.post("b", call, "Accept", "application/json"); count(a) != "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("a client that takes no stream: %s", a.body)
	}
}

func TestProviderIsToldWhichLogMessagesReachItsClient(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	var told string
	p.answers(func(f frame) string {
		var call struct{ Meta struct{ LogLevel string } }
		if err := json.Unmarshal([]byte(f.raw), &call); err != nil {
			t.Error(err)
		}
		told = call.Meta.LogLevel
		return done
	})
	call := callBody("1", "a", "{}")
	body, h := modernRequest("tools/call", "a", `"name":"a"`)
	headers := w.initialize("b")
	want := func(when, level string) {
		t.Helper()
		if told != level {
			t.Errorf("%s: %q, want %q", when, told, level)
		}
	}
	w.post("b", call)
	want("without a session", "info")
	w.post("b", call, headers...)
	want("by default", "info")
	w.post("b", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`, headers...)
	w.post("b", call, headers...)
	want("as it was set", "error")
	w.post("b", call, "Accept", "application/json")
	want("to a client that takes no stream", "")
	w.post("b", body, h...)
	want("modern, not asked", "")
	w.post("b", strings.Replace(body, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1), h...)
	want("modern at debug", "debug")
}

func TestSilentCallShowsSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		asked := make(chan string, 2)
		p.answers(func(f frame) string { asked <- f.CallID; return "" })

		// Without a token: comments, from the fifteenth second.
		begun := time.Now()
		body := strings.Replace(callBody("1", "a", "{}"), `"arguments"`, `"x":1,"arguments"`, 1)
		e := w.stream("POST", w.mcpURL("b")+"?timeout=600", body)
		if d := time.Since(begun); d != 15*time.Second {
			t.Errorf("first byte after %v, want 15 s", d)
		}
		var comments []time.Duration
		go func() {
			time.Sleep(50 * time.Second)
			p.result(<-asked, done)
		}()
		for {
			line, err := e.in.ReadString('\n')
			if err != nil {
				break
			}
			if strings.HasPrefix(line, ":") {
				comments = append(comments, time.Since(begun))
			}
			if strings.Contains(line, `"result"`) {
				if time.Since(begun) != 65*time.Second || !strings.Contains(line, "done") {
					t.Errorf("result after %v: %s", time.Since(begun), line)
				}
			}
		}
		if fmt.Sprint(comments) != "[15s 30s 45s 1m0s]" {
			t.Errorf("comments at %v", comments)
		}

		// With a token: progress, every ten seconds, growing.
		begun = time.Now()
		e = w.stream("POST", w.mcpURL("b")+"?timeout=600", progressCall("2", `"t"`))
		go func() {
			time.Sleep(25 * time.Second)
			id := <-asked
			p.send(`{"type":"progress","callId":"` + id + `","progress":5}`)
			time.Sleep(20 * time.Second)
			p.result(id, done)
		}()
		last := -1.0
		var at []string
		for {
			data, err := e.next()
			if err != nil || strings.Contains(data, `"result"`) {
				break
			}
			var n struct {
				Params struct {
					ProgressToken string
					Progress      float64
				}
			}
			if err := json.Unmarshal([]byte(data), &n); err != nil || n.Params.ProgressToken != "t" || n.Params.Progress <= last {
				t.Errorf("%s after %v, %v", data, last, err)
			}
			last = n.Params.Progress
			at = append(at, time.Since(begun).String())
		}
		if got := strings.Join(at, " "); got != "10s 20s 30s 35s 45s 55s" || last < 5 {
			t.Errorf("progress at %s, last %v", got, last)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"), `{"name":"slow","description":"d","inputSchema":{"type":"object"},"timeoutSeconds":120}`)
		cancelled := make(chan string, 9)
		go func() {
			for {
				f, err := p.tryNext(context.Background())
				if err != nil {
					return
				}
				if f.Type == "cancelCall" {
					cancelled <- f.raw
				}
			}
		}()
		for _, c := range []struct {
			query, tool string
			want        time.Duration
		}{{"", "a", time.Minute}, {"?timeout=1.5", "a", 1500 * time.Millisecond}, {"", "slow", 2 * time.Minute}, {"?timeout=3600", "a", time.Hour}} {
			begun := time.Now()
			a := w.do("POST", w.mcpURL("b")+c.query, callBody("1", c.tool, "{}"))
			if d := time.Since(begun); d != c.want || !strings.Contains(a.body, `"isError":true`) || !strings.Contains(a.body, "deadline") {
				t.Errorf("%s%s ended after %v: %s", c.tool, c.query, d, a.body)
			}
			if raw := <-cancelled; !strings.HasSuffix(raw, `"reason":"timeout"}`) {
				t.Errorf("provider was told %s", raw)
			}
		}
		for _, bad := range []string{"0", "-1", "3601", "x", "NaN"} {
			if a := w.do("POST", w.mcpURL("b")+"?timeout="+bad, callBody("1", "a", "{}")); a.status != 400 || !strings.Contains(a.body, "at most 3600") {
				t.Errorf("timeout=%s: %d %s", bad, a.status, a.body)
			}
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

// TestCancellation holds case O11.
func TestCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		headers := w.initialize("b")
		ctx, cancel := context.WithCancel(t.Context())
		call := func(ctx context.Context, body string, headers ...string) chan string {
			got := make(chan string, 1)
			r, err := http.NewRequestWithContext(ctx, "POST", w.mcpURL("b"), strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			setHeaders(r, headers)
			go func() {
				resp, err := w.client.Do(r)
				if err != nil {
					got <- "gone"
					return
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				got <- string(b)
			}()
			return got
		}
		none := func(why string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if f, err := p.tryNext(ctx); err == nil {
				t.Errorf("%s: the provider was told %s", why, f.raw)
			}
		}

		// Legacy: the notification cancels, once, and only in its own session.
		got := call(t.Context(), callBody(`"x"`, "a", "{}"), headers...)
		f := p.want("callTool")
		other := w.initialize("b")
		cancelBody := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"no"}}`
		w.post("b", cancelBody, other...)
		w.post("b", strings.Replace(cancelBody, `"x"`, `"y"`, 1), headers...)
		w.post("b", cancelBody, headers...)
		if c := p.want("cancelCall"); c.CallID != f.CallID || !strings.HasSuffix(c.raw, `"reason":"cancelled"}`) {
			t.Errorf("provider was told %s", c.raw)
		}
		w.post("b", cancelBody, headers...)
		if body := <-got; !strings.Contains(body, `"id":"x","error":{"code":-32800`) {
			t.Errorf("the cancelled call was answered with %s", body)
		}
		p.result(f.CallID, done) // late: dropped

		// Modern: the disconnect cancels.
		body, h := modernRequest("tools/call", "a", `"name":"a"`)
		got = call(ctx, body, h...)
		f = p.want("callTool")
		cancel()
		<-got
		if c := p.want("cancelCall"); c.CallID != f.CallID {
			t.Errorf("provider was told %s", c.raw)
		}

		// Legacy: the disconnect cancels nothing. (This ends the provider's read.)
		ctx, cancel = context.WithCancel(t.Context())
		got = call(ctx, callBody("3", "a", "{}"), headers...)
		p.want("callTool")
		cancel()
		<-got
		none("legacy disconnect")
		w.end()
	})
}

// TestTimeoutDoesNotRepeatTheCall holds case O2.
func TestTimeoutDoesNotRepeatTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		late := make(chan string, 1)
		var executed atomic.Int32
		p.answers(func(f frame) string { executed.Add(1); late <- f.CallID; return "" })
		a := w.post("b", callBody("1", "a", "{}"))
		if !strings.Contains(a.body, "deadline") || !strings.Contains(a.body, "its outcome is unknown") {
			t.Errorf("answer %s", a.body)
		}
		p.result(<-late, done) // whoever asked has been answered
		_ = p.ws.CloseNow()
		p = w.provider("b", "p", "")
		p.register(tool("a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if f, err := p.tryNext(ctx); err == nil || executed.Load() != 1 {
			t.Errorf("executed %d times, then %s", executed.Load(), f.raw)
		}
		w.end()
	})
}

// TestOneCallsTimeoutHarmsNobodyElse holds case O3.
func TestOneCallsTimeoutHarmsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"), tool("b"), `{"name":"long","description":"d","inputSchema":{"type":"object"},"timeoutSeconds":300}`)
		long := make(chan string, 1)
		p.answers(func(f frame) string {
			switch f.Name {
			case "b":
				return done
			case "long":
				long <- f.CallID
			}
			return ""
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "deadline") {
				t.Errorf("a: %s", a.body)
			}
		})
		wg.Go(func() {
			for range 14 {
				time.Sleep(10 * time.Second)
				if a := w.post("b", callBody("2", "b", "{}")); !strings.Contains(a.body, "done") {
					t.Errorf("b: %s", a.body)
				}
			}
		})
		wg.Go(func() {
			id := <-long
			for n := range 15 {
				time.Sleep(10 * time.Second)
				p.send(fmt.Sprintf(`{"type":"progress","callId":%q,"progress":%d}`, id, n+1))
			}
			p.result(id, done)
		})
		e := w.stream("POST", w.mcpURL("b"), strings.Replace(progressCall("3", "1"), `"a"`, `"long"`, 1))
		last := ""
		for {
			data, err := e.next()
			if err != nil {
				break
			}
			last = data
		}
		if !strings.Contains(last, "done") {
			t.Errorf("the call of 150 s ended with %s", last)
		}
		wg.Wait()
		_ = p.ws.CloseNow()
		w.end()
	})
}

// TestFirstCallAfterARestartIsAnswered holds case O7.
func TestFirstCallAfterARestartIsAnswered(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	headers := w.initialize("b")
	p.answers(func(frame) string { return done })
	w.post("b", callBody("1", "a", "{}"), headers...)
	w.restart()
	p = w.provider("b", "p", "")
	p.register(tool("a"))
	p.answers(func(frame) string { return done })
	if a := w.post("b", callBody("2", "a", "{}"), headers...); a.body != `{"jsonrpc":"2.0","id":2,"result":`+done+`}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestOversizeFrames holds case O10.
func TestOversizeFrames(t *testing.T) {
	w := start(t, withLimits(session.Limits{FrameBytes: 10_000, ResumeGrace: time.Millisecond}))
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	got := make(chan answer, 1)
	go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
	f := p.want("callTool")
	head, tail := `{"type":"toolResult","callId":"`+f.CallID+`","result":{"content":[],"x":"`, `"}}`
	p.send(head + strings.Repeat("x", 10_001-len(head)-len(tail)) + tail)
	if code, reason := p.closed(); code != 1009 || !strings.Contains(reason, "10000 bytes") {
		t.Errorf("closed with %d %q", code, reason)
	}
	if a := <-got; !strings.Contains(a.body, `"isError":true`) || !strings.Contains(a.body, "outcome is unknown") {
		t.Errorf("the call ended with %s", a.body)
	}
	p = w.provider("b", "p", "")
	p.send(`{"type":"registerTools","tools":[{"name":"b","description":"` + strings.Repeat("x", 10_000) + `","inputSchema":{}}]}`)
	if code, _ := p.closed(); code != 1009 {
		t.Errorf("registration closed with %d", code)
	}
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(a.body, `"name":"a"`) {
		t.Errorf("earlier registrations: %s", a.body)
	}
	p = w.provider("b", "p", "")
	p.register(tool("a"))
	go func() { got <- w.post("b", callBody("1", "a", "{}")) }()
	f = p.want("callTool")
	head = `{"type":"toolResult","callId":"` + f.CallID + `","result":{"content":[],"x":"`
	p.send(head + strings.Repeat("x", 10_000-len(head)-len(tail)) + tail)
	if a := <-got; len(a.body) < 9000 {
		t.Errorf("a frame at the limit: %s", a.body)
	}
}

// TestLongStreamsAreNotCut holds case O18.
func TestLongStreamsAreNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		reading := make(chan struct{})
		answers := make(chan frame, 9)
		go func() {
			defer close(reading)
			for {
				f, err := p.tryNext(context.Background())
				if err != nil {
					return
				}
				answers <- f
			}
		}()
		body, h := modernRequest("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
		listen := w.stream("POST", w.mcpURL("b"), body, h...)
		// A reader that stops reads nothing at all: its pipe takes no byte.
		stalled := w.stream("POST", w.mcpURL("b"), body, h...)
		go func() {
			time.Sleep(150 * time.Second)
			p.send(`{"type":"registerTools","tools":[` + tool("z") + `]}`)
		}()
		begun := time.Now()
		comments, changed := 0, false
		for !changed {
			line, err := listen.in.ReadString('\n')
			if err != nil {
				t.Fatalf("cut after %v: %v", time.Since(begun), err)
			}
			if strings.HasPrefix(line, ":") {
				comments++
			}
			changed = strings.Contains(line, "list_changed")
		}
		if comments < 10 || time.Since(begun) < 150*time.Second {
			t.Errorf("%d comments in %v", comments, time.Since(begun))
		}
		if a := w.do("GET", w.url("/b/b/health"), ""); !strings.Contains(a.body, `"streams":1`) {
			t.Errorf("the stalled reader was not cut alone: %s", a.body)
		}
		stalled.close()
		_ = p.ws.CloseNow()
		<-reading
		w.end()
	})
}

func TestClientThatDoesNotReadItsAnswerIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{}`} {
			conn := w.connect()
			fmt.Fprintf(conn, "POST /b/b/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			time.Sleep(11 * time.Second) // the limit is 10 s
			synctest.Wait()
			if b, err := io.ReadAll(io.LimitReader(conn, 10)); err != nil || len(b) > 0 {
				t.Errorf("read %q, %v", b, err)
			}
		}
		w.end()
	})
}

func TestSyntheticProgressGrowsWhereverItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		p.answers(func(f frame) string {
			p.send(`{"type":"progress","callId":"` + f.CallID + `","progress":1e16}`)
			return ""
		})
		e := w.stream("POST", w.mcpURL("b"), progressCall("2", `"t"`))
		e.want(`"progress":1e16`)
		e.want(`"progress":10000000000000002`)
		e.want(`"progress":10000000000000004`)
		_ = p.ws.CloseNow()
		w.end()
	})
}
