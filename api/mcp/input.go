package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// A provider may ask the client for something before it answers: a result of type
// input_required names requests, and a state that it wants to see again (MCP
// 2026-07-28 patterns/mrtr). A modern client gets that result, and calls again; its
// copy of the state is sealed. A legacy client gets the requests themselves on the
// call's stream, and the bridge calls again.

// inputRequired is a result of type input_required.
type inputRequired struct {
	requests []inputRequest
	state    json.RawMessage // a JSON string, or nil
	stateAt  int             // where state ends in the result
}

// inputRequest is one thing that is asked.
type inputRequest struct {
	key    string
	method string
	params json.RawMessage // an object, or nil
	url    bool            // an elicitation of mode url
	tools  bool            // a sampling with tools
}

var errInputRequired = errors.New("inputRequests must be an object of requests, each with a method")

// readInputRequired reads a result that has been checked as JSON.
func readInputRequired(raw json.RawMessage) (a inputRequired, err error) {
	s := wire.Reread(raw)
	err = s.Object(func(name []byte) error {
		if string(name) == "inputRequests" && s.Kind() == '{' {
			return s.Object(func(key []byte) error {
				q := inputRequest{key: string(key)}
				err := q.read(&s)
				a.requests = append(a.requests, q)
				return err
			})
		}
		v, err := s.Raw()
		switch string(name) {
		case "inputRequests":
			return errInputRequired
		case "requestState":
			a.state, a.stateAt = v, s.Offset()
			if v[0] != '"' {
				return errors.New("requestState must be a string")
			}
		}
		return err
	})
	if err == nil && len(a.requests) == 0 && a.state == nil {
		err = errors.New("input_required needs inputRequests or requestState")
	}
	return a, err
}

func (q *inputRequest) read(s *wire.Scanner) error {
	if s.Kind() != '{' {
		return errInputRequired
	}
	err := s.Object(func(name []byte) error {
		v, err := s.Raw()
		switch string(name) {
		case "method":
			q.method, _ = wire.Text(v)
		case "params":
			q.params = v
		}
		return err
	})
	if err != nil {
		return err
	}
	return q.readParams()
}

// readParams finds what the params need of a client.
func (q *inputRequest) readParams() error {
	if q.method == "" || q.params != nil && q.params[0] != '{' {
		return errInputRequired
	}
	if q.params == nil {
		return nil
	}
	p := wire.Reread(q.params)
	return p.Object(func(name []byte) error {
		v, err := p.Raw()
		switch string(name) {
		case "mode":
			q.url = string(v) == `"url"`
		case "tools":
			q.tools = true
		}
		return err
	})
}

// capability is what a client must have declared to be asked this: its name, and the
// part of it that is needed, if a part is. False for what no client can be asked.
func (q *inputRequest) capability() (name, part string, ok bool) {
	switch q.method {
	case "elicitation/create":
		if q.url {
			part = "url"
		}
		return "elicitation", part, true
	case "sampling/createMessage":
		if q.tools {
			part = "tools"
		}
		return "sampling", part, true
	case "roots/list":
		return "roots", "", true
	}
	return "", "", false
}

// missing is what the client's capabilities lack for the requests, as an object of
// capabilities; nil when they lack nothing.
func (a *inputRequired) missing(caps json.RawMessage) (map[string]map[string]any, error) {
	has := map[string]map[string]json.RawMessage{}
	if caps != nil {
		_ = json.Unmarshal(caps, &has) // capabilities that are no objects are none
	}
	var lacks map[string]map[string]any
	for _, q := range a.requests {
		name, part, ok := q.capability()
		if !ok {
			return nil, fmt.Errorf("no client can be asked for %s", clip(q.method))
		}
		parts, declared := has[name]
		if _, url := parts["url"]; url && name == "elicitation" && part == "" {
			part = "form" // no parts at all would mean it
		}
		if _, within := parts[part]; declared && (part == "" || within) {
			continue
		}
		if lacks == nil {
			lacks = map[string]map[string]any{}
		}
		if lacks[name] == nil {
			lacks[name] = map[string]any{}
		}
		if part != "" {
			lacks[name][part] = map[string]any{}
		}
	}
	return lacks, nil
}

// maxRounds bounds how often one call may ask a legacy client.
const maxRounds = 10

// respond deals with a result that asks. It tells whether the call is to be made
// again, and with what; otherwise the request has been answered.
func (x *exchange) respond(r session.Result, p *pulse, round int) (again bool, input session.Input) {
	a, err := readInputRequired(r.Raw)
	if err != nil {
		x.failed(fmt.Errorf("%w: %w", session.ErrBadResult, err))
		return false, input
	}
	lacks, err := a.missing(x.caps())
	switch {
	case err != nil:
		x.failed(fmt.Errorf("%w: %w", session.ErrBadResult, err))
		return false, input
	case lacks != nil && x.modern:
		data, _ := json.Marshal(map[string]any{"requiredCapabilities": lacks}) // maps of strings always encode
		x.fail(&rpcError{status: http.StatusBadRequest, code: codeMissingCapability, message: "the tool needs a capability that the client did not declare", data: data})
		return false, input
	case x.modern:
		x.askModern(r, a)
		return false, input
	case lacks != nil || x.mcp == nil || !x.events:
		x.told("The tool needs " + needs(a.requests) + ", which this client cannot give.")
		return false, input
	case round == maxRounds:
		x.told(fmt.Sprintf("The tool asked for input %d times; the call was given up.", maxRounds))
		return false, input
	}
	return x.askLegacy(a, p)
}

func needs(requests []inputRequest) string {
	var kinds []string
	for _, q := range requests {
		kind, _, _ := strings.Cut(q.method, "/")
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		return "another round"
	}
	return strings.Join(kinds, " and ")
}

