package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/session"
)

// until calls f until it is true. The test's own deadline bounds it.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for !f() {
		if t.Context().Err() != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

// closed reads until the connection ends and returns the close code and reason.
func (p *peer) closed() (int, string) {
	p.t.Helper()
	for {
		_, _, err := p.ws.Read(p.t.Context())
		if e, ok := errors.AsType[websocket.CloseError](err); ok {
			return int(e.Code), e.Reason
		}
		if err != nil {
			return 0, err.Error()
		}
	}
}

func TestHelloIsWelcomed(t *testing.T) {
	w := start(t)
	p := w.dial("/b/b/provider")
	p.send(`{"type":"hello","protocol":1,"provider":"laptop","title":"My laptop","version":"2","instance":"i1"}`)
	f := p.want("welcome")
	var got struct {
		Protocol                           int
		Bridge, Provider, Instance, Resume string
		Resumed                            bool
		PingSeconds                        float64
		Limits                             map[string]int
	}
	if err := json.Unmarshal([]byte(f.raw), &got); err != nil {
		t.Fatal(err)
	}
	if got.Protocol != 1 || got.Bridge != "b" || got.Provider != "laptop" || got.Instance != "i1" || got.Resume == "" || got.Resumed ||
		got.PingSeconds != 20 || got.Limits["frameBytes"] != 8<<20 {
		t.Errorf("welcome %s", f.raw)
	}
	p.register(tool("a"))
	_ = p.ws.CloseNow()

	// The token is good for its provider on its bridge, after a restart too.
	w.restart()
	for _, c := range []struct {
		path, provider string
		want           bool
	}{{"/b/b/provider", "laptop", true}, {"/b/b/provider", "other", false}, {"/b/c/provider", "laptop", false}} {
		p := w.dial(c.path)
		p.send(`{"type":"hello","protocol":1,"provider":"` + c.provider + `","resume":"` + got.Resume + `"}`)
		if f := p.want("welcome"); strings.Contains(f.raw, `"resumed":true`) != c.want {
			t.Errorf("%+v: %s", c, f.raw)
		}
	}
}

func TestBadHelloIsRefused(t *testing.T) {
	w := start(t)
	for _, hello := range []string{
		`{"type":"hello","protocol":2}`,
		`{"type":"hello","provider":7}`,
		`{"type":"hello","provider":"a\nb"}`,
		`{"type":"hello","provider":"` + strings.Repeat("x", 129) + `"}`,
		`{"type":"hello","retainSeconds":-1}`,
		`{"type":"hello","title":"` + strings.Repeat("x", 257) + `"}`,
	} {
		p := w.dial("/b/b/provider")
		p.send(hello)
		if code, reason := p.closed(); code != 4400 || reason == "" {
			t.Errorf("%.60s: closed with %d %q, want 4400 and why", hello, code, reason)
		}
	}
	p := w.dial("/b/b/provider")
	p.send(`{"type":"pong"}`)
	p.send(`{"type":"hello","protocol":1,"provider":"late"}`)
	if code, reason := p.closed(); code != 4400 {
		t.Errorf("second message: %d %q", code, reason)
	}
}

