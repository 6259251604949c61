package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/session"
)

// rpcMessage is a message of the bridge as an MCP server sees it.
type rpcMessage struct {
	raw    string
	ID     json.RawMessage
	Method string
	Params struct {
		Name, URI, Cursor string
		RequestID         string
		ProtocolVersion   string
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
	Result json.RawMessage
	Error  *struct{ Code int }
}

// reply answers it with a result; fault with an error.
func (q rpcMessage) reply(result string) string {
	return `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + result + `}`
}

func (q rpcMessage) fault(e string) string {
	return `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"error":` + e + `}`
}

const unknownMethod = `{"code":-32601,"message":"Method not found"}`

// answers is what an MCP server says, by method. What has no entry goes to seen.
type answers map[string]func(q rpcMessage) string

func always(result string) func(rpcMessage) string {
	return func(q rpcMessage) string { return q.reply(result) }
}

func never(rpcMessage) string { return "" }

// mcpPeer is an MCP server that is a provider, in the hands of a test.
type mcpPeer struct {
	*peer
	seen chan rpcMessage
	end  chan error // why its connection ended
}

const legacyHello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}},"serverInfo":{"name":"srv é","title":"T","version":"1"}}`

const modernHello = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"srv","version":"1"}}}`

// mcpServer connects an MCP server. By default it is a legacy one with one tool, "a".
func (w *world) mcpServer(path string, special answers, headers ...string) *mcpPeer {
	w.t.Helper()
	p := w.dial(path, append([]string{"Sec-WebSocket-Protocol", "mcp"}, headers...)...)
	if got := p.ws.Subprotocol(); got != "mcp" {
		w.t.Fatalf("subprotocol %q, want mcp", got)
	}
	a := answers{
		"server/discover": func(q rpcMessage) string { return q.fault(unknownMethod) },
		"initialize":      always(legacyHello), "notifications/initialized": never,
		"tools/list": always(`{"tools":[` + tool("a") + `]}`), "ping": always(`{}`),
		"prompts/list": always(`{"prompts":[]}`), "resources/list": always(`{"resources":[]}`),
		"resources/templates/list": func(q rpcMessage) string { return q.fault(unknownMethod) },
	}
	maps.Copy(a, special)
	m := &mcpPeer{p, make(chan rpcMessage, 1000), make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.end <- m.run(a)
	}()
	w.t.Cleanup(func() { _ = p.ws.CloseNow(); <-done })
	return m
}

func (m *mcpPeer) run(a answers) error {
	for {
		_, b, err := m.ws.Read(context.Background())
		if err != nil {
			return err
		}
		q := rpcMessage{raw: string(b)}
		if err := json.Unmarshal(b, &q); err != nil {
			m.t.Errorf("%v in %s", err, b)
			return err
		}
		f, ok := a[q.Method]
		if !ok {
			m.seen <- q
			continue
		}
		if reply := f(q); reply != "" {
			if err := m.ws.Write(context.Background(), websocket.MessageText, []byte(reply)); err != nil {
				return err
			}
		}
	}
}

// next is the next message that has no answer by itself; it must come by itself.
func (m *mcpPeer) next(method string) rpcMessage {
	m.t.Helper()
	synctest.Wait()
	select {
	case q := <-m.seen:
		if q.Method != method {
			m.t.Fatalf("got %s, want %q", q.raw, method)
		}
		return q
	default:
		m.t.Fatalf("nothing came, want %q", method)
		return rpcMessage{}
	}
}

// nothing checks that no message is waiting.
func (m *mcpPeer) nothing() {
	m.t.Helper()
	synctest.Wait()
	select {
	case q := <-m.seen:
		m.t.Errorf("got %s", q.raw)
	default:
	}
}

// later makes a request and tells its answer.
func (w *world) later(f func() answer) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- f() }()
	return c
}

func (w *world) listed(bridge, method string) string {
	w.t.Helper()
	synctest.Wait()
	return w.post(bridge, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`).body
}

