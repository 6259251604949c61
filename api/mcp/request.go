package mcp

import (
	"encoding/json"
	"errors"
	"fmt"

	"mcpbridge/api/wire"
)

// JSON-RPC 2.0 and MCP error codes (JSON-RPC 2.0 section 5.1; MCP 2026-07-28
// basic, "Error Codes").
const (
	codeParse             = -32700
	codeInvalidRequest    = -32600
	codeUnknownMethod     = -32601
	codeInvalidParams     = -32602
	codeInternal          = -32603
	codeHeaderMismatch    = -32020
	codeMissingCapability = -32021
	codeVersion           = -32022
	codeCancelled         = -32800 // as the Language Server Protocol's RequestCancelled
	codeNoResource        = -32002 // of the revisions up to 2025-11-25
	codeURLElicitation    = -32042 // of 2025-11-25: its data has the URLs to visit before the request is made again
)

// request is one decoded message of a client. Raw members are sub-slices of the
// body, nil when absent.
type request struct {
	id     json.RawMessage // a string or a number; nil for a notification
	method string
	answer bool // a response: result or error, no method
	result json.RawMessage
	err    json.RawMessage
	params json.RawMessage

	name      string
	named     bool // params.name is a string
	arguments json.RawMessage
	cursor    json.RawMessage
	level     string
	requestID json.RawMessage // of notifications/cancelled
	version   string          // of initialize
	client    client
	uri       string          // of resources
	hasURI    bool            // params.uri is a string
	ref       json.RawMessage // of completion/complete
	argument  json.RawMessage // of completion/complete
	context   json.RawMessage // of completion/complete
	caps      json.RawMessage // of initialize
	listen    json.RawMessage // params.notifications
	responses json.RawMessage // params.inputResponses
	state     json.RawMessage // params.requestState
	taskID    json.RawMessage // of tasks/*

	meta meta
}

// client is what a client says of itself. Raw members are JSON strings.
type client struct {
	name, version json.RawMessage
}

// meta is the part of params._meta that the bridge reads.
type meta struct {
	version     json.RawMessage // a string in a good request
	caps        json.RawMessage // an object in a good request
	client      client
	level       json.RawMessage
	token       json.RawMessage // a string or a number
	traceparent json.RawMessage
}

// Names of the envelope's members, and of those in params that must be clear.
var (
	envelopeNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsNames   = []string{"name", "arguments", "_meta"}
)

// rpcError is an answer that is a JSON-RPC error.
type rpcError struct {
	status  int // HTTP
	code    int
	message string
	data    json.RawMessage
}

func (e *rpcError) Error() string { return e.message }

func invalid(format string, args ...any) *rpcError {
	return &rpcError{status: 400, code: codeInvalidRequest, message: fmt.Sprintf(format, args...)}
}

// decode reads a body that must be one JSON-RPC message, visiting each byte once.
// The id is returned also with an error, where it could be read.
func decode(body []byte, depth int) (q request, _ *rpcError) {
	s, err := wire.NewScanner(body, depth)
	if err != nil {
		return q, notJSON(err)
	}
	switch s.Kind() {
	case '[':
		return q, batch(&s)
	case '{':
	default:
		if _, err := s.Raw(); err != nil {
			return q, notJSON(err)
		}
		return q, invalid("a message must be a JSON object")
	}
	var version, method, id json.RawMessage
	names := wire.NewMembers(envelopeNames...)
	err = s.Object(func(name []byte) (err error) {
		i, err := names.Check(name)
		if err != nil {
			return err
		}
		if i == 3 && s.Kind() == '{' {
			start := s.Offset()
			err = q.readParams(&s)
			q.params = body[start:s.Offset():s.Offset()]
			return err
		}
		v, err := s.Raw()
		switch i {
		case 0:
			version = v
		case 1:
			id = v
		case 2:
			method = v
		case 3:
			if err == nil && string(v) != "null" { // JSON-RPC allows an array; MCP does not
				return errParams
			}
		case 4:
			q.answer, q.result = true, v
		case 5:
			q.answer, q.err = true, v
		}
		return err
	})
	if err == nil {
		err = s.End()
	}
	if isID(id) {
		q.id = id
	}
	if err != nil {
		return q, notJSON(err)
	}
	if string(version) != `"2.0"` {
		return q, invalid(`member "jsonrpc" must be "2.0"`)
	}
	if id != nil && q.id == nil {
		return q, invalid(`member "id" must be a string or a number`)
	}
	if method == nil {
		if q.answer {
			return q, nil
		}
		return q, invalid(`member "method" is missing`)
	}
	var ok bool
	if q.method, ok = methodName(method); !ok {
		return q, invalid(`member "method" must be a string`)
	}
	q.answer = false
	return q, nil
}

