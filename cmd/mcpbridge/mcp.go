package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// mcpRevision is what we ask for: the newest with sessions, which every
	// server in use speaks, and whose calls need no headers of the tool's own.
	mcpRevision = "2025-11-25"
	// maxAnswer is the largest message we take, in bytes.
	maxAnswer = 64 << 20
	// goodbye bounds what is still said once the command has ended.
	goodbye = 2 * time.Second
)

// mcpClient is an MCP client for the terminal. It speaks Streamable HTTP and
// passes results on as the server wrote them, byte for byte. It is for one
// goroutine.
type mcpClient struct {
	url   string
	token string // empty sends none
	// notify, if set, is told of progress and log notifications.
	notify func(method string, params json.RawMessage)

	session  string // Mcp-Session-Id, once the server gave one
	revision string // agreed on
	lastID   int64
}

// rpcError is a JSON-RPC error that the server answered.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// message is any JSON-RPC message.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// connect opens the MCP session.
func (c *mcpClient) connect(ctx context.Context) error {
	result, err := c.request(ctx, "initialize", map[string]any{
		"protocolVersion": mcpRevision,
		"capabilities":    struct{}{},
		"clientInfo":      map[string]string{"name": "mcpbridge-cli", "version": buildVersion()},
	})
	if err != nil {
		return err
	}
	var agreed struct{ ProtocolVersion string }
	if err := json.Unmarshal(result, &agreed); err != nil || agreed.ProtocolVersion == "" {
		return fmt.Errorf("%s does not answer like an MCP server", c.url)
	}
	c.revision = agreed.ProtocolVersion
	return c.send(ctx, message{Method: "notifications/initialized"})
}

// close ends the MCP session, so that the server need not keep it. It is polite
// and no more: a failure changes nothing for the caller.
func (c *mcpClient) close(ctx context.Context) {
	if c.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if r, err := c.newRequest(ctx, http.MethodDelete, nil); err == nil {
		if answer, err := noRedirects.Do(r); err == nil {
			answer.Body.Close()
		}
	}
}

// request sends a request and returns the server's result as it came. When ctx
// ends first, the server is told that nobody waits any more. *rpcError if the
// server answered with one.
func (c *mcpClient) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	c.lastID++
	id := json.RawMessage(strconv.FormatInt(c.lastID, 10))
	text, err := encode(params)
	if err != nil {
		return nil, err
	}
	answer, err := c.post(ctx, message{ID: id, Method: method, Params: text})
	if err == nil {
		defer answer.Body.Close()
		if s := answer.Header.Get("Mcp-Session-Id"); s != "" {
			c.session = s
		}
		var result json.RawMessage
		if result, err = c.receive(ctx, answer, id); err == nil {
			return result, nil
		}
	}
	if ctx.Err() != nil {
		if method != "initialize" { // which must not be cancelled
			c.cancel(ctx, id)
		}
		return nil, context.Cause(ctx)
	}
	return nil, err
}

// cancel tells the server that nobody waits for an answer any more. ctx has
// ended; its values are kept.
func (c *mcpClient) cancel(ctx context.Context, id json.RawMessage) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	params, _ := encode(map[string]any{"requestId": id, "reason": "the user interrupted the command"})
	_ = c.send(ctx, message{Method: "notifications/cancelled", Params: params})
}

