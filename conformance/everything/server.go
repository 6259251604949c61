package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/clients/provider"
)

const (
	// revision is the only one that the server speaks.
	revision = "2026-07-28"
	// subprotocol is the dialect's.
	subprotocol = "mcp"

	dialTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	frameLimit   = 8 << 20
	// maxRequests bounds the requests that run at once.
	maxRequests = 256
	backoffCap  = 5 * time.Second
)

// JSON-RPC error codes beside those of package provider.
const (
	codeParse             = -32700
	codeInvalidRequest    = -32600
	codeUnknownMethod     = -32601
	codeMissingCapability = -32021
	codeVersion           = -32022
)

var (
	errStopping  = errors.New("the server stops")
	errCancelled = errors.New("the bridge cancelled the request")
	errLost      = errors.New("the connection is lost")
	errDialect   = errors.New("the bridge does not speak dialect mcp")
)

// server is an MCP server that dials its client, a bridge, over WebSocket: one
// JSON-RPC message a text frame, nothing remembered between requests.
type server struct {
	fixtures
	url   string
	token string
	http  *http.Client
	log   *slog.Logger

	peerMu sync.Mutex
	peer   *peer // the connection; nil while there is none
}

func newServer(cfg provider.Config) (*server, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("the URL does not parse")
	}
	if q := u.Query(); !q.Has("provider") { // MCP has no message that would name it
		q.Set("provider", cfg.Provider)
		u.RawQuery = q.Encode()
	}
	s := &server{fixtures: fixtures{whole: true}, url: u.String(), token: cfg.Token, http: cfg.HTTP, log: cfg.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.publish = func(_ context.Context, kind string) error {
		s.peerMu.Lock()
		p := s.peer
		s.peerMu.Unlock()
		if p != nil {
			p.changed(kind)
		}
		return nil
	}
	return s, nil
}

// Run serves one connection after another until ctx ends, or the bridge says that
// it never will.
func (s *server) Run(ctx context.Context) error {
	back := 250 * time.Millisecond
	for ctx.Err() == nil {
		p, err := s.dial(ctx)
		if err == nil {
			back = 250 * time.Millisecond
			s.log.Info("connected")
			err = p.serve(ctx)
		}
		if _, final := errors.AsType[*refusedError](err); final || errors.Is(err, errDialect) {
			return err
		}
		if ctx.Err() == nil {
			s.log.Warn("not connected", "err", err, "again", back)
			_ = wait(ctx, back) // the loop sees that ctx has ended
			back = min(2*back, backoffCap)
		}
	}
	return nil
}

// refusedError is a bridge's answer that another attempt would get too.
type refusedError struct{ code int }

func (e *refusedError) Error() string { return fmt.Sprintf("the bridge refuses us: %d", e.code) }

func (s *server) dial(ctx context.Context) (*peer, error) {
	attempt, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	header := http.Header{}
	if s.token != "" {
		header.Set("Authorization", "Bearer "+s.token)
	}
	//nolint:bodyclose // Dial says that nobody need close it
	ws, resp, err := websocket.Dial(attempt, s.url, &websocket.DialOptions{
		HTTPClient: s.http, HTTPHeader: header, Subprotocols: []string{subprotocol},
	})
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
			return nil, &refusedError{code: resp.StatusCode}
		}
		return nil, err
	}
	if ws.Subprotocol() != subprotocol {
		return nil, errors.Join(errDialect, ws.Close(websocket.StatusProtocolError, "dialect mcp was asked for"))
	}
	ws.SetReadLimit(frameLimit)
	return &peer{s: s, ws: ws, running: map[string]context.CancelCauseFunc{}, listens: map[string]filter{}}, nil
}

// peer is one connection.
type peer struct {
	s  *server
	ws *websocket.Conn

	ctx    context.Context // of all writes and requests
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	stopping bool
	running  map[string]context.CancelCauseFunc // by the request's id, as it was written
	requests sync.WaitGroup

	listening sync.Mutex        // held while listeners are told, so that each hears things in order
	listens   map[string]filter // by the id of subscriptions/listen
}

