package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What clients do that mean no harm: each flow of a soak once.

type clientKey struct{}

// reply is an answer and its first bytes.
type reply struct {
	status int
	header http.Header
	text   string
}

func (m *mix) ask(ctx context.Context, method, path, body string, headers ...string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+m.t.address+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client, _ := ctx.Value(clientKey{}).(*http.Client)
	resp, err := client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

// want is ask for an answer with that status which says something.
func (m *mix) want(ctx context.Context, status int, says, method, path, body string, headers ...string) (reply, error) {
	got, err := m.ask(ctx, method, path, body, headers...)
	if err == nil && (got.status != status || !strings.Contains(got.text, says)) {
		err = fmt.Errorf("answered %d %.300s, want %d and %q", got.status, got.text, status, says)
	}
	return got, err
}

func soakCall(tool, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{"n":%d}%s}}`, tool, rand.Int32(), meta)
}

func mcpPath(bridge string) string { return "/b/" + bridge + "/mcp" }

func (m *mix) stateless(ctx context.Context, bridge string) error {
	for range 10 {
		if _, err := m.want(ctx, 200, `"id":1`, "POST", mcpPath(bridge), soakCall("echo", "")); err != nil {
			return err
		}
	}
	_, err := m.want(ctx, 200, `"tools":[`, "POST", mcpPath(bridge), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	return err
}

// begin opens an MCP session and returns the headers of its requests.
func (m *mix) begin(ctx context.Context, bridge string) ([]string, error) {
	got, err := m.want(ctx, 200, `"protocolVersion"`, "POST", mcpPath(bridge),
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`)
	if err != nil {
		return nil, err
	}
	return []string{"Mcp-Session-Id", got.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-11-25"}, nil
}

func (m *mix) session(ctx context.Context, bridge string) error {
	headers, err := m.begin(ctx, bridge)
	if err != nil {
		return err
	}
	listening, leave := context.WithTimeout(ctx, time.Second)
	defer leave()
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.stream(listening, "GET", mcpPath(bridge), "", headers...) }) // whatever it hears
	defer wg.Wait()
	for range 5 {
		if _, err := m.want(ctx, 200, `"id":1`, "POST", mcpPath(bridge), soakCall("echo", `,"_meta":{"progressToken":1}`), headers...); err != nil {
			return err
		}
	}
	if _, err := m.want(ctx, 200, `"id":1`, "POST", mcpPath(bridge), soakCall("slow", `,"_meta":{"progressToken":1}`), headers...); err != nil {
		return err
	}
	_, err = m.want(ctx, 204, "", "DELETE", mcpPath(bridge), "", headers...)
	return err
}

func (m *mix) abandon(ctx context.Context, bridge string) error {
	headers, err := m.begin(ctx, bridge)
	if err != nil {
		return err
	}
	brief, leave := context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Millisecond)
	defer leave()
	_, _ = m.ask(brief, "POST", mcpPath(bridge), soakCall("slow", `,"_meta":{"progressToken":1}`), headers...) // it goes before the answer
	return nil
}

// modernHeaders and modernMeta are what 2026-07-28 wants of every request.
func modernHeaders(method, name string) []string {
	h := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		h = append(h, "Mcp-Name", name)
	}
	return h
}

func modernMeta(capabilities string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"soak","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{` + capabilities + `},"progressToken":"t"}`
}

func (m *mix) modern(ctx context.Context, bridge string) error {
	_, err := m.want(ctx, 200, `"id":1`, "POST", mcpPath(bridge), soakCall("slow", ","+modernMeta("")), modernHeaders("tools/call", "slow")...)
	return err
}

func (m *mix) cancel(ctx context.Context, bridge string) error {
	brief, leave := context.WithTimeout(ctx, time.Duration(rand.IntN(800))*time.Millisecond)
	defer leave()
	_, _ = m.ask(brief, "POST", mcpPath(bridge), soakCall("slow", ","+modernMeta("")), modernHeaders("tools/call", "slow")...)
	return nil
}

func (m *mix) task(ctx context.Context, bridge string) error {
	_, err := m.want(ctx, 200, `"id":1`, "POST", mcpPath(bridge),
		soakCall("slow", ","+modernMeta(`"extensions":{"io.modelcontextprotocol/tasks":{}}`)), modernHeaders("tools/call", "slow")...)
	return err
}

func (m *mix) listen(ctx context.Context, bridge string) error {
	brief, leave := context.WithTimeout(ctx, time.Duration(500+rand.IntN(1500))*time.Millisecond)
	defer leave()
	return m.stream(brief, "POST", mcpPath(bridge),
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta("")+`}}`,
		modernHeaders("subscriptions/listen", "")...)
}

func (m *mix) sse(ctx context.Context, bridge string) error {
	brief, leave := context.WithTimeout(ctx, time.Duration(500+rand.IntN(1500))*time.Millisecond)
	defer leave()
	return m.stream(brief, "GET", "/b/"+bridge+"/sse", "")
}

// stream reads a stream until ctx ends; it must have begun.
func (m *mix) stream(ctx context.Context, method, path, body string, headers ...string) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+m.t.address+path, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream, application/json")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client, _ := ctx.Value(clientKey{}).(*http.Client)
	resp, err := client.Do(r)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a stream was answered %d", resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		continue
	}
	return nil
}

func (m *mix) timeout(ctx context.Context, bridge string) error {
	_, err := m.want(ctx, 200, `"id":1`, "POST", mcpPath(bridge)+"?timeout=0.2", soakCall("slow", ""))
	return err
}

func (m *mix) wrong(ctx context.Context, bridge string) error {
	for body, status := range map[string]int{`{"jsonrpc":`: 400, `[]`: 400, `{"jsonrpc":"2.0","id":1,"method":"nothing"}`: 200} {
		if _, err := m.want(ctx, status, `"error"`, "POST", mcpPath(bridge), body); err != nil {
			return err
		}
	}
	_, err := m.want(ctx, 404, "", "GET", "/b/"+bridge+"/nothing", "")
	return err
}