// send is for what has no answer: notifications, and our answers.
func (c *mcpClient) send(ctx context.Context, m message) error {
	answer, err := c.post(ctx, m)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// post sends one message and returns an answer of status 2xx, whose body the
// caller closes.
func (c *mcpClient) post(ctx context.Context, m message) (*http.Response, error) {
	m.JSONRPC = "2.0"
	text, err := encode(m)
	if err != nil {
		return nil, err
	}
	r, err := c.newRequest(ctx, http.MethodPost, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	answer, err := noRedirects.Do(r)
	if err != nil {
		return nil, unreachable(err)
	}
	if answer.StatusCode/100 != 2 {
		defer answer.Body.Close()
		return nil, refusal(answer)
	}
	return answer, nil
}

func (c *mcpClient) newRequest(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.revision != "" {
		r.Header.Set("MCP-Protocol-Version", c.revision)
	}
	return r, nil
}

// receive reads the answer to request id, which is one JSON message or a stream
// of events that ends with it.
func (c *mcpClient) receive(ctx context.Context, answer *http.Response, id json.RawMessage) (json.RawMessage, error) {
	mediaType, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch mediaType {
	case "application/json":
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
		if err != nil {
			return nil, unreachable(err)
		}
		if len(text) > maxAnswer {
			return nil, errTooLarge
		}
		result, _, err := c.take(ctx, text, id)
		if result == nil && err == nil {
			err = errNoAnswer
		}
		return result, err
	case "text/event-stream":
		events := newEventReader(answer.Body, maxAnswer)
		for {
			data, err := events.next()
			if errors.Is(err, io.EOF) {
				return nil, errNoAnswer
			}
			if err != nil {
				return nil, unreachable(err)
			}
			if result, done, err := c.take(ctx, data, id); done {
				return result, err
			}
		}
	default:
		return nil, fmt.Errorf("%s does not answer like an MCP server: content type %q", c.url, mediaType)
	}
}

// encode is json.Marshal without its escapes for HTML.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

var (
	errNoAnswer = errors.New("the connection ended before the answer came")
	errTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
)

// take handles one message of the server's, and tells whether it is the answer
// to request id.
func (c *mcpClient) take(ctx context.Context, text []byte, id json.RawMessage) (result json.RawMessage, done bool, err error) {
	if len(text) == 0 { // an event without data only primes the stream
		return nil, false, nil
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, true, fmt.Errorf("the server sent what is not JSON-RPC: %w", err)
	}
	switch {
	case m.Method != "" && m.ID == nil:
		if c.notify != nil {
			c.notify(m.Method, m.Params)
		}
	case m.Method == "ping":
		err = c.send(ctx, message{ID: m.ID, Result: json.RawMessage(`{}`)})
	case m.Method != "":
		err = c.send(ctx, message{ID: m.ID, Error: &rpcError{Code: -32601, Message: "a terminal has no " + m.Method}})
	case bytes.Equal(m.ID, id) && m.Error != nil:
		return nil, true, m.Error
	case bytes.Equal(m.ID, id) && m.Result != nil:
		return m.Result, true, nil
	case m.Error != nil: // of a request whose ID the server could not read
		return nil, true, m.Error
	}
	return nil, err != nil, err
}

// noRedirects is the HTTP client of every command: a credential goes to the
// address that the user named, and nowhere else.
var noRedirects = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// unreachable is a transport error without its method and URL, which the user
// has typed already.
func unreachable(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("cannot reach %s: %w", address(e.URL), e.Err)
	}
	return err
}

// address is a URL without its query and user, which may be secrets.
func address(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the server"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// refusal is the error of an answer that is not 2xx: what a problem or a
// JSON-RPC error in its body says, or else its status.
func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	var said struct {
		Detail string
		Errors []struct{ Message, Location string }
		Error  *rpcError
	}
	if json.Unmarshal(text, &said) == nil {
		if said.Error != nil && said.Error.Message != "" && answer.StatusCode != http.StatusUnauthorized {
			return said.Error
		}
		for _, e := range said.Errors {
			said.Detail += fmt.Sprintf("; %s: %s", e.Location, e.Message)
		}
	}
	detail := strings.TrimSuffix(answer.Status+": "+said.Detail, ": ")
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		detail += "; give a token with --token or MCPBRIDGE_TOKEN"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := answer.Header.Get("Retry-After"); after != "" {
			detail += "; try again after " + after + " s"
		}
	}
	return errors.New(detail)
}

// endpoint is the MCP URL of a bridge that the user names by its ID on server,
// or by a URL: of its MCP endpoint, or of the bridge itself.
func endpoint(server, bridge string) (string, error) {
	if !strings.Contains(bridge, "://") {
		if bridge == "" || strings.ContainsAny(bridge, "/?#%") {
			return "", usagef("%q is neither a bridge ID nor a URL", bridge)
		}
		bridge = strings.TrimRight(server, "/") + "/b/" + bridge + "/mcp"
	}
	u, err := url.Parse(bridge)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usagef("%q is not an http or https URL", address(bridge))
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	n := len(parts)
	whole := n >= 3 && parts[n-3] == "b" && parts[n-1] == "mcp"
	if !whole && n >= 2 && parts[n-2] == "b" {
		u = u.JoinPath("mcp")
	}
	return u.String(), nil
}
