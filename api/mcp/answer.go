package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"mcpbridge/api/shape"
	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// exchange is one message of a client and its answer.
type exchange struct {
	e      *Endpoint
	w      http.ResponseWriter
	r      *http.Request
	bridge session.BridgeID
	// principal is who asks: an opaque name.
	principal string
	q         request
	body      *wire.Buffer
	kept      bool          // the body's memory is still in use elsewhere
	to        target        // what is asked of a provider
	questions []question    // of the provider's: those that a legacy client was asked, or a modern one is to be
	replied   chan struct{} // ready when a legacy client has answered one; nil until it was asked
	task      *session.Task // what the call has become; nil while it is a call
	modern    bool
	through   bool          // the tool is called through bridge_call_tool: no header has its arguments
	mcp       *mcpSession   // nil when stateless
	pair      *pair         // nil but for a message of 2024-11-05
	sink      sink          // nil while the answer may still be plain JSON
	events    bool          // the client takes an answer of events
	tied      bool          // what is asked ends with the request's context
	cancelled chan struct{} // closed when the client cancels; nil until tracked
}

// envelope is about what a response has around its result, in bytes.
const envelope = 512

const jsonType = "application/json"

// begin starts a JSON-RPC response with the request's own id.
func (x *exchange) begin(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	if x.q.id == nil {
		return append(b, "null"...)
	}
	return append(b, x.q.id...)
}

// open makes the answer one of events, if it is not yet.
func (x *exchange) open() {
	if x.sink != nil {
		return
	}
	out := open(x.w, x.e.limits.WriteTimeout)
	x.sink = out
	if x.mcp == nil {
		return
	}
	if t := x.e.record(x.mcp, answerTape, x.q.id); t != nil {
		c := t.carry(out, 0, true)
		c.prime()
		x.sink = c
		x.r = x.r.WithContext(context.WithoutCancel(x.r.Context())) // the client may come back for the answer
	}
}

// accepted answers what wants no answer.
func (x *exchange) accepted() {
	if x.sink == nil {
		x.w.WriteHeader(http.StatusAccepted)
	}
}

// send sends a finished response as the only answer, or as the last event.
func (x *exchange) send(status int, message []byte) {
	if x.sink != nil {
		x.sink.answer(message)
		return
	}
	h := x.w.Header()
	h["Content-Type"] = []string{jsonType}
	h["Content-Length"] = []string{strconv.Itoa(len(message))}
	wire.WriteBy(x.w, time.Now().Add(x.e.limits.WriteTimeout))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(message) // a client that has gone needs no answer
}

// result sends a result that the bridge itself made: the members of an object,
// without braces, in pieces. What the modern revision wants is added.
func (x *exchange) result(pieces ...[]byte) { x.typed("complete", pieces...) }

// typed is result for another resultType.
func (x *exchange) typed(resultType string, pieces ...[]byte) {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	buf := wire.NewBuffer(size + envelope)
	b := append(x.begin(buf.B), `,"result":{`...)
	for _, p := range pieces {
		b = append(b, p...)
	}
	if x.modern {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, `"resultType":"`...), resultType...), `","_meta":{`...)
		b = append(append(b, x.e.identity...), '}')
	}
	buf.B = append(b, "}}"...)
	x.send(http.StatusOK, buf.B)
	buf.Release()
}

// toolResult sends a provider's result: its own bytes, and behind them what the
// modern revision wants and they lack.
func (x *exchange) toolResult(r session.Result) {
	if era := x.era(); x.to.method == "" && (era > shape.Structured || era == shape.Structured && r.Loose) && !x.rawWanted() {
		r.Raw = shape.Profile{Era: era}.Result(r.Raw) // of a legacy answer: nothing is put into it
	}
	buf := wire.NewBuffer(len(r.Raw) + envelope)
	b := append(x.begin(buf.B), `,"result":`...)
	raw := r.Raw
	if x.modern {
		if r.MetaAt > 0 && !r.Signed {
			b = append(append(b, raw[:r.MetaAt]...), x.e.identity...)
			raw = raw[r.MetaAt:]
			if !emptied(raw) {
				b = append(b, ',')
			}
		}
		b = append(b, raw[:len(raw)-1]...)
		if !r.Typed {
			b = x.member(b)
			b = append(b, `"resultType":"complete"`...)
		}
		if x.to.method == "resources/read" && !hinted(r.Raw) {
			b = x.member(b)
			b = append(b, cacheHints[1:]...)
		}
		if r.MetaAt == 0 {
			b = x.member(b)
			b = append(append(append(b, `"_meta":{`...), x.e.identity...), '}')
		}
		b = append(b, '}')
	} else {
		b = append(b, raw...)
	}
	buf.B = append(b, '}')
	x.send(http.StatusOK, buf.B)
	buf.Release()
}

// member makes room for one more member of the object that b ends in.
func (x *exchange) member(b []byte) []byte {
	for i := len(b) - 1; ; i-- {
		switch b[i] {
		case ' ', '\t', '\r', '\n':
		case '{':
			return b
		default:
			return append(b, ',')
		}
	}
}

// emptied tells whether an object's members begin with its end.
func emptied(members []byte) bool {
	for _, c := range members {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == '}'
		}
	}
	return true
}

// told sends a result with isError: what the model should read.
func (x *exchange) told(text string) {
	quoted, _ := json.Marshal(text) // a string always encodes
	x.result([]byte(`"content":[{"type":"text","text":`), quoted, []byte(`}],"isError":true`))
}

// fail sends a JSON-RPC error.
func (x *exchange) fail(e *rpcError) {
	b := append(x.begin(nil), `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(e.code), 10)
	quoted, _ := json.Marshal(e.message) // a string always encodes
	b = append(append(b, `,"message":`...), quoted...)
	if e.data != nil {
		b = append(append(b, `,"data":`...), e.data...)
	}
	x.send(e.status, append(b, "}}"...))
}

// failed answers an error of a lower room by the error table.
func (x *exchange) failed(err error) {
	f := x.e.cfg.Fault(err)
	switch {
	case f.Status == http.StatusServiceUnavailable:
		if x.sink == nil {
			retryAfter(x.w, f)
		}
		x.fail(&rpcError{status: f.Status, code: codeInternal, message: f.Message})
	case f.ToolError && x.to.method == "": // a model reads it
		x.told(f.Message)
	default:
		status := http.StatusOK
		if f.Status == http.StatusNotFound && f.Code == 0 { // there is no such bridge
			status = http.StatusNotFound
		}
		if f.Status == http.StatusUnauthorized {
			status = f.Status
		}
		code := f.Code
		if code == 0 {
			code = codeInternal
		}
		x.fail(&rpcError{status: status, code: code, message: f.Message})
	}
}

func retryAfter(w http.ResponseWriter, f wire.Fault) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds()+0.999)))
	}
}