func listOf(member string, definitions ...string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{"` + member + `":[` + strings.Join(definitions, ",") + `]}}`
}

const provider = "/b/b/provider"

func TestLegacyServerIsAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		var opening []string
		note := func(then func(rpcMessage) string) func(rpcMessage) string {
			return func(q rpcMessage) string { opening = append(opening, q.raw); return then(q) }
		}
		s := w.mcpServer(provider, answers{
			"server/discover":           note(func(q rpcMessage) string { return q.fault(unknownMethod) }),
			"initialize":                note(always(legacyHello)),
			"notifications/initialized": note(never),
		})
		if got := w.listed("b", "tools/list"); got != listOf("tools", tool("a")) {
			t.Errorf("listed %s", got)
		}
		for i, want := range []string{
			`{"jsonrpc":"2.0","id":"bridge-discover-1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"mcpbridge","version":"test"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"sampling":{},"roots":{}}}}}`,
			`{"jsonrpc":"2.0","id":"bridge-initialize-2","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}},"clientInfo":{"name":"mcpbridge","version":"test"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		} {
			if i >= len(opening) || opening[i] != want {
				t.Errorf("message %d of %q, want %s", i, opening, want)
			}
		}
		if h := w.do("GET", w.url("/b/b/health"), "").body; !strings.Contains(h, `"srv _"`) {
			t.Errorf("the provider is not called as its server: %s", h)
		}

		call := w.later(func() answer { return w.post("b", progressCall("0", `""`)) })
		q := s.next("tools/call")
		id, _ := strconv.Unquote(string(q.ID))
		if want := `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"a","arguments":{},"_meta":{"progressToken":"` + id + `"}}}`; q.raw != want {
			t.Errorf("called\n with %s\n want %s", q.raw, want)
		}
		s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` + id + `","progress":1,"total":2.50,"message":"half"}}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications\/message","params":{"level":"info","logger":"l","data":{"n":1.0}}}`)
		s.send(q.reply(done))
		a := (<-call).body
		for _, want := range []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"","progress":1,"total":2.50,"message":"half"}}`,
			`{"jsonrpc":"2.0","id":0,"result":` + done + `}`,
		} {
			if !strings.Contains(a, want) {
				t.Errorf("answered %s, want %s", a, want)
			}
		}

		for _, c := range []struct{ answer, want string }{
			{`{"code":-32602,"message":"no such thing","data":{"a":1.0}}`, `{"code":-32602,"message":"no such thing","data":{"a":1.0}}`},
			{`{"code":-32001,"message":"mine"}`, `{"code":-32001,"message":"mine"}`},
			{`{"code":-32601,"message":"reserved"}`, `{"code":-32603,"message":"reserved"}`},
			{`{"code":"x"}`, `{"code":-32603,"message":"the provider's answer is not a tool result"}`},
			{`7`, `{"code":-32603,"message":"the provider's answer is not a tool result"}`},
		} {
			call = w.later(func() answer { return w.post("b", callBody("1", "a", "{}")) })
			s.send(s.next("tools/call").fault(c.answer))
			if got := (<-call).body; got != `{"jsonrpc":"2.0","id":1,"error":`+c.want+`}` {
				t.Errorf("%s was answered as %s", c.answer, got)
			}
		}

		session := w.initialize("b")
		call = w.later(func() answer { return w.post("b", callBody(`"c"`, "a", "{}"), session...) })
		q = s.next("tools/call")
		w.post("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`, session...)
		cancelled := s.next("notifications/cancelled")
		if want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(q.ID) + `,"reason":"cancelled"}}`; cancelled.raw != want {
			t.Errorf("cancelled with %s, want %s", cancelled.raw, want)
		}
		<-call
		s.send(q.reply(done)) // late: dropped
		s.nothing()
		w.end()
	})
}

func TestModernServerIsAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		tools := []string{tool("a")}
		var mu sync.Mutex
		s := w.mcpServer(provider+"?provider=mine", answers{
			"server/discover": always(modernHello),
			"initialize": func(q rpcMessage) string {
				t.Errorf("got %s", q.raw)
				return q.fault(`{"code":0,"message":"duplicate"}`)
			},
			"tools/list": func(q rpcMessage) string {
				if string(q.Params.Meta["io.modelcontextprotocol/protocolVersion"]) != `"2026-07-28"` {
					t.Errorf("no revision in %s", q.raw)
				}
				mu.Lock()
				defer mu.Unlock()
				return q.reply(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[` + strings.Join(tools, ",") + `]}`)
			},
		})
		listen := s.next("subscriptions/listen")
		if !strings.Contains(listen.raw, `"notifications":{"toolsListChanged":true},"_meta":{`) {
			t.Errorf("listens with %s", listen.raw)
		}
		s.send(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(listen.ID) + `}}}`)
		if h := w.do("GET", w.url("/b/b/health"), "").body; !strings.Contains(h, `"mine"`) {
			t.Errorf("the provider is not called as its URL says: %s", h)
		}

		// A result that asks passes, and so does what is answered to it.
		call := func(params string) (<-chan answer, rpcMessage) {
			body, h := modernRequest("tools/call", "a", `"name":"a","arguments":{}`+params)
			body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{"form":{}}},"io.modelcontextprotocol/logLevel":"debug"`, 1)
			c := w.later(func() answer { return w.post("b", body, h...) })
			return c, s.next("tools/call")
		}
		c, q := call("")
		if got := string(q.Params.Meta["io.modelcontextprotocol/clientCapabilities"]); got != `{"elicitation":{"form":{}}}` {
			t.Errorf("the client's capabilities came as %s", got)
		}
		if got := string(q.Params.Meta["io.modelcontextprotocol/logLevel"]); got != `"debug"` {
			t.Errorf("the client's log level came as %s", got)
		}
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"hm"}}`)
		s.send(q.reply(`{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"mode":"form"}}},"requestState":"st"}`))
		a := (<-c).body
		if !strings.Contains(a, `"method":"notifications/message","params":{"level":"debug","data":"hm"}`) {
			t.Errorf("no log in %s", a)
		}
		_, state, ok := strings.Cut(a, `"requestState":"`)
		state, _, _ = strings.Cut(state, `"`)
		if !ok || !strings.Contains(a, `"inputRequests":{"who":{`) || state == "st" {
			t.Fatalf("asked with %s", a)
		}
		c, q = call(`,"inputResponses":{"who":{"action":"accept"}},"requestState":"` + state + `"`)
		if !strings.Contains(q.raw, `"params":{"name":"a","arguments":{},"inputResponses":{"who":{"action":"accept"}},"requestState":"st","_meta":{`) {
			t.Errorf("called again with %s", q.raw)
		}
		s.send(q.reply(`{"resultType":"complete","content":[]}`))
		if a := (<-c).body; !strings.Contains(a, `"content":[]`) {
			t.Errorf("answered %s", a)
		}

		// Many changes are one reading.
		mu.Lock()
		tools = append(tools, tool("b"))
		mu.Unlock()
		for range 50 {
			s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(listen.ID) + `}}}`)
		}
		time.Sleep(time.Second)
		if got := w.listed("b", "tools/list"); got != listOf("tools", tools...) {
			t.Errorf("listed %s", got)
		}
		// A subscription that the server ends is made anew, and the list read again.
		mu.Lock()
		tools = tools[1:]
		mu.Unlock()
		s.send(listen.reply(`{"resultType":"complete"}`))
		time.Sleep(10 * time.Second)
		if again := s.next("subscriptions/listen"); string(again.ID) == string(listen.ID) {
			t.Error("an ID was used again")
		}
		if got := w.listed("b", "tools/list"); got != listOf("tools", tools...) {
			t.Errorf("listed %s", got)
		}
		time.Sleep(time.Minute) // frames of WebSocket pings keep it
		s.nothing()
		w.end()
	})
}

// TestHandshakesThatServersReallyHave: what published servers do before they serve.
func TestHandshakesThatServersReallyHave(t *testing.T) {
	refuse := func(q rpcMessage) string { return q.fault(`{"code":-32022,"message":"Unsupported protocol version"}`) }
	for name, c := range map[string]struct {
		special answers
		after   time.Duration // when it must be listed
		close   int           // or why it is closed
	}{
		"never answers discover":                 {answers{"server/discover": never}, 2100 * time.Millisecond, 0},
		"discover names other revisions":         {answers{"server/discover": always(`{"supportedVersions":["2027-01-01"]}`)}, 0, 0},
		"discover is no result":                  {answers{"server/discover": always(`7`)}, 0, 0},
		"an earlier revision":                    {answers{"initialize": always(`{"protocolVersion":"2024-11-05"}`)}, 0, 0},
		"refuses initialize after discover":      {answers{"server/discover": always(modernHello), "initialize": refuse}, 0, 0},
		"tools are not declared":                 {answers{"initialize": always(`{"protocolVersion":"2025-03-26","capabilities":{}}`)}, 0, 0},
		"speaks nothing":                         {answers{"initialize": refuse}, 0, 4400},
		"a revision that is none":                {answers{"initialize": always(`{"protocolVersion":"2023-01-01"}`)}, 0, 4400},
		"says nothing to discover, then refuses": {answers{"server/discover": never, "initialize": refuse}, 5 * time.Second, 4400},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				s := w.mcpServer(provider, c.special)
				synctest.Wait()
				time.Sleep(c.after)
				synctest.Wait()
				if c.close != 0 {
					if err := <-s.end; int(websocket.CloseStatus(err)) != c.close {
						t.Errorf("ended with %v, want %d", err, c.close)
					}
				} else if got := w.listed("b", "tools/list"); got != listOf("tools", tool("a")) {
					t.Errorf("listed %s", got)
				}
				w.end()
			})
		})
	}
}