// serve answers requests until the connection or ctx ends.
func (p *peer) serve(ctx context.Context) error {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.ctx, p.cancel = own, cancel
	p.s.peerMu.Lock()
	p.s.peer = p
	p.s.peerMu.Unlock()
	read := make(chan error, 1)
	go func() { read <- p.read(own) }()
	var err error
	select {
	case err = <-read:
		p.end(errLost)
	case <-ctx.Done():
		p.end(errStopping) // subscriptions are told
		err = errors.Join(p.ws.Close(websocket.StatusNormalClosure, ""), <-read)
	}
	p.cancel(errLost)
	_ = p.ws.CloseNow() // its error says that it was closed before
	p.s.peerMu.Lock()
	p.s.peer = nil
	p.s.peerMu.Unlock()
	if code := websocket.CloseStatus(err); code >= 4400 && code < 4408 {
		return &refusedError{code: int(code)}
	}
	return err
}

// end ends all requests and waits for them.
func (p *peer) end(cause error) {
	p.mu.Lock()
	p.stopping = true
	for _, cancel := range p.running {
		cancel(cause)
	}
	p.mu.Unlock()
	if errors.Is(cause, errLost) {
		p.cancel(cause)
	}
	p.requests.Wait()
}

func (p *peer) read(ctx context.Context) error {
	for {
		kind, frame, err := p.ws.Read(ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			return errors.Join(errors.New("a binary frame"), p.ws.Close(websocket.StatusUnsupportedData, "text frames only"))
		}
		q := &request{}
		switch err := json.Unmarshal(frame, q); {
		case err != nil && !json.Valid(frame):
			p.fail(json.RawMessage("null"), &provider.Error{Code: codeParse, Message: "not JSON"})
		case q.Method == "" || err != nil && q.ID == nil:
			p.s.log.Warn("message ignored")
		case q.ID == nil:
			if q.Method == "notifications/cancelled" {
				p.stop(q.Params.RequestID)
			}
		case err != nil:
			p.fail(q.ID, &provider.Error{Code: provider.CodeInvalidParams, Message: "params have members of a wrong type"})
		default:
			p.begin(ctx, q)
		}
	}
}

// begin answers a request on a goroutine of its own.
func (p *peer) begin(ctx context.Context, q *request) {
	id := string(q.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return
	case p.running[id] != nil:
		p.s.log.Warn("a request's id is in use", "id", id)
		return
	case len(p.running) >= maxRequests:
		p.requests.Go(func() {
			p.fail(q.ID, &provider.Error{Code: provider.CodeInternal, Message: "too many requests at once"})
		})
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.running[id] = cancel
	p.requests.Go(func() {
		defer cancel(nil)
		result, err := p.answer(ctx, q)
		p.mu.Lock()
		delete(p.running, id)
		p.mu.Unlock()
		if cause := context.Cause(ctx); errors.Is(cause, errCancelled) || errors.Is(cause, errLost) {
			return // nobody expects an answer
		}
		if err != nil {
			p.fail(q.ID, err)
			return
		}
		p.write(message{Version: "2.0", ID: q.ID, Result: result})
	})
}

// stop ends a request that the bridge cancelled.
func (p *peer) stop(id json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.running[string(id)]; cancel != nil {
		cancel(errCancelled)
	}
}

func (p *peer) fail(id json.RawMessage, err error) {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		e = &provider.Error{Code: provider.CodeInternal, Message: err.Error()}
	}
	p.write(message{Version: "2.0", ID: id, Error: &fault{Code: e.Code, Message: e.Message, Data: e.Data}})
}

func (p *peer) notify(method string, params any) {
	p.write(message{Version: "2.0", Method: method, Params: params})
}

// write writes a message. What cannot be written ends the connection.
func (p *peer) write(m message) {
	frame, err := encode(m)
	if err == nil {
		late := time.AfterFunc(writeTimeout, func() { p.cancel(errLost) })
		defer late.Stop()
		err = p.ws.Write(p.ctx, websocket.MessageText, frame)
	}
	if err != nil {
		p.s.log.Warn("message lost", "err", err)
		p.cancel(errLost)
	}
}

// message is one that the server sends.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *fault          `json:"error,omitempty"`
}

type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// encode is json.Marshal without HTML escaping.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