func TestRegistrationIsAnsweredToolByTool(t *testing.T) {
	w := start(t, withLimits(session.Limits{ToolBytes: 2000}))
	p := w.provider("b", "p", "")
	deep := strings.Repeat(`{"properties":{"a":`, 33) + `{}` + strings.Repeat(`}}`, 33)
	p.send(`{"type":"registerTools","id":"r-1","tools":[` + strings.Join([]string{
		tool("good"),
		`{"name":"say hello","description":"d","inputSchema":{"type":"object"}}`,
		`{"name":"bare"}`,
		`{"name":"` + strings.Repeat("n", 49) + `","description":"d","inputSchema":{}}`,
		tool("good"),
		`{"description":"nameless","inputSchema":{}}`,
		`{"name":"","inputSchema":{}}`,
		`{"name":"wrong_type","inputSchema":{"type":"string"}}`,
		`{"name":"no_schema","inputSchema":[]}`,
		`{"name":"bad_keyword","inputSchema":{"type":"object","required":"a"}}`,
		`{"name":"bad_output","inputSchema":{},"outputSchema":{"type":"strin"}}`,
		`{"name":"deep","inputSchema":` + deep + `}`,
		`{"name":"big","description":"` + strings.Repeat("x", 2000) + `","inputSchema":{}}`,
		`{"name":"header","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}`,
		`{"name":"twice","name":"twice","inputSchema":{}}`,
		`{"name":"slow","inputSchema":{},"timeoutSeconds":"long"}`,
		`"text"`,
	}, ",") + `]}`)
	f := p.want("registered")
	var got struct {
		ID    string
		Tools []struct {
			Name, ExposedAs string
			Warnings        []string
		}
		Rejected []struct{ Name, Code, Message string }
	}
	if err := json.Unmarshal([]byte(f.raw), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != "r-1" {
		t.Errorf("id %q", got.ID)
	}
	var taken, refused []string
	for _, x := range got.Tools {
		taken = append(taken, fmt.Sprintf("%.10s>%.10s:%d", x.Name, x.ExposedAs, len(x.Warnings)))
	}
	for _, x := range got.Rejected {
		refused = append(refused, x.Name+":"+x.Code)
		if x.Message == "" {
			t.Errorf("%s is refused without saying why", x.Name)
		}
	}
	if got, want := strings.Join(taken, " "), "good>good:0 say hello>say_hello:1 bare>bare:2 nnnnnnnnnn>nnnnnnnnnn:2"; got != want {
		t.Errorf("taken\n got %s\nwant %s", got, want)
	}
	if got, want := strings.Join(refused, " "), "good:duplicate :bad_name :bad_name wrong_type:bad_schema no_schema:bad_schema bad_keyword:bad_schema "+
		"bad_output:bad_schema deep:too_deep big:too_large header:bad_header twice:bad_tool slow:bad_timeout :bad_tool"; got != want {
		t.Errorf("refused\n got %s\nwant %s", got, want)
	}
	const listed = `"tools":[{"name":"bare","inputSchema":{"type":"object"}},{"name":"good",`
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(a.body, listed) || strings.Contains(a.body, "deep") {
		t.Errorf("listed %s", a.body)
	}
}

func TestRefusedDefinitionLeavesTheEarlierOne(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"), tool("b"))
	p.send(`{"type":"registerTools","replace":true,"tools":[{"name":"a","inputSchema":7},` + tool("c") + `]}`)
	p.want("registered")
	a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if want := `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + tool("a") + `,` + tool("c") + `]}}`; a.body != want {
		t.Errorf("listed %s, want %s", a.body, want)
	}
}

func TestTimeoutOfAToolIsNotShownToClients(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	for _, raw := range []string{
		`{"timeoutSeconds":30,"name":"a","inputSchema":{"type":"object"}}`,
		`{"name":"a","timeoutSeconds":30,"inputSchema":{"type":"object"}}`,
		`{"name":"a","inputSchema":{"type":"object"},"timeoutSeconds":30 }`,
		`{ "timeoutSeconds" : 30 , "name":"a","inputSchema":{"type":"object"}}`,
	} {
		p.register(raw)
		a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		var list struct {
			Result struct{ Tools []map[string]any }
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			t.Fatalf("%s gives %s: %v", raw, a.body, err)
		}
		if tool := list.Result.Tools[0]; len(tool) != 2 || tool["name"] != "a" {
			t.Errorf("%s is listed as %v", raw, tool)
		}
	}
	p.answers(func(f frame) string {
		var m struct{ Meta struct{ DeadlineMs int } }
		if err := json.Unmarshal([]byte(f.raw), &m); err != nil || m.Meta.DeadlineMs > 30_000 || m.Meta.DeadlineMs < 20_000 {
			t.Errorf("%s: want a deadline of 30 s", f.raw)
		}
		return done
	})
	w.post("b", callBody("1", "a", "{}"))
}

func TestMessagesThatAreRefusedAreAnsweredAndHarmNothing(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	for message, code := range map[string]string{
		`{"type":"registerTools","tools":{}}`:                 "bad_message",
		`{"type":"registerTools"}`:                            "bad_message",
		`{"type":"unregisterTools","names":"a"}`:              "bad_message",
		`{"type":"unregisterTools","names":[1]}`:              "bad_message",
		`{"type":"toolResult","result":{}}`:                   "bad_message",
		`{"type":"toolResult","callId":7,"result":{}}`:        "bad_message",
		`{"type":"toolResult","callId":"x","result":[]}`:      "bad_result",
		`{"type":"toolError","callId":"x","error":{}}`:        "bad_result",
		`{"type":"progress","callId":"x","progress":"1"}`:     "bad_message",
		`{"type":"log","callId":"x","level":"loud","data":1}`: "bad_message",
		`{"type":"dance"}`:                                    "unknown_type",
		`{"type":7}`:                                          "bad_message",
		`{"typ":"pong"}`:                                      "bad_message",
		`[]`:                                                  "bad_message",
		`{"type":"pong"`:                                      "bad_message",
		`{"type":"pong","type":"pong"}`:                       "bad_message",
		`{"type":"pong","Type":"x"}`:                          "bad_message",
		"{\"type\":\"\xff\"}":                                 "bad_message",
		`{"type":"pong","x":` + strings.Repeat("[", 256) + strings.Repeat("]", 256) + `}`: "too_deep",
	} {
		p.send(message)
		f := p.want("error")
		var got struct{ Code, Message string }
		if err := json.Unmarshal([]byte(f.raw), &got); err != nil || got.Code != code || got.Message == "" {
			t.Errorf("%.80s: %s, want code %s and why", message, f.raw, code)
		}
	}
	p.answers(func(frame) string { return done })
	if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "done") {
		t.Errorf("a call afterwards: %s", a.body)
	}
}

func TestBinaryFrameIsRefused(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	if err := p.ws.Write(t.Context(), websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if code, reason := p.closed(); code != 1003 {
		t.Errorf("closed with %d %q", code, reason)
	}
}

func TestFloodOfRefusedMessagesIsCut(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	for range 100 {
		p.send(`{"type":"dance"}`)
	}
	if code, reason := p.closed(); code != 4429 {
		t.Errorf("closed with %d %q", code, reason)
	}
	if n := strings.Count(w.log.String(), "message refused"); n != 5 {
		t.Errorf("%d of the messages are logged", n)
	}
}

func TestSeedProviderIsSentNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.dial("/b/b/provider")
		p.send(`{"type":"registerTools","tools":[` + tool("a") + `,{"name":"bad"}]}`)
		p.send(`{"type":"dance"}`)
		p.send(`{"type":"registerTools"}`)
		synctest.Wait()
		e := w.stream("POST", w.mcpURL("b"), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}`)
		_ = e
		f := p.want("callTool")
		e.close() // legacy: cancels nothing
		synctest.Wait()
		p.result(f.CallID, done)
		ctx, cancel := context.WithTimeout(t.Context(), 19*time.Second)
		defer cancel()
		if f, err := p.tryNext(ctx); err == nil {
			t.Errorf("a seed provider was sent %s", f.raw)
		}
		w.end()
	})
}

func TestSilentConnectionBecomesTheDefaultProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		first := w.dial("/b/b/provider")
		first.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
		synctest.Wait()
		_ = first.ws.CloseNow()
		synctest.Wait()
		if a := w.do("GET", w.url("/b/b/health"), ""); !strings.Contains(a.body, `"connected":false`) || !strings.Contains(a.body, `"name":"a"`) {
			t.Errorf("health after it left: %s", a.body)
		}
		if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, `provider \"default\" is not connected since`) || !strings.Contains(a.body, `"isError":true`) {
			t.Errorf("call while away: %s", a.body)
		}
		// A worker that lost its memory reconnects and says nothing.
		second := w.dial("/b/b/provider")
		time.Sleep(time.Second)
		if a := w.do("GET", w.url("/b/b/health"), ""); !strings.Contains(a.body, `"connected":true`) {
			t.Errorf("health after it came back: %s", a.body)
		}
		second.answers(func(frame) string { return done })
		if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "done") {
			t.Errorf("call afterwards: %s", a.body)
		}
		_ = second.ws.CloseNow()
		w.end()
	})
}

func TestProviderNamedInTheURL(t *testing.T) {
	w := start(t)
	p := w.dial("/b/b/provider?provider=tab")
	p.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
	until(t, "listed under its name", func() bool {
		return strings.Contains(w.do("GET", w.url("/b/b/health"), "").body, `{"name":"a","provider":"tab"}`)
	})
	if _, err := w.tryDial("/b/b/provider?provider=a%0Ab"); err == nil {
		t.Error("a name with a line end was taken")
	}
}

