package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"

	"mcpbridge/api/schema"
	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// syntheticEvery is how often a client that asked for progress gets a sign of it
// while the provider is silent: some clients count their timeout from the last.
const syntheticEvery = 10 * time.Second

// call answers tools/call.
func (x *exchange) call() {
	if !x.q.named {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `params must have "name", a string`})
		return
	}
	if a := x.q.arguments; a != nil && a[0] != '{' {
		if string(a) != "null" {
			x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `"arguments" must be an object`})
			return
		}
		x.q.arguments = nil
	}
	s, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	offer := s.Catalog().Of(session.KindTool).Find(x.q.name)
	if offer == nil && x.metaTool(s) {
		return
	}
	timeout, bad := x.timeout(offer)
	if bad != nil {
		x.fail(bad)
		return
	}
	if offer != nil {
		if bad := x.checkParams(offer); bad != nil {
			x.fail(bad)
			return
		}
		if err := x.checkArguments(offer); err != nil {
			x.told("The arguments do not fit the tool's input schema: " + err.Error())
			return
		}
	}
	x.to = target{kind: session.KindTool, name: x.q.name, timeout: timeout}
	if offer != nil && x.modern {
		if bad := x.plan(offer); bad != nil {
			x.fail(bad)
			return
		}
	}
	x.invoke(s)
}

// target is what a request asks of a provider.
type target struct {
	kind    session.Kind
	name    string          // exposed
	method  string          // empty for tools/call
	uri     string          // as the provider knows it, where that is not the offer's own name
	extra   json.RawMessage // more members of params
	timeout time.Duration
	// keepAfter is when the call becomes a task, 0 for never; asTask is how long it may
	// take from then on, and told what its provider is told if not timeout.
	keepAfter, asTask, told time.Duration

	unknown *rpcError // what is said when nobody offers it; nil says what the error table does
}

// invoke makes the call that x.to describes, again for as long as the provider asks
// for input first, and answers with its outcome.
func (x *exchange) invoke(s *session.Session) {
	input, heldID, bad := x.input()
	if bad != nil {
		x.fail(bad)
		return
	}
	if x.mcp != nil && x.cancelled == nil {
		var done func()
		x.cancelled, done = x.mcp.track(string(x.q.id))
		defer done()
	}
	p := newPulse(x)
	for round := 0; ; round++ {
		var o session.Outcome
		if heldID != "" {
			h := x.takeUp(heldID, input.Responses)
			if h == nil {
				return
			}
			heldID, input = "", session.Input{}
			o = x.goOn(h, p)
		} else {
			o = x.attempt(s, p, input)
		}
		if errors.Is(o.Err, errHeld) {
			return // it has been answered
		}
		if o.Err != nil || !o.Result.Asks {
			x.finish(o)
			o.Result.Release()
			return
		}
		again, next := x.respond(o.Result, p, round)
		o.Result.Release()
		if !again {
			return
		}
		input = next
	}
}

// attempt makes one call and waits for its outcome.
func (x *exchange) attempt(s *session.Session, p *pulse, input session.Input) session.Outcome {
	for {
		now := time.Now()
		c := &session.Call{
			Kind: x.to.kind, Principal: x.principal, Tool: x.to.name, Method: x.to.method, Target: x.to.uri, Extra: x.to.extra,
			Arguments: x.q.arguments, Input: input, Deadline: now.Add(max(x.to.timeout, x.to.told)), Events: x.events, Asks: x.asks(),
			Meta: session.CallMeta{Traceparent: x.q.meta.traceparent},
		}
		x.describe(c)
		err := s.Begin(c)
		if err == nil {
			o := x.goOn(&heldCall{session: s, call: c}, p)
			if !errors.Is(o.Err, session.ErrStopped) {
				return o
			}
		}
		// The session ended before it took the call: the next one may.
		if s, err = x.e.cfg.Directory.Session(x.r.Context(), x.bridge); err != nil {
			return session.Outcome{Err: err}
		}
	}
}

// errHeld is the outcome of a call that waits for the client's answers.
var errHeld = errors.New("the call waits for the client's answers")

