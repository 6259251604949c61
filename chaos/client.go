package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The revisions that clients speak.
const (
	sessionEra = "2025-11-25" // initialize, Mcp-Session-Id
	modernEra  = "2026-07-28" // stateless
)

const (
	// retryFor is how long a client asks again while nobody takes its request.
	retryFor = 40 * time.Second
	// answerWait is how long it waits for an answer: longer than any deadline of the
	// bridge.
	answerWait = 90 * time.Second
)

// Client is an MCP client that retries as SDKs and their HTTP stacks do: when no
// connection could be made, when the HTTP stack knows that nothing was sent (it
// does that by itself), and on 503, which says that the request was not taken. A
// request that may have been taken is never sent again.
type Client struct {
	Name   string
	Bridge string
	Era    string
	base   string // http://HOST:PORT
	http   *http.Client
	h      *History

	session string
	serial  int
}

// newClient makes a client that dials from an address, or any for "".
func newClient(h *History, base, bridge, name, era, from string) *Client {
	return &Client{
		Name: name, Bridge: bridge, Era: era, base: base, h: h,
		http: &http.Client{Transport: &http.Transport{DialContext: dialer(from).DialContext, MaxIdleConnsPerHost: 16}},
	}
}

// dialer dials from an address, so that a rule about addresses can cut what it made.
func dialer(from string) *net.Dialer {
	d := &net.Dialer{Timeout: 5 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d
}

// reply is what a request came to.
type reply struct {
	outcome Outcome // Result, Failed, Refused, Broken, Silent
	text    string
	answers int // messages that answer it
	result  json.RawMessage
	failure *struct {
		Code    int
		Message string
	}
	lost bool // the session is not known
}

const metaOfClient = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernEra +
	`","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"chaos","version":"1"}}`

// body is a request. params are members without braces; none for "".
func (c *Client) body(id int, method, params string) []byte {
	if c.Era == modernEra {
		if params != "" {
			params += ","
		}
		params += metaOfClient
	}
	return []byte(`{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"` + method + `","params":{` + params + `}}`)
}

// ask sends a request until it is taken, and reads its answer. name is what modern
// clients put into Mcp-Name.
func (c *Client) ask(ctx context.Context, method, name, params string) reply {
	c.serial++
	id := c.serial
	body := c.body(id, method, params)
	until := time.Now().Add(retryFor)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		r, wait := c.try(ctx, id, method, name, body)
		if r.outcome != Refused || time.Now().After(until) {
			return r
		}
		// The half of what the server asks for: more attempts find more.
		if !sleep(ctx, max(pause, wait/2)/2+rand.N(pause)) {
			return r
		}
	}
}

// try sends a request once. wait is how long the server asks to stay away.
func (c *Client) try(ctx context.Context, id int, method, name string, body []byte) (r reply, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/b/"+c.Bridge+"/mcp", bytes.NewReader(body))
	if err != nil {
		return reply{outcome: Failed, text: err.Error()}, 0
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	if c.Era == modernEra {
		q.Header.Set("Mcp-Method", method)
		if name != "" {
			q.Header.Set("Mcp-Name", name)
		}
	}
	if c.Era == modernEra || c.session != "" {
		q.Header.Set("Mcp-Protocol-Version", c.Era)
	}
	if c.session != "" {
		q.Header.Set("Mcp-Session-Id", c.session)
	}
	resp, err := c.http.Do(q)
	if err != nil {
		return lostBy(ctx, err), 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 for none
		return reply{outcome: Refused, text: "503 " + string(text)}, time.Duration(seconds) * time.Second
	case resp.StatusCode == http.StatusNotFound && c.session != "":
		return reply{outcome: Failed, lost: true, text: "404 " + string(text)}, 0
	}
	if method == "initialize" {
		c.session = resp.Header.Get("Mcp-Session-Id")
	}
	r = parse(resp.Header.Get("Content-Type"), text, id)
	switch {
	case r.answers > 0:
	case err != nil:
		r = lostBy(ctx, err)
	case resp.StatusCode != http.StatusOK:
		r.outcome, r.text = Failed, fmt.Sprintf("%d %s", resp.StatusCode, text)
	default:
		r.outcome, r.text = Broken, fmt.Sprintf("the body ended without an answer: %q", text)
	}
	return r, 0
}

// lostBy is the reply of a request whose connection failed.
func lostBy(ctx context.Context, err error) reply {
	r := reply{outcome: Broken, text: err.Error()}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		r.outcome = Refused // nothing was sent
	} else if ctx.Err() != nil {
		r.outcome = Silent
	}
	return r
}