func TestPingEveryTwentySecondsAndDeadPeersAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		alive, dead := w.provider("b", "alive", ""), w.provider("b", "dead", "")
		alive.register(tool("a"))
		dead.register(tool("d"))
		begun := time.Now()
		var pings []time.Duration
		reading, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				_, b, err := alive.ws.Read(reading)
				if err != nil {
					return
				}
				if string(b) == `{"type":"ping"}` {
					pings = append(pings, time.Since(begun).Round(time.Second))
					_ = alive.ws.Write(reading, websocket.MessageText, []byte(`{"type":"pong"}`))
				}
			}
		}()
		// The dead one does not even read, so its library answers no ping frame.
		time.Sleep(65 * time.Second)
		synctest.Wait()
		a := w.do("GET", w.url("/b/b/health"), "")
		if !strings.Contains(a.body, `"provider":"alive","connected":true`) || !strings.Contains(a.body, `"provider":"dead","connected":false`) {
			t.Errorf("after a minute: %s", a.body)
		}
		stop()
		<-ended
		if len(pings) != 3 || pings[0] < 19*time.Second || pings[0] > 21*time.Second {
			t.Errorf("pings at %v, want every 20 s", pings)
		}
		w.end()
	})
}

func TestScriptThatIgnoresPingMessagesStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "script", "")
		p.register(tool("a"))
		p.answers(func(frame) string { return done }) // reads, but says no pong
		time.Sleep(10 * time.Minute)
		if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "done") {
			t.Errorf("after ten minutes: %s", a.body)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestProviderThatStopsReadingIsCutAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		stuck, good := w.provider("b", "stuck", ""), w.provider("b", "good", "")
		stuck.register(tool("s"))
		good.register(tool("g"))
		good.answers(func(frame) string { return done })
		answered := make(chan answer, 1)
		go func() { answered <- w.post("b", callBody("1", "s", "{}")) }() // nobody reads: the write hangs
		synctest.Wait()
		if a := w.post("b", callBody("2", "g", "{}")); !strings.Contains(a.body, "done") {
			t.Errorf("the other provider: %s", a.body)
		}
		begun := time.Now()
		a := <-answered
		if d := time.Since(begun); !strings.Contains(a.body, "outcome is unknown") || d > 25*time.Second { // it might have resumed
			t.Errorf("after %v: %s", d, a.body)
		}
		_ = good.ws.CloseNow()
		w.end()
	})
}

func TestShutdownTellsProvidersToComeBack(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	ended := make(chan struct{})
	go func() { defer close(ended); w.end() }()
	p.want("reconnect")
	if code, _ := p.closed(); code != 1012 {
		t.Errorf("closed with %d, want 1012", code)
	}
	<-ended
}

func TestSeedProviderBeyondALimitIsClosed(t *testing.T) {
	w := start(t, withLimits(session.Limits{Instances: 1}))
	first := w.dial("/ws/extension?room=b")
	first.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
	until(t, "the first is there", func() bool { // neither says hello, so that the second could overtake it
		return strings.Contains(w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).body, `"name":"a"`)
	})
	p := w.dial("/ws/extension?room=b")
	if code, reason := p.closed(); code != 4429 || !strings.Contains(reason, "instances of a provider") {
		t.Errorf("closed with %d %q", code, reason)
	}
}

func TestSilentProviderIsToldWhyItIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		conn := w.connect()
		fmt.Fprint(conn, "GET /b/b/provider HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		begun := time.Now()
		b, err := io.ReadAll(conn) // answers no ping
		if !strings.Contains(string(b), "\x11\x38nothing came") || time.Since(begun) > time.Minute {
			t.Errorf("no close frame of 4408 after %v: %q, %v", time.Since(begun), b, err)
		}
		w.end()
	})
}