// stateToken is what a sealed requestState says: it is good for the same request of
// the same principal on the same bridge, for a while.
type stateToken struct {
	Bridge    session.BridgeID `json:"b"`
	Principal string           `json:"p"`
	Digest    string           `json:"d"`
	Expires   int64            `json:"x"`           // Unix seconds
	State     json.RawMessage  `json:"s,omitempty"` // the provider's own, a JSON string
	Held      string           `json:"h,omitempty"` // the call in flight that goes on
}

const (
	statePurpose = "request-state"
	stateLife    = time.Hour
)

// askModern passes the result on, with the provider's state sealed.
func (x *exchange) askModern(r session.Result, a inputRequired) {
	if a.state != nil {
		sealed := `"` + x.sealState(stateToken{State: a.state}) + `"`
		start := a.stateAt - len(a.state)
		raw := append([]byte(nil), r.Raw[:start]...)
		raw = append(append(raw, sealed...), r.Raw[a.stateAt:]...)
		if r.MetaAt > start {
			r.MetaAt += len(sealed) - len(a.state)
		}
		r.Raw = raw
	}
	x.toolResult(r)
}

// sealState makes a requestState for this request.
func (x *exchange) sealState(t stateToken) string {
	t.Bridge, t.Principal, t.Digest, t.Expires = x.bridge, x.principal, x.digest(), time.Now().Add(stateLife).Unix()
	text, err := json.Marshal(t)
	if err != nil {
		panic("mcp: " + err.Error()) // its raw member comes from a checked message
	}
	return x.e.cfg.Box.Seal(statePurpose, text)
}

// digest tells requests apart: what is asked, and the arguments however they are
// written.
func (x *exchange) digest() string {
	var arguments any
	if x.q.arguments != nil {
		d := json.NewDecoder(strings.NewReader(string(x.q.arguments)))
		d.UseNumber()
		_ = d.Decode(&arguments) // it has been checked
	}
	canonical, _ := json.Marshal([]any{x.q.method, x.q.name, x.q.uri, arguments}) // what was decoded encodes
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// input reads what a modern client answers to an earlier result that asked: input for
// a new call, or the ID of one that is held.
func (x *exchange) input() (in session.Input, held string, _ *rpcError) {
	if !x.modern {
		return in, "", nil
	}
	if r := x.q.responses; r != nil {
		if r[0] != '{' {
			return in, "", &rpcError{status: http.StatusOK, code: codeInvalidParams, message: `"inputResponses" must be an object`}
		}
		in.Responses = r
	}
	if x.q.state == nil {
		return in, "", nil
	}
	var t stateToken
	text, _ := wire.Text(x.q.state)
	plain, ok := x.e.cfg.Box.Open(statePurpose, text)
	if !ok || json.Unmarshal(plain, &t) != nil || t.Bridge != x.bridge || t.Principal != x.principal ||
		t.Digest != x.digest() || time.Now().Unix() > t.Expires {
		return in, "", &rpcError{status: http.StatusOK, code: codeInvalidParams, message: `"requestState" is not one that was given for this request, or is too old`}
	}
	in.State = t.State
	return in, t.Held, nil
}

// answerLimit is how long a legacy client, and the person before it, may take to
// answer.
const answerLimit = 10 * time.Minute

// askLegacy sends the requests on the call's stream and waits for the answers.
func (x *exchange) askLegacy(a inputRequired, p *pulse) (again bool, input session.Input) {
	b := []byte{'{'}
	for i, q := range a.requests {
		r, ok := x.question(q, p)
		if !ok {
			return false, input
		}
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(q.key) // a string always encodes
		b = append(append(append(b, key...), ':'), r...)
	}
	input.Responses = append(b, '}')
	if a.state != nil { // the result's memory is given back before the next call
		input.State = append(json.RawMessage(nil), a.state...)
	}
	return true, input
}

// question sends one request of ours to the client and waits for its result. False
// when the call has been answered, or nobody is there to be.
func (x *exchange) question(q inputRequest, p *pulse) (result json.RawMessage, ok bool) {
	answered := make(chan reply, 1)
	id, forget := x.mcp.expect(func(r reply) { answered <- r })
	defer forget()
	p.send(q.message(id))
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	deadline := time.NewTimer(answerLimit)
	defer deadline.Stop()
	revoked := x.e.revoked(x.principal)
	for {
		select {
		case r := <-answered:
			if r.err != nil || len(r.result) == 0 || r.result[0] != '{' {
				x.told("The client did not answer the tool's " + q.method + ": " + errorText(r.err))
				return nil, false
			}
			return r.result, true
		case <-x.cancelled:
			x.fail(&rpcError{status: http.StatusOK, code: codeCancelled, message: "the call was cancelled"})
			return nil, false
		case <-deadline.C:
			x.told("The client did not answer the tool's " + q.method + " in time.")
			return nil, false
		case <-alive.C:
			x.sink.alive()
		case <-x.e.quit:
			x.failed(session.ErrShutdown)
			return nil, false
		case <-revoked:
			x.failed(ErrRevoked)
			return nil, false
		case <-x.r.Context().Done():
			return nil, false
		}
	}
}

// message is the question as a request of ours, under a raw id.
func (q *inputRequest) message(id string) []byte {
	b := appendText([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":`), q.method)
	if q.params != nil {
		b = append(append(b, `,"params":`...), q.params...)
	}
	return append(b, '}')
}

// errorText is the message of a JSON-RPC error.
func errorText(raw json.RawMessage) string {
	var e struct{ Message string }
	if raw == nil || json.Unmarshal(raw, &e) != nil || e.Message == "" {
		return "it sent no result"
	}
	return e.Message
}
