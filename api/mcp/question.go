package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"mcpbridge/session"
)

// A provider of a revision up to 2025-11-25 asks its questions while the call is in
// flight, and waits for the answers. A legacy client gets them on the call's stream. A
// modern client gets a result of type input_required; meanwhile the call is held, and
// the client's next request goes on with it.

// question is one that a provider asks of the request's client.
type question struct {
	ask    *session.Ask
	key    string      // under which a modern client answers
	id     string      // of the request to a legacy client, raw
	forget func() bool // expects no answer to that; false when there was one
}

// put takes a provider's question for this request's client.
func (x *exchange) put(a *session.Ask, p *pulse) {
	if a.Answered() { // its call has ended
		return
	}
	q := inputRequest{method: a.Method, params: a.Params}
	if err := q.readParams(); err != nil {
		a.Answer(session.Reply{Cause: fmt.Errorf("params: %w", err)})
		return
	}
	one := inputRequired{requests: []inputRequest{q}}
	switch lacks, err := one.missing(x.caps()); {
	case err != nil:
		a.Answer(session.Reply{Cause: fmt.Errorf("%w: %w", session.ErrNobodyToAsk, err)})
		return
	case lacks != nil:
		a.Answer(session.Reply{Cause: fmt.Errorf("%w: it did not declare %s", session.ErrNobodyToAsk, nameOf(lacks))})
		return
	case x.modern:
		x.questions = append(x.questions, question{ask: a})
		return
	}
	if x.replied == nil {
		x.replied = make(chan struct{}, 1)
	}
	replied := x.replied
	id, forget := x.mcp.expect(func(r reply) {
		switch {
		case r.err != nil:
			a.Answer(session.Reply{Error: r.err})
		case len(r.result) > 0 && r.result[0] == '{':
			a.Answer(session.Reply{Result: r.result})
		default:
			a.Answer(session.Reply{Cause: errNoResult})
		}
		select {
		case replied <- struct{}{}:
		default:
		}
	})
	x.questions = append(x.questions, question{ask: a, id: id, forget: forget})
	p.extend(answerLimit)
	p.send(q.message(id))
}

// nameOf is the one capability that is lacking.
func nameOf(lacks map[string]map[string]any) string {
	for name, parts := range lacks {
		for part := range parts {
			return name + "." + part
		}
		return name
	}
	return ""
}

// unask drops the questions that need no answer any more, and tells a legacy client of
// those that it has not answered. Without any left, the call's time starts anew.
func (x *exchange) unask(p *pulse, over func(*session.Ask) bool) {
	if len(x.questions) == 0 {
		return
	}
	x.questions = slices.DeleteFunc(x.questions, func(q question) bool {
		if !over(q.ask) {
			return false
		}
		if q.forget != nil && q.forget() {
			p.send([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + q.id + `}}`))
		}
		return true
	})
	if len(x.questions) == 0 {
		p.restart()
	}
}

var errNoResult = fmt.Errorf("%w: it answered without a result", session.ErrNobodyToAsk)

// deaf is closed when the process takes no answers any more; nil while none is awaited.
func (x *exchange) deaf() <-chan struct{} {
	if x.modern || len(x.questions) == 0 {
		return nil
	}
	return x.e.quit
}

// asks tells whether the client may be asked something during a call.
func (x *exchange) asks() bool {
	switch x.to.method { // MCP 2026-07-28 patterns/mrtr has no others
	case "", "prompts/get", "resources/read":
		return len(x.caps()) > len(`{}`) && (x.modern || x.mcp != nil && x.events)
	}
	return false
}

// caps are the capabilities that the client declared.
func (x *exchange) caps() json.RawMessage {
	if !x.modern && x.mcp != nil {
		return x.mcp.Caps
	}
	return x.q.meta.caps
}

// maxHeld bounds the held calls of one bridge, those that have ended meanwhile too.
const maxHeld = 64

