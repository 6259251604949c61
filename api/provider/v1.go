package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// bridgeV1 is the dialect bridge.v1: one JSON object of a type a frame.
type bridgeV1 struct {
	*conn
	seed    bool        // the peer is one of the seed's, which never say hello
	grace   *time.Timer // until the peer counts as one that does not say hello; or nil
	spoken  bool        // something came; the reader's own
	greeted atomic.Bool // the peer sent hello, so it knows our newer messages
}

// helloGrace is how long a connection may be silent before it counts as one that
// does not say hello.
const helloGrace = 500 * time.Millisecond

func (c *bridgeV1) greet() error {
	if !c.seed {
		c.grace = time.AfterFunc(helloGrace, func() { _ = c.attachNamed() }) // what it refuses is told at the first message
		return nil
	}
	if err := c.attachNamed(); err != nil {
		return c.unattached(err)
	}
	return nil
}

func (c *bridgeV1) ended() {
	if c.grace != nil {
		c.grace.Stop()
	}
}

func (c *bridgeV1) refused(p *problem) {
	if c.greeted.Load() {
		c.out.send(encode(struct {
			Type    string `json:"type"`
			Code    string `json:"code"`
			Message string `json:"message"`
			Of      string `json:"of,omitempty"`
		}{"error", p.code, p.message, p.of}))
	}
}

var pingV1 = []byte(`{"type":"ping"}`)

// ping sends a message, because that keeps a browser's service worker alive. A script
// may not know the message, but every WebSocket library answers the frame.
func (c *bridgeV1) ping(quiet bool) {
	c.out.send(pingV1)
	if quiet {
		c.e.wg.Go(c.probe)
	}
}

func (c *bridgeV1) reconnect(after time.Duration) {
	if c.greeted.Load() {
		c.out.send(encode(struct {
			Type    string `json:"type"`
			AfterMs int64  `json:"afterMs"`
		}{"reconnect", after.Milliseconds()}))
	}
}

// attachNamed attaches a connection that has not said hello.
func (c *bridgeV1) attachNamed() error {
	return c.attach(session.Hello{Provider: c.named, Retain: -1, Adopt: true}, false)
}

// attached sees to it that the connection is an instance.
func (c *bridgeV1) attached(m *message) error {
	c.mu.Lock()
	inst := c.inst
	c.mu.Unlock()
	if inst != nil {
		return nil
	}
	return aside(func(*message) error { return c.attachNamed() }, m)
}

func (c *bridgeV1) handle(buf *wire.Buffer) (keep bool, err error) {
	first := !c.spoken
	if first {
		c.spoken = true
		c.ended() // the grace
	}
	m, _ := messages.Get().(*message)
	defer func() {
		*m = message{} // so that it holds nobody's memory
		messages.Put(m)
	}()
	if err := m.decode(buf.B, c.e.limits.MessageDepth); err != nil {
		code := "bad_message"
		if _, deep := errors.AsType[*wire.DepthError](err); deep {
			code = "too_deep"
		}
		return false, &problem{code: code, message: err.Error(), of: m.kind}
	}
	if m.kind == "hello" {
		if !first {
			return false, &problem{code: "bad_hello", message: "hello must be the first message", of: m.kind, close: closeBadHello}
		}
		return false, aside(c.hello, m)
	}
	if err := c.attached(m); err != nil {
		return false, c.unattached(err)
	}
	switch m.kind {
	case "toolResult":
		return c.toolResult(m, buf)
	case "toolError":
		return false, c.toolError(m)
	case "registerTools", "unregisterTools":
		if !c.allowedFor(registrationCost) {
			return false, nil
		}
		if m.kind == "registerTools" {
			return false, aside(c.registerTools, m)
		}
		return false, aside(c.unregisterTools, m)
	case "progress":
		return false, c.progress(m)
	case "log":
		return false, c.log(m)
	case "pong":
		return false, nil
	default:
		return false, &problem{code: "unknown_type", message: fmt.Sprintf("messages of type %.40q are not known", m.kind), of: clip(m.kind)}
	}
}

func (c *bridgeV1) toolResult(m *message, buf *wire.Buffer) (keep bool, err error) {
	id, err := m.callID()
	if err != nil {
		return false, &problem{code: "bad_message", message: err.Error(), of: m.kind}
	}
	raw := m.members[mResult]
	if len(raw) == 0 || raw[0] != '{' {
		if err := c.inst.Fail(id, session.ErrBadResult); err != nil {
			return false, err
		}
		return false, &problem{code: "bad_result", message: `member "result" must be an object`, of: m.kind}
	}
	m.result.Buffer = buf
	return true, c.inst.Finish(id, m.result)
}

func (c *bridgeV1) toolError(m *message) error {
	id, err := m.callID()
	if err != nil {
		return &problem{code: "bad_message", message: err.Error(), of: m.kind}
	}
	e, err := readError(m.members[mError], c.e.limits.MessageDepth)
	if err != nil {
		if err := c.inst.Fail(id, session.ErrBadResult); err != nil {
			return err
		}
		return &problem{code: "bad_result", message: err.Error(), of: m.kind}
	}
	return c.inst.Fail(id, e)
}