var errParams = errors.New(`member "params" must be an object`)

// notJSON tells a message that is no JSON from one that is ambiguous or too deep.
func notJSON(err error) *rpcError {
	if _, ok := errors.AsType[*wire.SyntaxError](err); ok || errors.Is(err, wire.ErrUTF8) {
		return &rpcError{status: 400, code: codeParse, message: err.Error()}
	}
	return invalid("%v", err)
}

// batch refuses an array where one message is wanted.
func batch(s *wire.Scanner) *rpcError {
	n := 0
	err := s.Array(func() error {
		n++
		_, err := s.Raw()
		return err
	})
	switch {
	case err != nil:
		return notJSON(err)
	case n == 0:
		return invalid("an empty batch has nothing to answer")
	default:
		return invalid("batches are not taken here; send each message on its own")
	}
}

func isID(raw json.RawMessage) bool { return len(raw) > 0 && (raw[0] == '"' || isNumber(raw)) }

func isNumber(raw json.RawMessage) bool {
	return raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9'
}

// methodName returns a method's name without allocating for the common ones.
func methodName(raw json.RawMessage) (string, bool) {
	switch string(raw) {
	case `"tools/call"`:
		return "tools/call", true
	case `"tools/list"`:
		return "tools/list", true
	}
	return wire.Text(raw)
}

func (q *request) readParams(s *wire.Scanner) error {
	names := wire.NewMembers(paramsNames...)
	return s.Object(func(name []byte) error {
		if _, err := names.Check(name); err != nil {
			return err
		}
		member := string(name) // does not escape
		if member == "_meta" && s.Kind() == '{' {
			return q.meta.read(s)
		}
		if member == "clientInfo" && s.Kind() == '{' {
			return q.client.read(s)
		}
		v, err := s.Raw()
		if err != nil {
			return err
		}
		switch member {
		case "name":
			q.name, q.named = wire.Text(v)
		case "arguments":
			q.arguments = v
		case "cursor":
			if string(v) != "null" { // as some clients write one that they do not have
				q.cursor = v
			}
		case "level":
			q.level, _ = wire.Text(v)
		case "requestId":
			q.requestID = v
		case "protocolVersion":
			q.version, _ = wire.Text(v)
		case "uri":
			q.uri, q.hasURI = wire.Text(v)
		case "ref":
			q.ref = v
		case "argument":
			q.argument = v
		case "context":
			q.context = v
		case "notifications":
			q.listen = v
		case "capabilities":
			q.caps = v
		case "inputResponses":
			q.responses = v
		case "requestState":
			q.state = v
		case "taskId":
			q.taskID = v
		}
		return nil
	})
}

func (m *meta) read(s *wire.Scanner) error {
	return s.Object(func(name []byte) error {
		if string(name) == "io.modelcontextprotocol/clientInfo" && s.Kind() == '{' {
			return m.client.read(s)
		}
		v, err := s.Raw()
		if err != nil {
			return err
		}
		switch string(name) {
		case "io.modelcontextprotocol/protocolVersion":
			m.version = v
		case "io.modelcontextprotocol/clientCapabilities":
			m.caps = v
		case "io.modelcontextprotocol/logLevel":
			m.level = v
		case "progressToken":
			if isID(v) {
				m.token = v
			}
		case "traceparent":
			if v[0] == '"' && len(v) <= maxTraceparent {
				m.traceparent = v
			}
		}
		return nil
	})
}

// Bounds of what is passed on to providers, in bytes of JSON.
const (
	maxTraceparent = 64
	maxClientText  = 128
)

func (c *client) read(s *wire.Scanner) error {
	return s.Object(func(name []byte) error {
		v, err := s.Raw()
		if err != nil || v[0] != '"' || len(v) > maxClientText {
			return err
		}
		switch string(name) {
		case "name":
			c.name = v
		case "version":
			c.version = v
		}
		return nil
	})
}