// goOn waits for the outcome of a call in flight. One that asks a modern client
// something is held, and the request answered.
func (x *exchange) goOn(h *heldCall, p *pulse) session.Outcome {
	p.restart()
	for {
		o := x.await(h.session, h.call, p)
		x.kept = x.kept || !h.call.Settled()
		if !errors.Is(o.Err, errHeld) {
			x.unask(p, (*session.Ask).Answered) // by the call's end
			return o
		}
		if x.hold(h) {
			return o
		}
	}
}

// errNotTaken ends a call that waits for its provider when the process does.
var errNotTaken = fmt.Errorf("%w; the call was not delivered: call again", session.ErrShutdown)

// describe tells the provider of the client.
func (x *exchange) describe(c *session.Call) {
	c.Meta.Progress = x.q.meta.token != nil && c.Events
	switch {
	case x.modern:
		c.Meta.ClientName, c.Meta.ClientVersion = x.q.meta.client.name, x.q.meta.client.version
		c.Meta.LogLevel, _ = wire.Text(x.q.meta.level)
		c.Meta.Capabilities = forProviders(x.q.meta.caps)
	case x.mcp != nil:
		c.Meta.ClientName, c.Meta.ClientVersion, c.Meta.Capabilities = x.mcp.Name, x.mcp.Release, forProviders(x.mcp.Caps)
	}
	if c.Events && !x.modern { // it gets log messages without asking for them
		c.Meta.LogLevel = wire.LevelName(x.least())
	}
}

// timeout is the call's deadline: the client's wish in the URL, the tool's own, or
// the default.
func (x *exchange) timeout(offer *session.Offer) (time.Duration, *rpcError) {
	l := x.e.limits
	if x.r.URL.RawQuery != "" {
		if text := x.r.URL.Query().Get("timeout"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil || !(seconds > 0 && seconds <= l.CallTimeoutMax.Seconds()) {
				return 0, &rpcError{
					status: 400, code: codeInvalidParams,
					message: "timeout in the URL must be a number of seconds above 0 and at most " + strconv.FormatFloat(l.CallTimeoutMax.Seconds(), 'g', -1, 64),
				}
			}
			return time.Duration(seconds * float64(time.Second)), nil
		}
	}
	if offer != nil && offer.Tool.Timeout > 0 {
		return offer.Tool.Timeout, nil
	}
	return l.CallTimeout, nil
}

// derived is what the endpoint keeps with an offer.
type derived struct {
	input  *schema.Schema // nil when arguments cannot be checked
	params *mcpgo.Tool    // nil when no parameter travels in a header
	tasks  taskSupport
}

func derive(o *session.Offer) *derived {
	d, _ := o.Memo(func() any {
		d := &derived{tasks: readTaskSupport(o.Tool.Definition)}
		input := inputSchema(o.Tool.Definition)
		if compiled, err := schema.Compile(input); err == nil {
			d.input = compiled
		}
		if o.Tool.Headers {
			d.params = &mcpgo.Tool{Name: o.Tool.Name, RawInputSchema: input}
		}
		return d
	}).(*derived)
	return d
}

// inputSchema finds the schema in a definition that has been checked.
func inputSchema(definition []byte) (input []byte) {
	s := wire.Reread(definition)
	_ = s.Object(func(name []byte) error { // what has been checked has no errors
		v, err := s.Raw()
		if string(name) == "inputSchema" {
			input = v
		}
		return err
	})
	return input
}

// checkArguments checks the arguments against the tool's schema. Whoever calls
// should read what is wrong, so it becomes a result with isError (SEP-1303).
func (x *exchange) checkArguments(o *session.Offer) error {
	if d := derive(o); d.input != nil {
		return d.input.Validate(x.q.arguments)
	}
	return nil
}

// checkParams checks that the headers of a modern request say what the arguments
// say, where the schema puts them into headers (x-mcp-header).
func (x *exchange) checkParams(o *session.Offer) *rpcError {
	if !x.modern || !o.Tool.Headers || x.through {
		return nil
	}
	lookup := func(name string) (string, bool) {
		v, ok := x.r.Header[http.CanonicalHeaderKey(name)]
		if !ok {
			return "", false
		}
		return v[0], true
	}
	if err := mcpgo.ValidateParamHeadersLookup(lookup, derive(o).params, x.q.params); err != nil {
		return &rpcError{status: 400, code: codeHeaderMismatch, message: err.Error()}
	}
	return nil
}