// readError reads a JSON-RPC error object.
func readError(raw json.RawMessage, depth int) (*session.ProtocolError, error) {
	if raw == nil {
		return nil, errors.New(`member "error" must be an object`)
	}
	s, err := wire.NewScanner(raw, depth)
	if err != nil {
		return nil, err
	}
	var e session.ProtocolError
	coded := false
	err = s.Object(func(name []byte) error {
		v, err := s.Raw()
		switch string(name) {
		case "code":
			n, e2 := strconv.ParseInt(string(v), 10, 32)
			e.Code, coded = int(n), e2 == nil
		case "message":
			e.Message, _ = wire.Text(v)
		case "data":
			e.Data = append([]byte(nil), v...)
		}
		return err
	})
	if err == nil && !coded {
		err = errors.New(`member "error.code" must be an integer`)
	}
	return &e, err
}

func (c *bridgeV1) progress(m *message) error {
	id, err := m.callID()
	if err != nil {
		return &problem{code: "bad_message", message: err.Error(), of: m.kind}
	}
	n, err := strconv.ParseFloat(string(m.members[mProgress]), 64)
	if err != nil {
		return &problem{code: "bad_message", message: `member "progress" must be a number`, of: m.kind}
	}
	if t := m.members[mTotal]; t != nil && t[0] != '-' && (t[0] < '0' || t[0] > '9') {
		return &problem{code: "bad_message", message: `member "total" must be a number`, of: m.kind}
	}
	if t := m.members[mMessage]; t != nil && t[0] != '"' {
		return &problem{code: "bad_message", message: `member "message" must be a string`, of: m.kind}
	}
	return c.inst.Notify(id, session.Event{
		Kind: session.EventProgress, Progress: n, Value: own(m.members[mProgress]),
		Total: own(m.members[mTotal]), Message: own(m.members[mMessage]),
	})
}

func (c *bridgeV1) log(m *message) error {
	if m.members[mCallID] == nil {
		return nil // of no call: no client asked for it
	}
	id, err := m.callID()
	if err != nil {
		return &problem{code: "bad_message", message: err.Error(), of: m.kind}
	}
	level, err := m.text(mLevel, 16)
	if err != nil || wire.LogLevel(level) < 0 {
		return &problem{code: "bad_message", message: `member "level" must be one of ` + wire.LogLevels, of: m.kind}
	}
	if t := m.members[mLogger]; t != nil && t[0] != '"' {
		return &problem{code: "bad_message", message: `member "logger" must be a string`, of: m.kind}
	}
	if m.members[mData] == nil {
		return &problem{code: "bad_message", message: `member "data" is missing`, of: m.kind}
	}
	return c.inst.Notify(id, session.Event{
		Kind: session.EventLog, Level: level, Value: own(m.members[mData]), Logger: own(m.members[mLogger]),
	})
}

// own copies a member out of the frame's memory.
func own(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	return append(json.RawMessage(nil), raw...)
}

// cancels: the seed's providers do not know the message.
func (c *bridgeV1) cancels() bool { return c.greeted.Load() }

func (c *bridgeV1) appendCancel(b []byte, call *session.Call, reason session.Reason) []byte {
	b = append(b, `{"type":"cancelCall","callId":"`...)
	b = call.AppendID(b)
	b = append(b, `","reason":"`...)
	b = append(b, reason.String()...)
	return append(b, `"}`...)
}

// appendCall appends a callTool message. deadlineMs is what is left at now.
func (c *bridgeV1) appendCall(b []byte, call *session.Call, now time.Time) []byte {
	b = append(b, `{"type":"callTool","callId":"`...)
	b = call.AppendID(b)
	b = append(b, `","name":`...)
	b = appendString(b, call.Name())
	b = append(b, `,"params":`...)
	if call.Arguments == nil {
		b = append(b, "{}"...)
	} else {
		b = append(b, call.Arguments...)
	}
	if call.Input.Responses != nil {
		b = append(append(b, `,"inputResponses":`...), call.Input.Responses...)
	}
	if call.Input.State != nil {
		b = append(append(b, `,"requestState":`...), call.Input.State...)
	}
	b = append(b, `,"meta":{"deadlineMs":`...)
	b = strconv.AppendInt(b, max(0, call.Deadline.Sub(now).Milliseconds()), 10)
	if call.Meta.Progress {
		b = append(b, `,"progress":true`...)
	}
	if call.Meta.ClientName != nil {
		b = append(append(b, `,"client":{"name":`...), call.Meta.ClientName...)
		if call.Meta.ClientVersion != nil {
			b = append(append(b, `,"version":`...), call.Meta.ClientVersion...)
		}
		b = append(b, '}')
	}
	if call.Meta.Capabilities != nil {
		b = append(append(b, `,"clientCapabilities":`...), call.Meta.Capabilities...)
	}
	if call.Meta.Traceparent != nil {
		b = append(append(b, `,"traceparent":`...), call.Meta.Traceparent...)
	}
	if call.Meta.LogLevel != "" {
		b = append(append(b, `,"logLevel":"`...), call.Meta.LogLevel...)
		b = append(b, '"')
	}
	return append(b, "}}"...)
}