// held are calls whose modern clients are to answer something.
type held struct {
	mu      sync.Mutex
	byID    map[string]*heldCall
	bridges map[session.BridgeID]int // how many each has
	closed  bool
}

type heldCall struct {
	session   *session.Session
	call      *session.Call
	questions []question
	asked     int // how many questions there were so far, for their keys
	timer     *time.Timer
}

// hold keeps a call until its client comes back with the answers, and answers the
// request with the questions. False when there is no room: the call goes on without
// the answers.
func (x *exchange) hold(h *heldCall) bool {
	h.questions, x.questions = x.questions, nil
	id, err := x.e.held.keep(h)
	if err != nil {
		for _, q := range h.questions {
			q.ask.Answer(session.Reply{Cause: err})
		}
		h.questions = nil
		return false
	}
	x.kept = true // the call's members lie in the body
	b := []byte(`"inputRequests":{`)
	for i := range h.questions {
		q := &h.questions[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendText(b, q.key), ':'), q.ask.Request()...)
	}
	b = appendText(append(b, `},"requestState":`...), x.sealState(stateToken{Held: id}))
	x.typed("input_required", b)
	return true
}

// keep notes a call and returns the ID under which it is taken up, once. One that
// nobody takes up in answerLimit is given up.
func (o *held) keep(h *heldCall) (id string, err error) {
	for i := range h.questions {
		h.asked++
		h.questions[i].key = "ask-" + strconv.Itoa(h.asked)
	}
	id = string(session.NewBridgeID()) // unguessable, though it is sealed
	bridge := h.session.Bridge()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return "", session.ErrShutdown
	case o.bridges[bridge] >= maxHeld:
		return "", &session.LimitError{Limit: "calls of a bridge that wait for their clients' answers", Max: maxHeld}
	case o.byID == nil:
		o.byID, o.bridges = map[string]*heldCall{}, map[session.BridgeID]int{}
	}
	o.byID[id] = h
	o.bridges[bridge]++
	h.timer = time.AfterFunc(answerLimit, func() {
		if h := o.take(id); h != nil {
			h.giveUp(session.ErrTimeout)
		}
	})
	return id, nil
}

func (h *heldCall) giveUp(cause error) { h.session.Abandon(h.call, cause).Result.Release() }

// take returns a held call to the one who asks first, and nil to others.
func (o *held) take(id string) *heldCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.byID[id]
	if h == nil {
		return nil
	}
	h.timer.Stop()
	delete(o.byID, id)
	bridge := h.session.Bridge()
	if o.bridges[bridge]--; o.bridges[bridge] == 0 {
		delete(o.bridges, bridge)
	}
	return h
}

// close gives up all of them: their clients cannot come back to this process.
func (o *held) close() {
	o.mu.Lock()
	all := o.byID
	o.byID, o.bridges, o.closed = nil, nil, true
	o.mu.Unlock()
	for _, h := range all {
		h.timer.Stop()
		h.giveUp(session.ErrShutdown)
	}
}

// takeUp goes on with a held call, with the answers to its questions. Nil when the
// request has been answered.
func (x *exchange) takeUp(id string, responses json.RawMessage) *heldCall {
	h := x.e.held.take(id)
	if h == nil {
		x.told("The call that this answers is not waiting any more; its outcome is unknown.")
		return nil
	}
	var answers map[string]json.RawMessage
	if responses != nil {
		_ = json.Unmarshal(responses, &answers) // it has been checked to be an object
	}
	for _, q := range h.questions {
		switch a := answers[q.key]; {
		case len(a) == 0:
			q.ask.Answer(session.Reply{Cause: fmt.Errorf("%w: it gave no answer", session.ErrNobodyToAsk)})
		case a[0] != '{':
			q.ask.Answer(session.Reply{Cause: errNoResult})
		default:
			q.ask.Answer(session.Reply{Result: append(json.RawMessage(nil), a...)})
		}
	}
	h.questions = nil
	return h
}