// TestServerThatStartsSlowlyIsTakenAsItAnswers: it finds both openings waiting.
func TestServerThatStartsSlowlyIsTakenAsItAnswers(t *testing.T) {
	for name, c := range map[string]struct{ first, second string }{
		"modern alone": {modernHello, ""},
		"both eras":    {modernHello, legacyHello},
		"legacy alone": {"", legacyHello},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				opened := make(chan rpcMessage, 2)
				hold := func(q rpcMessage) string { opened <- q; return "" }
				s := w.mcpServer(provider, answers{
					"server/discover": hold, "initialize": hold, "subscriptions/listen": never,
				})
				time.Sleep(time.Minute)
				for _, hello := range []string{c.first, c.second} {
					if q := <-opened; hello != "" {
						s.send(q.reply(hello))
					} else {
						s.send(q.fault(unknownMethod))
					}
					synctest.Wait()
				}
				if got := w.listed("b", "tools/list"); got != listOf("tools", tool("a")) {
					t.Errorf("listed %s", got)
				}
				w.end()
			})
		})
	}
}

func TestServersRequestsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, answers{"initialize": never})
		s.send(`{"method":"roots/list","jsonrpc":"2.0","id":0}`)
		s.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		s.send(`{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{}}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"early"}}`)
		for _, want := range []string{
			`{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}`,
			`{"jsonrpc":"2.0","id":"p","result":{}}`,
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"the bridge does not know this method"}}`,
		} {
			if q := s.next(""); q.raw != want {
				t.Errorf("answered %s, want %s", q.raw, want)
			}
		}
		s.nothing()
		w.end()
	})
}

// TestListsComeInPages, and end where a server would go on for ever.
func TestListsComeInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Tools: 5}))
		s := w.mcpServer(provider, answers{"tools/list": func(q rpcMessage) string {
			n := 0
			if q.Params.Cursor != "" {
				n, _ = strconv.Atoi(strings.TrimPrefix(q.Params.Cursor, "é"))
			}
			return q.reply(fmt.Sprintf(`{"tools":[%s,{"name":"bad","inputSchema":7}],"nextCursor":"\u00e9%d"}`, tool(fmt.Sprint("t", n)), n+1))
		}})
		got := w.listed("b", "tools/list")
		if !strings.Contains(got, tool("t0")+","+tool("t1")) || strings.Contains(got, "bad") {
			t.Errorf("listed %s", got)
		}
		s.nothing()
		w.end()
	})
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		pages := 0
		w.mcpServer(provider, answers{"tools/list": func(q rpcMessage) string {
			pages++
			return q.reply(`{"tools":[` + tool(fmt.Sprint("t", pages)) + `],"nextCursor":"same"}`)
		}})
		if got := w.listed("b", "tools/list"); got != listOf("tools", tool("t1"), tool("t2")) || pages != 2 {
			t.Errorf("listed %s in %d pages", got, pages)
		}
		w.end()
	})
}

func TestListThatFailsIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		tries := 0
		w.mcpServer(provider, answers{"tools/list": func(q rpcMessage) string {
			if tries++; tries < 3 {
				return q.fault(`{"code":-32603,"message":"not yet"}`)
			}
			return q.reply(`{"tools":[` + tool("a") + `]}`)
		}})
		time.Sleep(10 * time.Second)
		if got := w.listed("b", "tools/list"); got != listOf("tools", tool("a")) || tries != 3 {
			t.Errorf("listed %s after %d", got, tries)
		}
		w.end()
	})
}

// TestAnswersUnderOtherIDsAreStrays holds O1 for dialect mcp: the calls that they meant
// end by their deadline.
func TestAnswersUnderOtherIDsAreStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		synctest.Wait()
		var calls []<-chan answer
		for _, id := range []string{"0", "null", "17", `"17"`, `{}`} {
			calls = append(calls, w.later(func() answer { return w.post("b", callBody("1", "a", "{}")) }))
			s.next("tools/call")
			s.send(`{"jsonrpc":"2.0","id":` + id + `,"result":` + done + `}`)
		}
		s.send(`{"jsonrpc":"2.0","result":` + done + `}`)
		good := w.later(func() answer { return w.post("b", callBody("1", "a", "{}")) })
		s.send(s.next("tools/call").reply(done))
		if a := <-good; a.body != `{"jsonrpc":"2.0","id":1,"result":`+done+`}` {
			t.Errorf("the call after them: %s", a.body)
		}
		if n := w.dir.Stats().Strays.Load(); n != 6 {
			t.Errorf("%d strays, want 6", n)
		}
		for _, c := range calls {
			if a := <-c; !strings.Contains(a.body, `"isError":true`) || !strings.Contains(a.body, "deadline") {
				t.Errorf("a call that a stray meant: %s", a.body)
			}
		}
		w.end()
	})
}

// TestIDsAndTokensComeBackThroughServers holds O1 and O12 for dialect mcp: the server
// sees the bridge's own IDs and tokens alone, the client its own, in their types.
func TestIDsAndTokensComeBackThroughServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		synctest.Wait()
		for _, id := range []string{`"1"`, `1`, `0`, `-1`, `9007199254740993`, `"` + strings.Repeat("i", 300) + `"`, `""`, `"\u00e9\n"`} {
			opened := make(chan *events, 1)
			go func() { opened <- w.stream("POST", w.mcpURL("b"), progressCall(id, id)) }()
			q := s.next("tools/call")
			token := q.Params.Meta["progressToken"]
			if string(q.ID) == id || q.ID[0] != '"' || string(token) == id || token == nil {
				t.Errorf("%s: the server sees %s", id, q.raw)
			}
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":9}}`) // nobody's
			s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(token) + `,"progress":1,"total":2.50}}`)
			e := <-opened
			if got, want := e.want("progress"), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+id+`,"progress":1,"total":2.50}}`; got != want {
				t.Errorf("progress %s, want %s", got, want)
			}
			s.send(q.reply(done))
			if got, want := e.want("result"), `{"jsonrpc":"2.0","id":`+id+`,"result":`+done+`}`; got != want {
				t.Errorf("result %s, want %s", got, want)
			}
		}
		w.end()
	})
}

func TestBatchOfAServerIsTakenApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		synctest.Wait()
		one := w.later(func() answer { return w.post("b", callBody("1", "a", "{}")) })
		q1 := s.next("tools/call")
		two := w.later(func() answer { return w.post("b", callBody("2", "a", "{}")) })
		q2 := s.next("tools/call")
		s.send(" [" + q2.reply(done) + ` , {"jsonrpc":"2.0","id":1,"method":"ping"},7,` + q1.reply(`{"content":[]}`) + "]")
		if a := (<-one).body; a != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
			t.Errorf("the first: %s", a)
		}
		if a := (<-two).body; a != `{"jsonrpc":"2.0","id":2,"result":`+done+`}` {
			t.Errorf("the second: %s", a)
		}
		if q := s.next(""); q.raw != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("the ping: %s", q.raw)
		}
		w.end()
	})
}

// TestLogIsPassedOnlyWhereItsCallIsKnown: MCP has no member that says whose a log
// message is.
func TestLogIsPassedOnlyWhereItsCallIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		synctest.Wait()
		h := w.initialize("b")
		one := w.later(func() answer { return w.post("b", callBody("1", "a", "{}"), h...) })
		q1 := s.next("tools/call")
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"alone"}}`)
		synctest.Wait()
		two := w.later(func() answer { return w.post("b", callBody("2", "a", "{}"), h...) })
		q2 := s.next("tools/call")
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"whose"}}`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"second","_meta":{"relatedRequestId":` + string(q2.ID) + `}}}`)
		s.send(q1.reply(done))
		s.send(q2.reply(done))
		a, b := (<-one).body, (<-two).body
		if !strings.Contains(a, `"alone"`) || strings.Contains(a, `"second"`) || !strings.Contains(b, `"second"`) || strings.Contains(a+b, `"whose"`) {
			t.Errorf("first %s\nsecond %s", a, b)
		}
		w.end()
	})
}

func TestLegacyServersArePingedAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		pings := 0
		s := w.mcpServer(provider, answers{"ping": func(q rpcMessage) string { pings++; return q.reply("{}") }})
		time.Sleep(61 * time.Second)
		s.nothing()
		if pings != 3 {
			t.Errorf("%d pings in a minute, want 3", pings)
		}
		w.end()
	})
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.dial(provider, "Sec-WebSocket-Protocol", "mcp")
		time.Sleep(50 * time.Second) // it reads nothing, so it answers no ping
		synctest.Wait()
		if h := w.do("GET", w.url("/b/b/health"), "").body; strings.Contains(h, `"connected":true`) {
			t.Errorf("a dead server stays: %s", h)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestFramesOfServersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		send  func(m *mcpPeer)
		close int
	}{
		"too long": {func(m *mcpPeer) { m.send(`{"method":"` + strings.Repeat("x", 4096) + `"}`) }, 1009},
		"binary":   {func(m *mcpPeer) { _ = m.ws.Write(context.Background(), websocket.MessageBinary, []byte("{}")) }, 1003},
		"not JSON, too deep, neither": {func(m *mcpPeer) {
			for range 33 {
				m.send(`{`)
				m.send(`{"method":"x","params":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`)
				m.send(`{"jsonrpc":"2.0"}`)
			}
			m.send(`[{"method":7}]`)
		}, 4429},
		"a batch of nothing": {func(m *mcpPeer) { m.send("[" + strings.Repeat("1,", 500) + "1]") }, 4429},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble, withLimits(session.Limits{FrameBytes: 4096, MessageDepth: 16}))
				m := w.mcpServer(provider, nil)
				synctest.Wait()
				c.send(m)
				if err := <-m.end; int(websocket.CloseStatus(err)) != c.close {
					t.Errorf("ended with %v, want %d", err, c.close)
				}
				w.end()
			})
		})
	}
}

// TestOtherOffersOfServers: prompts, resources and templates are listed as they came,
// and asked for as MCP has it.
func TestOtherOffersOfServers(t *testing.T) {
	const (
		prompt   = `{"name":"p","description":"d","arguments":[{"name":"x","required":true}],"vendor":1.0}`
		resource = `{"uri":"file:///a b","name":"r","size":12345678901234567890}`
		template = `{"uriTemplate":"db://{t}/{id}","name":"t"}`
	)
	for era, hello := range map[string]answers{
		"legacy": {},
		"modern": {"server/discover": always(strings.Replace(modernHello, `"tools"`, `"prompts":{"listChanged":true},"tools"`, 1))},
	} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				prompts := []string{prompt}
				var mu sync.Mutex
				hello["prompts/list"] = func(q rpcMessage) string {
					mu.Lock()
					defer mu.Unlock()
					return q.reply(`{"prompts":[` + strings.Join(prompts, ",") + `,{"title":"no name"}]}`)
				}
				hello["resources/list"] = always(`{"resources":[` + resource + `,` + resource + `]}`)
				hello["resources/templates/list"] = always(`{"resourceTemplates":[` + template + `]}`)
				s := w.mcpServer(provider, hello)
				if era == "modern" {
					s.next("subscriptions/listen")
				}
				for _, c := range []struct{ method, member, want string }{
					{"prompts/list", "prompts", prompt},
					{"resources/list", "resources", resource},
					{"resources/templates/list", "resourceTemplates", template},
				} {
					if got := w.listed("b", c.method); got != listOf(c.member, c.want) {
						t.Errorf("%s gives %s", c.method, got)
					}
				}
				h := w.initialize("b")
				for _, c := range []struct{ method, params, want, result string }{
					{"prompts/get", `"name":"p","arguments":{"x":"1"}`, `"name":"p","arguments":{"x":"1"}`, `{"messages":[],"n":1.0}`},
					{"resources/read", `"uri":"file:///a b"`, `"uri":"file:///a b"`, `{"contents":[{"uri":"file:///a b","blob":"AA=="}]}`},
					{"resources/read", `"uri":"db://x/1"`, `"uri":"db://x/1"`, `{"contents":[]}`},
					{
						"completion/complete", `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x","value":"1"},"context":{"arguments":{}}`,
						`"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x","value":"1"},"context":{"arguments":{}}`, `{"completion":{"values":["11"]}}`,
					},
					{
						"completion/complete", `"ref":{"type":"ref/resource","uri":"db://{t}/{id}"},"argument":{"name":"t","value":""}`,
						`"ref":{"type":"ref/resource","uri":"db://{t}/{id}"},"argument":{"name":"t","value":""}`, `{"completion":{"values":[]}}`,
					},
				} {
					call := w.later(func() answer {
						return w.post("b", `{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":{`+c.params+`}}`, h...)
					})
					q := s.next(c.method)
					if !strings.Contains(q.raw, `"method":"`+c.method+`","params":{`+c.want) {
						t.Errorf("%s %s became %s", c.method, c.params, q.raw)
					}
					if modern := q.Params.Meta["io.modelcontextprotocol/protocolVersion"] != nil; modern != (era == "modern") {
						t.Errorf("revision of %s", q.raw)
					}
					s.send(q.reply(c.result))
					if got := (<-call).body; got != `{"jsonrpc":"2.0","id":1,"result":`+c.result+`}` {
						t.Errorf("%s answered %s", c.method, got)
					}
				}
				mu.Lock()
				prompts = append(prompts, `{"name":"q"}`)
				mu.Unlock()
				s.send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
				time.Sleep(time.Second)
				if got := w.listed("b", "prompts/list"); got != listOf("prompts", prompts...) {
					t.Errorf("after the change %s", got)
				}
				w.end()
			})
		})
	}
}

