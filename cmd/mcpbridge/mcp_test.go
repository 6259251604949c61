package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mcpServer is a scripted MCP server: it checks what every client must send, and
// answers tools/list and tools/call as told.
type mcpServer struct {
	t      *testing.T
	url    string
	list   []string                                                // one result of tools/list a page
	call   func(w http.ResponseWriter, r *http.Request, m message) // answers tools/call
	mu     sync.Mutex                                              // guards what follows
	heard  []message
	closed bool
	query  string // of the tools/call
}

func newMCPServer(t *testing.T) *mcpServer {
	t.Helper()
	s := &mcpServer{t: t}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *mcpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/b/x/mcp" {
		http.NotFound(w, r)
		return
	}
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodDelete {
		s.mu.Lock()
		s.closed = r.Header.Get("Mcp-Session-Id") == "s1"
		s.mu.Unlock()
		return
	}
	text, _ := io.ReadAll(r.Body)
	var m message
	if err := json.Unmarshal(text, &m); err != nil || m.JSONRPC != "2.0" {
		s.t.Errorf("not JSON-RPC: %s", text)
	}
	s.mu.Lock()
	s.heard = append(s.heard, m)
	s.mu.Unlock()
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "s1")
		s.answer(w, m, `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)
		return
	}
	if r.Header.Get("Mcp-Session-Id") != "s1" || r.Header.Get("MCP-Protocol-Version") != "2025-06-18" {
		s.t.Errorf("%s: headers %v", m.Method, r.Header)
	}
	switch m.Method {
	case "tools/list":
		var params struct{ Cursor string }
		_ = json.Unmarshal(m.Params, &params)
		page := 0
		if params.Cursor != "" {
			_, _ = fmt.Sscan(params.Cursor, &page)
		}
		s.answer(w, m, s.list[page])
	case "tools/call":
		s.mu.Lock()
		s.query = r.URL.RawQuery
		s.mu.Unlock()
		s.call(w, r, m)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *mcpServer) answer(w http.ResponseWriter, m message, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// methods are those of the messages heard so far.
func (s *mcpServer) methods() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.heard {
		all = append(all, m.Method)
	}
	return all
}

func TestToolsAreListedOverAllPages(t *testing.T) {
	s := newMCPServer(t)
	s.list = []string{
		`{"tools":[{"name":"add","description":"Adds.\nMore.","inputSchema":{"n":9007199254740993}}],"nextCursor":"1"}`,
		`{"tools":[{"name":"evil\u001b[2J","title":"T","x":1.0}]}`,
	}
	t.Setenv("MCPBRIDGE_TOKEN", "secret")
	run(t.Context(), "", "tools", "x", "--server", s.url).want(t, exitOK,
		"NAME +DESCRIPTION\nadd +Adds\\.\nevil\ufffd\\[2J +T\n", ``)
	if !s.closed {
		t.Error("the MCP session was left open")
	}
	// The definitions come as they were sent.
	o := run(t.Context(), "", "tools", s.url+"/b/x/mcp", "-o", "json")
	want := `[{"name":"add","description":"Adds.\nMore.","inputSchema":{"n":9007199254740993}},{"name":"evil\u001b[2J","title":"T","x":1.0}]` + "\n"
	if o.stdout != want {
		t.Errorf("%s, want %s", o.stdout, want)
	}
}

func TestCallPassesArgumentsAndResultAsTheyAre(t *testing.T) {
	const arguments = `{"big":9007199254740993,"html":"<&>","one":1.0}`
	const result = `{"content": [{"type":"text","text":"hello"}, {"type":"hologram","beam":9007199254740993}], "isError":false, "x":1.0}`
	s := newMCPServer(t)
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		var params struct {
			Name      string
			Arguments json.RawMessage
		}
		if err := json.Unmarshal(m.Params, &params); err != nil || params.Name != "t" || string(params.Arguments) != arguments {
			t.Errorf("params %s", m.Params)
		}
		s.answer(w, m, result)
	}
	args := []string{"call", "--token", "secret", "--timeout", "90s", s.url + "/b/x", "t"}
	run(t.Context(), "", append(args, arguments, "-o", "json")...).want(t, exitOK, `.*`, ``)
	o := run(t.Context(), arguments+"\n", append(args, "-", "-o", "json")...)
	if o.status != exitOK || o.stdout != result+"\n" {
		t.Errorf("%d, %s", o.status, o.stdout)
	}
	run(t.Context(), "", append(args, arguments)...).want(t, exitOK, `hello\n\{"type":"hologram","beam":9007199254740993\}\n`, ``)
	if s.query != "timeout=90" {
		t.Errorf("query %q", s.query)
	}
}

func TestCallShowsProgressAndAnswersTheServer(t *testing.T) {
	s := newMCPServer(t)
	s.call = func(w http.ResponseWriter, _ *http.Request, m message) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"cli","progress":1,"total":4,"message":"one"}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"cli","progress":2}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"l","data":"said"}}`,
			`{"jsonrpc":"2.0","id":"s-1","method":"ping"}`,
			`{"jsonrpc":"2.0","id":"s-2","method":"sampling/createMessage","params":{}}`,
			`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[],"structuredContent":{"n":1.0}}}`,
		} {
			_, _ = fmt.Fprintf(w, ": comment\nid: 1\nevent: message\ndata: %s\n\n", data)
		}
	}
	run(t.Context(), "", "call", "--token", "secret", s.url+"/b/x", "t").want(t, exitOK,
		`\{"n":1\.0\}\n`, `progress 1/4 one\nprogress 2\ninfo l said\n`)
	if got, want := s.methods(), []string{"initialize", "notifications/initialized", "tools/call", "", ""}; !slices.Equal(got, want) {
		t.Errorf("heard %q", got)
	}
	if m := s.heard[3]; string(m.ID) != `"s-1"` || string(m.Result) != `{}` {
		t.Errorf("answer to ping: %+v", m)
	}
	if m := s.heard[4]; string(m.ID) != `"s-2"` || m.Error == nil || m.Error.Code != -32601 {
		t.Errorf("answer to sampling: %+v", m)
	}
}

