package mcp

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"mcpbridge/session"
)

// A provider of a revision up to 2025-11-25 asks its questions while the call is in
// flight, and waits for the answers. A legacy client gets them on the call's stream. A
// modern client gets a result of type input_required; meanwhile the call is held, and
// the client's next request goes on with it.

// question is one that a provider asks of a modern client.
type question struct {
	key string
	ask *session.Ask
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
	if lacks, err := one.missing(x.caps()); err != nil || lacks != nil {
		name, part, _ := q.capability()
		if part != "" {
			name += "." + part
		}
		a.Answer(session.Reply{Cause: fmt.Errorf("%w: it did not declare %s", session.ErrNobodyToAsk, name)})
		return
	}
	p.extend(answerLimit)
	if x.modern {
		x.questions = append(x.questions, question{ask: a})
		return
	}
	id, done := x.mcp.expect(func(r reply) {
		if r.err != nil {
			a.Answer(session.Reply{Error: r.err})
		} else if len(r.result) > 0 && r.result[0] == '{' {
			a.Answer(session.Reply{Result: r.result})
		} else {
			a.Answer(session.Reply{Cause: errNoResult})
		}
	})
	x.expected = append(x.expected, done)
	p.send(q.message(id))
}

var errNoResult = fmt.Errorf("%w: it answered without a result", session.ErrNobodyToAsk)

// asks tells whether the client may be asked something during a call.
func (x *exchange) asks() bool {
	return len(x.caps()) > len(`{}`) && (x.modern || x.mcp != nil && x.events)
}

// caps are the capabilities that the client declared.
func (x *exchange) caps() json.RawMessage {
	if !x.modern && x.mcp != nil {
		return x.mcp.Caps
	}
	return x.q.meta.caps
}

// held are calls in flight whose modern clients are to answer something.
type held struct {
	mu   sync.Mutex
	byID map[string]*heldCall
}

type heldCall struct {
	session   *session.Session
	call      *session.Call
	questions []question
	asked     int // how many questions there were so far, for their keys
	timer     *time.Timer
}

// hold keeps a call until its client comes back with the answers, and then answers the
// request with the questions.
func (x *exchange) hold(h *heldCall) {
	h.questions, x.questions = x.questions, nil
	b := []byte(`"inputRequests":{`)
	for i := range h.questions {
		q := &h.questions[i]
		h.asked++
		q.key = fmt.Sprintf("ask-%d", h.asked)
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, q.key), `:{"method":`...)
		b = appendText(b, q.ask.Method)
		if q.ask.Params != nil {
			b = append(append(b, `,"params":`...), q.ask.Params...)
		}
		b = append(b, '}')
	}
	id := x.e.held.keep(h, session.ErrTimeout)
	b = appendText(append(b, `},"requestState":`...), x.sealState(stateToken{Held: id}))
	x.typed("input_required", b)
}

// keep notes a call and returns the ID under which it is taken up, once. One that
// nobody takes up in answerLimit ends for a cause.
func (o *held) keep(h *heldCall, cause error) string {
	id := string(session.NewBridgeID()) // unguessable, though it is sealed
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = map[string]*heldCall{}
	}
	o.byID[id] = h
	h.timer = time.AfterFunc(answerLimit, func() {
		if h := o.take(id); h != nil {
			h.session.Abandon(h.call, cause).Result.Release()
		}
	})
	return id
}

// take returns a held call to the one who asks first, and nil to others.
func (o *held) take(id string) *heldCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.byID[id]
	if h != nil {
		h.timer.Stop()
		delete(o.byID, id)
	}
	return h
}

// close stops the timers. The calls end with their sessions.
func (o *held) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.byID {
		h.timer.Stop()
	}
	o.byID = nil
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