// TestSubscriptionsToResourcesAreShared: the server has one for all clients.
func TestSubscriptionsToResourcesAreShared(t *testing.T) {
	for era, c := range map[string]struct {
		hello      answers
		begin, end string
	}{
		"legacy": {answers{}, "resources/subscribe", "resources/unsubscribe"},
		"modern": {answers{"server/discover": always(strings.ReplaceAll(modernHello, `"listChanged":true`, ``))}, "subscriptions/listen", "notifications/cancelled"},
	} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				c.hello["resources/list"] = always(`{"resources":[{"uri":"x:1","name":"r"}]}`)
				s := w.mcpServer(provider, c.hello)
				synctest.Wait()
				one, two := w.initialize("b"), w.initialize("b")
				ask := func(method string, h []string) <-chan answer {
					return w.later(func() answer {
						return w.post("b", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"uri":"x:1"}}`, h...)
					})
				}
				first := ask("resources/subscribe", one)
				begun := s.next(c.begin)
				if era == "legacy" {
					s.send(begun.reply("{}"))
				} else if !strings.Contains(begun.raw, `"notifications":{"resourceSubscriptions":["x:1"]}`) {
					t.Errorf("subscribed with %s", begun.raw)
				}
				<-first
				e := w.stream("GET", w.mcpURL("b"), "", one...)
				<-ask("resources/subscribe", two)
				s.nothing()
				s.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
				e.want(`"notifications/resources/updated","params":{"uri":"x:1"}`)

				// The server comes back, and knows nothing: it is told again, and the
				// clients read again.
				_ = s.ws.CloseNow()
				s = w.mcpServer(provider, c.hello)
				begun = s.next(c.begin)
				if era == "legacy" {
					s.send(begun.reply("{}"))
				}
				if !strings.Contains(begun.raw, `"x:1"`) {
					t.Errorf("subscribed again with %s", begun.raw)
				}
				s.nothing()
				e.want(`"notifications/resources/updated","params":{"uri":"x:1"}`)
				s.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
				e.want(`"notifications/resources/updated","params":{"uri":"x:1"}`)

				<-ask("resources/unsubscribe", one)
				s.nothing()
				last := ask("resources/unsubscribe", two)
				ended := s.next(c.end)
				if era == "legacy" {
					s.send(ended.reply("{}"))
				} else if ended.Params.RequestID == "" || `"`+ended.Params.RequestID+`"` != string(begun.ID) {
					t.Errorf("ended with %s", ended.raw)
				}
				<-last
				e.close()
				w.end()
			})
		})
	}
}

// replayed is what a server of the corpus answers.
type replayed struct{ Result, Error json.RawMessage }

func (r replayed) to(q rpcMessage) string {
	if r.Error != nil {
		return q.fault(string(r.Error))
	}
	return q.reply(string(r.Result))
}

// TestCorpusServersAsProviders: published servers, as they answer in the revision that
// they choose, are listed whole, and what they answer to calls passes.
func TestCorpusServersAsProviders(t *testing.T) {
	tools, others, calls, refusals, modern := 0, 0, 0, 0, 0
	for _, r := range corpus(t) {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := "testdata/corpus/" + r.name
				w := start(t, inBubble)
				isModern := false
				recorded := func(name string) (a replayed, ok bool) {
					for _, file := range []string{base + "." + name + ".2026-07-28.json", base + "." + name + ".json"} {
						if _, err := os.Stat(file); err == nil && (isModern || !strings.Contains(file, "2026-07-28")) {
							read(t, file, &a)
							return a, true
						}
					}
					return a, false
				}
				discover, _ := recorded("discover")
				hello, _ := recorded("initialize")
				isModern = discover.Result != nil
				if isModern {
					modern++
				}
				lines, _ := os.ReadFile(base + ".other-lines.ndjson")
				var s *mcpPeer
				var reply replayed
				var mu sync.Mutex
				special := answers{
					"server/discover": discover.to, "subscriptions/listen": never,
					"initialize": func(q rpcMessage) string {
						if isModern {
							t.Errorf("got %s", q.raw) // these refuse it
						}
						for line := range strings.Lines(string(lines)) { // some say this before they answer
							if strings.Contains(line, `"method"`) {
								s.send(strings.TrimSpace(line))
							}
						}
						return hello.to(q)
					},
					"tools/call": func(q rpcMessage) string { mu.Lock(); defer mu.Unlock(); return reply.to(q) },
					"":           never, // answers to what it asks by itself
				}
				want := map[string][]json.RawMessage{}
				for method, c := range map[string]struct{ file, member string }{
					"tools/list": {"tools-list", "tools"}, "prompts/list": {"prompts-list", "prompts"},
					"resources/list": {"resources-list", "resources"}, "resources/templates/list": {"resource-templates-list", "resourceTemplates"},
				} {
					list, ok := recorded(c.file)
					if !ok {
						list.Error = json.RawMessage(unknownMethod)
					}
					var members map[string]json.RawMessage
					if list.Result != nil {
						if err := json.Unmarshal(list.Result, &members); err != nil {
							t.Fatal(err)
						}
						var all []json.RawMessage
						if err := json.Unmarshal(members[c.member], &all); err != nil {
							t.Fatal(err)
						}
						want[method] = all
					}
					special[method] = func(q rpcMessage) string {
						if method != "tools/list" {
							return list.to(q)
						}
						if q.Params.Cursor != "" {
							return q.reply(`{"tools":[` + tool("replay") + `]}`)
						}
						return q.reply(strings.TrimSuffix(string(list.Result), "}") + `,"nextCursor":"x"}`)
					}
				}
				want["tools/list"] = append(want["tools/list"], json.RawMessage(tool("replay")))
				started := make(chan struct{})
				first := special["server/discover"]
				special["server/discover"] = func(q rpcMessage) string { <-started; return first(q) }
				s = w.mcpServer(provider, special)
				close(started)
				time.Sleep(time.Second)
				synctest.Wait()
				for method, all := range want {
					got := map[string]bool{}
					for _, raw := range w.all("b", method) {
						got[string(raw)] = true
					}
					for _, raw := range all {
						if !got[string(raw)] {
							t.Errorf("%s: not listed as it is: %.100s", method, raw)
						}
					}
					if len(got) != len(all) {
						t.Errorf("%s lists %d, want %d", method, len(got), len(all))
					}
					if method == "tools/list" {
						tools += len(got) - 1
					} else {
						others += len(got)
					}
				}
				files, _ := filepath.Glob(base + ".call-*.json")
				for _, file := range files {
					if strings.HasSuffix(file, ".request.json") {
						continue
					}
					var a replayed
					read(t, file, &a)
					mu.Lock()
					reply = a
					mu.Unlock()
					got := w.post("b", callBody("1", "replay", "{}")).body
					if a.Result != nil {
						calls++
						if got != `{"jsonrpc":"2.0","id":1,"result":`+string(a.Result)+`}` {
							t.Errorf("%s: changed on the way: %.200s", file, got)
						}
						continue
					}
					refusals++
					var e, f struct {
						Code    int
						Message string
						Data    any
					}
					var told struct{ Error json.RawMessage }
					if json.Unmarshal(a.Error, &e) != nil || json.Unmarshal([]byte(got), &told) != nil || json.Unmarshal(told.Error, &f) != nil {
						t.Fatalf("%s: %s", file, got)
					}
					if e.Code == -32601 || e.Code == -32600 {
						e.Code = -32603 // reserved: it is the bridge's to say
					}
					if fmt.Sprint(e) != fmt.Sprint(f) {
						t.Errorf("%s: refused as %v, want %v", file, f, e)
					}
				}
				w.end()
			})
		})
	}
	if tools != 952 || modern != 2 || refusals == 0 {
		t.Errorf("%d tools, want 952; %d modern servers, want 2; %d refusals", tools, modern, refusals)
	}
	t.Logf("%d tools, %d others, %d results, %d refusals", tools, others, calls, refusals)
}

// all reads every page of a list.
func (w *world) all(bridge, method string, headers ...string) (all []json.RawMessage) {
	w.t.Helper()
	cursor := ""
	for {
		var list struct{ Result map[string]json.RawMessage }
		a := w.post(bridge, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+cursor+`}}`, headers...)
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			w.t.Fatalf("%v in %s", err, a.body)
		}
		cursor = ""
		for name, raw := range list.Result {
			if name == "nextCursor" {
				cursor = `"cursor":` + string(raw)
				continue
			}
			var page []json.RawMessage
			if err := json.Unmarshal(raw, &page); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, page...)
		}
		if cursor == "" {
			return all
		}
	}
}
