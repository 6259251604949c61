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
	"testing"
	"testing/synctest"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	official "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpbridge/api"
	"mcpbridge/session"
)

// pair opens a stream of 2024-11-05 and returns it with the URL for messages.
func (w *world) pair(path string, headers ...string) (*events, string) {
	w.t.Helper()
	e := w.stream("GET", w.url(path), "", headers...)
	line, err := e.in.ReadString('\n')
	if err != nil || line != "event: endpoint\n" {
		w.t.Fatalf("the stream begins with %q, %v", line, err)
	}
	return e, w.url(e.want("/message?sessionId="))
}

// tell posts a message, which must be accepted.
func (w *world) tell(url, message string) {
	w.t.Helper()
	if a := w.do("POST", url, message); a.status != http.StatusAccepted || a.body != "" {
		w.t.Errorf("%s: %d %s, want 202", message, a.status, a.body)
	}
}

func TestSSEClientsOfOthersListAndCall(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	p.answers(func(frame) string { return done })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, path := range []string{"/b/b/sse", "/b/b/mcp", "/mcp?room=b"} {
		t.Run("mcp-go "+path, func(t *testing.T) {
			c, err := mcpgo.NewSSEMCPClient(w.url(path), transport.WithHTTPClient(w.client))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Initialize(ctx, mcpgotypes.InitializeRequest{}); err != nil {
				t.Fatal(err)
			}
			list, err := c.ListTools(ctx, mcpgotypes.ListToolsRequest{})
			if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "a" {
				t.Fatalf("listed %v, %v", list, err)
			}
			call := mcpgotypes.CallToolRequest{}
			call.Params.Name = "a"
			result, err := c.CallTool(ctx, call)
			if err != nil || len(result.Content) != 1 {
				t.Errorf("called: %v, %v", result, err)
			}
		})
		t.Run("official "+path, func(t *testing.T) {
			c := official.NewClient(&official.Implementation{Name: "test", Version: "1"}, nil)
			s, err := c.Connect(ctx, &official.SSEClientTransport{Endpoint: w.url(path), HTTPClient: w.client}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			list, err := s.ListTools(ctx, nil)
			if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "a" {
				t.Fatalf("listed %v, %v", list, err)
			}
			result, err := s.CallTool(ctx, &official.CallToolParams{Name: "a"})
			if err != nil || len(result.Content) != 1 {
				t.Errorf("called: %v, %v", result, err)
			}
		})
	}
}

func TestSSEAnswersOnTheStreamAlone(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	e, url := w.pair("/b/b/sse")
	if !strings.HasPrefix(url, w.url("/b/b/message?sessionId=")) || len(url) < len(w.url("/b/b/message?sessionId="))+26 {
		t.Errorf("messages go to %s", url)
	}
	w.tell(url, `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{"elicitation":{}},"clientInfo":{"name":"old","version":"1"}}}`)
	e.want(`"id":"i","result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}`)
	w.tell(url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	w.tell(url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	e.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	w.tell(url, `{"jsonrpc":"2.0","id":3,"method":"no/such"}`)
	e.want(`"id":3,"error":{"code":-32601`)

	// Progress, then what was asked for later is answered first.
	w.tell(url, progressCall("4", `"t"`))
	f := p.want("callTool")
	if !strings.Contains(f.raw, `"client":{"name":"old","version":"1"}`) {
		t.Errorf("the provider was told %s", f.raw)
	}
	p.send(`{"type":"progress","callId":"` + f.CallID + `","progress":1}`)
	e.want(`"progressToken":"t","progress":1`)
	w.tell(url, callBody("5", "a", "{}"))
	g := p.want("callTool")
	p.result(g.CallID, done)
	e.want(`{"jsonrpc":"2.0","id":5,"result":` + done + `}`)

	// The bridge asks the client, who answers by POST.
	p.result(f.CallID, askingResult)
	var request struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(e.want("elicitation/create")), &request); err != nil {
		t.Fatal(err)
	}
	w.tell(url, `{"jsonrpc":"2.0","id":`+string(request.ID)+`,"result":{"action":"decline"}}`)
	f = p.want("callTool")
	if !strings.Contains(f.raw, `"inputResponses":{"who":{"action":"decline"}}`) {
		t.Errorf("the provider was told %s", f.raw)
	}
	p.result(f.CallID, done)
	e.want(`{"jsonrpc":"2.0","id":4,"result":` + done + `}`)

	// A cancellation that follows the call's 202 finds it.
	for n := range 50 {
		w.tell(url, callBody(fmt.Sprint(100+n), "a", "{}"))
		w.tell(url, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, 100+n))
		e.want(fmt.Sprintf(`"id":%d,"error":{"code":-32800`, 100+n))
	}

	// Changes.
	q := w.provider("b", "q", "")
	q.register(tool("z"))
	e.want("notifications/tools/list_changed")

	for message, status := range map[string]int{`{`: 400, `[]`: 400, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`: 400, `{"id":1}`: 400} {
		if a := w.do("POST", url, message); a.status != status {
			t.Errorf("%s: %d %s", message, a.status, a.body)
		}
	}
	for _, c := range []struct {
		method, url string
		status      int
	}{
		{"POST", w.url("/b/b/message"), 400},
		{"POST", w.url("/b/b/message?sessionId=x"), 404},
		{"POST", strings.Replace(url, "/b/b/", "/b/c/", 1), 404},
		{"GET", url, 405},
		{"POST", w.url("/b/b/sse"), 405},
	} {
		if a := w.do(c.method, c.url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.url, a.status, a.body, c.status)
		}
	}
}

func TestSSEStreamKeepsItsRoomAndTimeout(t *testing.T) {
	w := start(t, withConfig(func(c *api.Config) { c.PublicURL += "/below" }))
	for path, prefix := range map[string]string{"/mcp?room=r": "/below/b/r/message?", "/mcp": "/below/b/default/message?", "/b/x/mcp": "/below/b/x/message?"} {
		if _, url := w.pair(path); !strings.HasPrefix(url, w.url(prefix)) {
			t.Errorf("%s: messages go to %s", path, url)
		}
	}
	if _, url := w.pair("/b/x/sse?meta=only&raw=1&timeout=5"); !strings.HasSuffix(url, "&meta=only&raw=1&timeout=5") {
		t.Errorf("messages go to %s", url)
	}
}

func TestSSENeedsTheClientsTokenAndAnAcceptableOrigin(t *testing.T) {
	w := start(t, withAuth)
	_, all := w.provision(1)
	id, client, providers := all[0].id, all[0].client, all[0].provider
	for _, token := range []string{"", providers, "Bearer x"} {
		for method, path := range map[string]string{"GET": "/b/" + id + "/sse", "POST": "/b/" + id + "/message?sessionId=x"} {
			if a := w.do(method, w.url(path), "{}", "Authorization", token); a.status != 401 && a.status != 404 {
				t.Errorf("%s with %q: %d", path, token, a.status)
			}
		}
	}
	e, url := w.pair("/b/"+id+"/sse", "Authorization", client)
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	if a := w.do("POST", url, ping); a.status != 401 {
		t.Errorf("without a token: %d", a.status)
	}
	if a := w.do("POST", url, ping, "Authorization", client, "Origin", "http://evil.example"); a.status != 403 {
		t.Errorf("from elsewhere: %d", a.status)
	}
	a := w.do("OPTIONS", url, "", "Origin", w.base, "Access-Control-Request-Method", "POST")
	if a.status != 204 || !strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	if a := w.do("POST", url, ping, "Authorization", client, "Origin", w.base); a.status != 202 || a.header.Get("Access-Control-Allow-Origin") != w.base {
		t.Errorf("%d %v", a.status, a.header)
	}
	e.want(`"id":2,"result"`)
}

func TestSSEStreamThatEndsCancelsItsCalls(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	e, url := w.pair("/b/b/sse")
	_, other := w.pair("/b/b/sse")
	w.tell(other, callBody("1", "a", "{}"))
	kept := p.want("callTool")
	w.tell(url, callBody("1", "a", "{}"))
	f := p.want("callTool")
	e.close()
	if c := p.want("cancelCall"); c.CallID != f.CallID || c.CallID == kept.CallID {
		t.Errorf("the provider was told %s", c.raw)
	}
	for w.do("POST", url, callBody("2", "a", "{}")).status != 404 {
		if t.Context().Err() != nil {
			t.Fatal("the stream is still known")
		}
	}
}

func TestSSEStreamsAreBounded(t *testing.T) {
	w := start(t, withLimits(session.Limits{Streams: 1, BodyBytes: 1000}))
	_, url := w.pair("/b/b/sse")
	if a := w.do("GET", w.url("/b/b/sse"), ""); a.status != 429 || !strings.Contains(a.body, "at most 1 ") {
		t.Errorf("a second stream: %d %s", a.status, a.body)
	}
	if a := w.do("POST", url, strings.Repeat(" ", 1001)); a.status != 413 {
		t.Errorf("a large body: %d", a.status)
	}
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	var wg sync.WaitGroup
	statuses := make([]int, 300)
	for n := range statuses {
		wg.Go(func() { statuses[n] = w.do("POST", url, callBody(fmt.Sprint(n), "a", "{}")).status })
	}
	wg.Wait()
	accepted := 0
	for _, s := range statuses {
		if s == 202 {
			accepted++
		} else if s != 429 {
			t.Errorf("status %d", s)
		}
	}
	if accepted != 256 {
		t.Errorf("%d were accepted, want 256", accepted)
	}
}

func TestSSEStreamLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		var late sync.WaitGroup
		p.answers(func(f frame) string {
			late.Go(func() { time.Sleep(50 * time.Second); p.result(f.CallID, done) })
			return ""
		})
		e, url := w.pair("/b/b/sse")
		begun := time.Now()
		w.tell(url, callBody("1", "a", "{}"))
		comments := 0
		for {
			line, err := e.in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, ":") {
				comments++
			}
			if strings.Contains(line, `"id":1,"result"`) {
				break
			}
		}
		if d := time.Since(begun); d != 50*time.Second || comments < 3 {
			t.Errorf("answered after %v and %d comments", d, comments)
		}
		// A client that stops reading is cut by the write deadline, and its stream is free.
		stalled, url := w.pair("/b/b/sse")
		w.tell(url, callBody("1", "a", "{}"))
		time.Sleep(2 * time.Minute)
		if a := w.do("POST", url, callBody("1", "a", "{}")); a.status != 404 {
			t.Errorf("the stalled stream takes messages: %d", a.status)
		}
		stalled.close()
		e.close()
		late.Wait()
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestSSEStreamsEndWhenTheProcessDrains(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	e, url := w.pair("/b/b/sse")
	w.tell(url, callBody("1", "a", "{}"))
	f := p.want("callTool")
	idle, _ := w.pair("/b/b/sse")
	w.server.Drain()
	if a := w.do("POST", url, callBody("2", "a", "{}")); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("a new message: %d", a.status)
	}
	if _, err := idle.next(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle stream: %v", err)
	}
	p.result(f.CallID, done) // a running call is answered
	e.want(`{"jsonrpc":"2.0","id":1,"result":` + done + `}`)
	if _, err := e.next(); !errors.Is(err, io.EOF) {
		t.Errorf("then: %v", err)
	}
}