func TestInterruptedCallIsCancelledAtTheBridge(t *testing.T) {
	s := newMCPServer(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	var called message
	s.call = func(w http.ResponseWriter, r *http.Request, m message) {
		called = m
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": begun\n\n")
		_ = http.NewResponseController(w).Flush()
		interrupt(errSignal)
		<-r.Context().Done()
	}
	run(ctx, "", "call", "--token", "secret", s.url+"/b/x", "t").want(t, exitFailed, ``,
		`mcpbridge: cancelled: interrupted; the bridge was told\n`)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.heard[len(s.heard)-1]
	var params struct{ RequestID json.RawMessage }
	if err := json.Unmarshal(last.Params, &params); err != nil || last.Method != "notifications/cancelled" || string(params.RequestID) != string(called.ID) {
		t.Errorf("the bridge heard %+v last", last)
	}
	if !s.closed {
		t.Error("the MCP session was left open")
	}
}

func TestFailedCallIsStatus1(t *testing.T) {
	s := newMCPServer(t)
	reply := func(text string) func(http.ResponseWriter, *http.Request, message) {
		return func(w http.ResponseWriter, _ *http.Request, m message) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", string(m.ID)))
		}
	}
	for name, c := range map[string]struct {
		call           func(http.ResponseWriter, *http.Request, message)
		stdout, stderr string
	}{
		"tool error": {
			reply(`{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"no disk"}],"isError":true}}`),
			`no disk\n`, `mcpbridge: the tool reports an error\n`,
		},
		"protocol error": {
			reply(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"unknown tool: t"}}`),
			``, `mcpbridge: unknown tool: t \(-32602\)\n`,
		},
		"error of HTTP": {
			func(w http.ResponseWriter, _ *http.Request, _ message) {
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			``, `mcpbridge: 503 Service Unavailable; try again after 3 s\n`,
		},
		"stream ends early": {
			func(w http.ResponseWriter, _ *http.Request, _ message) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
			},
			``, `mcpbridge: the connection ended before the answer came\n`,
		},
		"another's answer": {
			reply(`{"jsonrpc":"2.0","id":"other","result":{}}`),
			``, `mcpbridge: the connection ended before the answer came\n`,
		},
		"not JSON": {
			reply(`<html>`), ``, `mcpbridge: the server sent what is not JSON-RPC: .*\n`,
		},
		"not MCP": {
			func(w http.ResponseWriter, _ *http.Request, _ message) { _, _ = io.WriteString(w, "hello") },
			``, `mcpbridge: http://\S+ does not answer like an MCP server: content type "text/plain"\n`,
		},
		"not a result": {
			reply(`{"jsonrpc":"2.0","id":ID,"result":7}`), ``, `mcpbridge: the answer is not a tool result: .*\n`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.call = c.call
			run(t.Context(), "", "call", "--token", "secret", s.url+"/b/x", "t").want(t, exitFailed, c.stdout, c.stderr)
		})
	}
	run(t.Context(), "", "call", s.url+"/b/x", "t").want(t, exitFailed, ``, `mcpbridge: 401 Unauthorized; give a token.*`)
}

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []string
	}{
		"line feeds":        {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		"carriage returns":  {"data: a\r\rdata: b\r\r", []string{"a", "b"}},
		"both":              {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"byte order mark":   {"\ufeffdata: a\n\n", []string{"a"}},
		"many lines":        {"data: a\ndata:b\ndata\ndata:  c\n\n", []string{"a\nb\n\n c"}},
		"comments and more": {": hi\nid: 1\nevent: x\nretry: 5\n\n:\n\ndata: a\nevent: y\n\n", []string{"a"}},
		"cut off":           {"data: a\n\ndata: b\n", []string{"a"}},
		"empty data":        {"data\n\n", []string{""}},
		"nothing":           {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			events := newEventReader(strings.NewReader(c.stream), 100)
			var got []string
			for {
				data, err := events.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(data))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	for _, stream := range []string{"data: " + strings.Repeat("x", 101) + "\n\n", strings.Repeat("data: 123456789\n", 11)} {
		if _, err := newEventReader(strings.NewReader(stream), 100).next(); !errors.Is(err, errTooLarge) {
			t.Errorf("%d bytes: %v", len(stream), err)
		}
	}
}

func TestProgressBarDrawsOverItself(t *testing.T) {
	var screen strings.Builder
	p := &progress{w: &screen, bar: true}
	p.show(1, 2, "half\x1b[2J way")
	p.show(3, 0, "unknown")
	p.line("a line")
	p.clear()
	want := "\r[###############...............]  50% half\ufffd[2J way" +
		"\r3 unknown" + strings.Repeat(" ", 50-9) + "\r" + strings.Repeat(" ", 9) + "\ra line\n"
	if screen.String() != want {
		t.Errorf("%q\nwant %q", screen.String(), want)
	}
}

func TestBridgeIsNamedByIDOrURL(t *testing.T) {
	for bridge, want := range map[string]string{
		"abc":                                 "http://s:1/b/abc/mcp",
		"https://h/b/abc/mcp":                 "https://h/b/abc/mcp",
		"https://h/b/abc":                     "https://h/b/abc/mcp",
		"https://h/base/b/abc/?timeout=3":     "https://h/base/b/abc/mcp?timeout=3",
		"https://h/mcp?room=r":                "https://h/mcp?room=r",
		"https://other.example/some/endpoint": "https://other.example/some/endpoint",
	} {
		if got, err := endpoint("http://s:1/", bridge); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", bridge, got, err, want)
		}
	}
}