// parse finds the answers to a request in a body, which is JSON or events.
func parse(kind string, body []byte, id int) (r reply) {
	messages := [][]byte{body}
	if strings.HasPrefix(kind, "text/event-stream") {
		messages = nil
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && len(bytes.TrimSpace(data)) > 0 {
				messages = append(messages, data)
			}
		}
	}
	for _, m := range messages {
		var v struct {
			ID     json.RawMessage
			Result json.RawMessage
			Error  *struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal(m, &v); err != nil || string(v.ID) != strconv.Itoa(id) || v.Result == nil && v.Error == nil {
			continue
		}
		r.answers++
		r.outcome, r.result, r.failure = Result, v.Result, v.Error
		if v.Error != nil {
			r.outcome, r.text = Failed, fmt.Sprintf("%d %s", v.Error.Code, v.Error.Message)
		}
	}
	return r
}

// Start opens the session, where the era has one. False once ctx has ended.
func (c *Client) Start(ctx context.Context) bool {
	for c.Era == sessionEra && c.session == "" {
		c.ask(ctx, "initialize", "", `"protocolVersion":"`+sessionEra+`","capabilities":{},"clientInfo":{"name":"chaos","version":"1"}`)
		if !sleep(ctx, 10*time.Millisecond) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Call calls a tool and records how it ended. ms is for how long the tool works.
func (c *Client) Call(ctx context.Context, tool string, ms int) {
	id := fmt.Sprintf("%s-%d", c.Name, c.serial+1)
	c.h.Add(Event{Kind: CallBegin, Bridge: c.Bridge, Who: c.Name, Tool: tool, ID: id})
	r := c.ask(ctx, "tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":{"id":%q,"ms":%d}`, tool, id, ms))
	e := Event{Kind: CallEnd, ID: id, Outcome: r.outcome, Text: r.text, N: r.answers}
	switch {
	case r.failure != nil && strings.Contains(r.failure.Message, "unknown tool"):
		e.Outcome = NoTool
	case r.outcome == Result:
		var v struct {
			Content []struct{ Text string }
			IsError bool
		}
		if err := json.Unmarshal(r.result, &v); err != nil || len(v.Content) != 1 {
			e.Outcome, e.Text = Failed, string(r.result)
			break
		}
		e.Text = v.Content[0].Text
		if v.IsError {
			e.Outcome = told(e.Text)
		}
	}
	if r.lost {
		c.h.Add(Event{Kind: SessionLost, Bridge: c.Bridge, Who: c.Name, Text: r.text})
	}
	c.h.Add(e)
}

// told is the outcome that the bridge tells in words, for models to read.
func told(text string) Outcome {
	switch {
	case strings.Contains(text, "not delivered"):
		return Away
	case strings.Contains(text, "outcome is unknown"):
		return Unknown
	case strings.Contains(text, "deadline passed"):
		return Late
	case strings.Contains(text, "limit reached"):
		return Busy
	default:
		return Failed
	}
}

// List lists the tools and records which sets it has.
func (c *Client) List(ctx context.Context) {
	from := c.h.Now()
	r := c.ask(ctx, "tools/list", "", "")
	if r.lost {
		c.h.Add(Event{Kind: SessionLost, Bridge: c.Bridge, Who: c.Name, Text: r.text})
	}
	var page struct {
		Tools      []definition
		NextCursor string
	}
	if r.outcome != Result || json.Unmarshal(r.result, &page) != nil {
		return // nothing was seen
	}
	if page.NextCursor != "" {
		c.h.Add(Event{Kind: Broke, Text: "a list has a second page: sets are too large for this harness"})
		return
	}
	c.h.Add(Event{Kind: Listed, Bridge: c.Bridge, Who: c.Name, From: from, Seen: seen(page.Tools)})
}

// sleep waits for d, and tells whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