// accepts tells whether the client takes an answer of events.
func accepts(r *http.Request) bool {
	for _, v := range r.Header["Accept"] {
		if strings.Contains(v, "text/event-stream") || strings.Contains(v, "*/*") {
			return true
		}
	}
	return false
}

// await waits for the call's outcome and passes on what comes before it.
func (x *exchange) await(s *session.Session, c *session.Call, p *pulse) session.Outcome {
	var gone <-chan struct{} // a legacy client that disconnects cancels nothing
	if x.tied {
		gone = x.r.Context().Done()
	}
	p.c = c
	p.parkBy = time.Time{}
	if !c.Meta.Progress { // whoever hears progress is told that it waits
		p.parkBy = time.Now().Add(x.e.limits.Park)
	}
	timer := time.NewTimer(p.next(time.Now()))
	defer timer.Stop()
	quit, revoked := x.e.quit, x.e.revoked(x.principal)
	var keep <-chan time.Time
	if x.to.keepAfter > 0 {
		t := time.NewTimer(x.to.keepAfter)
		defer t.Stop()
		keep = t.C
	}
	for {
		select {
		case o := <-c.Done():
			p.relay()
			return o
		case <-c.Signal():
			p.relay()
			if x.modern && len(x.questions) > 0 {
				return session.Outcome{Err: errHeld}
			}
		case <-x.replied:
			x.unask(p, (*session.Ask).Answered)
			timer.Reset(p.next(time.Now()))
		case <-x.deaf():
			for _, q := range x.questions {
				q.ask.Answer(session.Reply{Cause: session.ErrShutdown})
			}
			x.unask(p, (*session.Ask).Answered)
			timer.Reset(p.next(time.Now()))
		case <-quit: // the next process may take it, if no provider has
			quit = nil
			s.Unpark(c, errNotTaken)
		case <-keep:
			if o, done := x.keep(s, c); done {
				p.relay()
				return o
			}
		case <-revoked:
			s.Abandon(c, session.ErrCancelled).Result.Release()
			return session.Outcome{Err: ErrRevoked}
		case <-gone:
			return s.Abandon(c, session.ErrCancelled)
		case <-x.cancelled:
			return s.Abandon(c, session.ErrCancelled)
		case now := <-timer.C:
			if !now.Before(p.deadline) {
				o := s.Abandon(c, session.ErrTimeout)
				p.relay()
				return o
			}
			if !p.parkBy.IsZero() && !now.Before(p.parkBy) {
				p.parkBy = time.Time{}
				s.Unpark(c, nil)
			}
			p.beat(now)
			timer.Reset(p.next(now))
		}
	}
}

// finish answers with the outcome.
func (x *exchange) finish(o session.Outcome) {
	if o.Err == nil {
		x.toolResult(o.Result)
		return
	}
	if x.task != nil && errors.Is(o.Err, errKept) {
		x.created()
		return
	}
	if x.to.unknown != nil && errors.Is(o.Err, session.ErrUnknownTool) {
		x.fail(x.to.unknown)
		return
	}
	if e, ok := errors.AsType[*session.ProtocolError](o.Err); ok {
		x.fail(x.passed(e))
		return
	}
	if errors.Is(o.Err, session.ErrCancelled) {
		if !x.modern { // a modern client has gone
			x.fail(&rpcError{status: http.StatusOK, code: codeCancelled, message: "the call was cancelled"})
		}
		return
	}
	x.failed(o.Err)
}

// passed is a provider's own error as clients see it: codes that the protocol
// reserves for itself become -32603, but for those that a provider which speaks
// that protocol has a use for.
func (x *exchange) passed(e *session.ProtocolError) *rpcError {
	code, status := e.Code, http.StatusOK
	switch {
	case code == codeNoResource && x.modern: // no code of that revision
		code = codeInvalidParams
	case code == codeMissingCapability && x.modern: // it was told what the client can do
		status = http.StatusBadRequest
	case code == codeURLElicitation && !x.modern: // later revisions forbid it
	case code == codeInvalidParams, code == codeInternal:
	case code >= -32019 && code <= -32000:
	case code < -32768 || code > -32000:
	default:
		code = codeInternal
	}
	return &rpcError{status: status, code: code, message: e.Message, data: e.Data}
}
