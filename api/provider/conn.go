package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// conn is one provider's connection.
type conn struct {
	e      *Endpoint
	ws     *websocket.Conn
	bridge session.BridgeID
	born   int64 // the keeper's beat when it came; pings are due at whole intervals after it
	out    outbox

	greeted atomic.Bool  // it sent hello, so it knows our newer messages
	heard   atomic.Int64 // the keeper's beat at which something last came
	shut    atomic.Bool  // close was called

	mu    sync.Mutex         // guards what follows, for which the first message and the grace race
	named session.ProviderID // who speaks: from hello, the URL, or the default
	inst  *session.Instance
	left  bool // the reader has ended

	bad int // messages refused; owned by the reader
}

// maxBad is how many messages of a connection are refused before it is closed.
const maxBad = 100

// attach makes the connection an instance, once; with again it may become another
// provider's.
func (c *conn) attach(h session.Hello, again bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return session.ErrProviderGone
	}
	if c.inst != nil {
		if !again {
			return nil
		}
		c.inst.Detach(time.Now())
		c.inst = nil
	}
	return c.e.cfg.Directory.With(context.Background(), c.bridge, func(s *session.Session) (err error) {
		c.inst, err = s.Attach(h, &c.out, time.Now())
		return err
	})
}

// attachNamed attaches a connection that has not said hello.
func (c *conn) attachNamed() error {
	return c.attach(session.Hello{Provider: c.named, Retain: -1, Adopt: true}, false)
}

// attached sees to it that the connection is an instance.
func (c *conn) attached(m *message) error {
	c.mu.Lock()
	inst := c.inst
	c.mu.Unlock()
	if inst != nil {
		return nil
	}
	return aside(func(*message) error { return c.attachNamed() }, m)
}

// read reads until the connection ends.
func (c *conn) read(grace *time.Timer) {
	first := true
	var err error
	for {
		var kind websocket.MessageType
		var r io.Reader
		if kind, r, err = c.ws.Reader(context.Background()); err != nil {
			break
		}
		c.heard.Store(c.e.beat.Load())
		if kind != websocket.MessageText {
			c.refuseClose(websocket.StatusUnsupportedData, "only text frames of JSON are taken")
			break
		}
		buf := wire.NewBuffer(0)
		if err = buf.Fill(r, c.e.limits.FrameBytes); err != nil {
			buf.Release()
			if errors.Is(err, wire.ErrTooLong) {
				c.refuseClose(websocket.StatusMessageTooBig, fmt.Sprintf("a message may have at most %d bytes", c.e.limits.FrameBytes))
			}
			break
		}
		if first && grace != nil {
			grace.Stop()
		}
		keep, bad := c.handle(buf, first)
		if !keep {
			buf.Release()
		}
		if bad != nil && !c.complain(bad) {
			break
		}
		first = false
	}
	if grace != nil {
		grace.Stop()
	}
	c.mu.Lock()
	c.left = true
	inst := c.inst
	c.mu.Unlock()
	if inst != nil {
		inst.Detach(time.Now())
	}
	_ = c.ws.CloseNow() // the descriptor stays open after a failed read
	c.e.remove(c)
}

// refuseClose closes for a fault of the peer's, waiting for it to hear why.
func (c *conn) refuseClose(code websocket.StatusCode, reason string) {
	if !c.shut.Swap(true) {
		c.e.cfg.Log.Info("provider refused", "bridge", c.bridge, "code", int(code), "reason", reason)
		_ = c.ws.Close(code, reason) // the peer may be gone
	}
}

// close tells the peer why and ends the connection; the reader then ends.
func (c *conn) close(cause error) {
	if c.shut.Swap(true) {
		return
	}
	f := c.e.cfg.Fault(cause)
	if f.Close == 0 {
		f.Close = int(websocket.StatusInternalError)
	}
	_ = c.ws.Close(websocket.StatusCode(f.Close), closeReason(f.Message))
}

// closeReason cuts a text to what a close frame holds: 123 bytes (RFC 6455,
// section 5.5).
func closeReason(text string) string {
	if len(text) > 123 {
		return text[:120] + "..."
	}
	return text
}

// problem is why a message was refused.
type problem struct {
	code    string // stable word
	message string
	of      string               // the message's type, where known
	close   websocket.StatusCode // closes the connection; 0 keeps it
}

func (p *problem) Error() string { return p.message }

// complain tells the provider of a refused message. False when it was closed.
func (c *conn) complain(err error) bool {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		f := c.e.cfg.Fault(err)
		p = &problem{code: f.Name, message: f.Message, close: websocket.StatusCode(f.Close)}
	}
	if p.close != 0 {
		c.refuseClose(p.close, closeReason(p.message))
		return false
	}
	c.e.cfg.Log.Info("provider's message refused", "bridge", c.bridge, "code", p.code, "reason", p.message)
	if c.greeted.Load() {
		c.out.send(encode(struct {
			Type    string `json:"type"`
			Code    string `json:"code"`
			Message string `json:"message"`
			Of      string `json:"of,omitempty"`
		}{"error", p.code, p.message, p.of}))
	}
	if c.bad++; c.bad >= maxBad {
		c.refuseClose(closeFlood, fmt.Sprintf("%d messages were refused", c.bad))
		return false
	}
	return true
}

// handle takes one frame. With keep, buf now belongs to a call's result.
func (c *conn) handle(buf *wire.Buffer, first bool) (keep bool, err error) {
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
	case "registerTools":
		return false, aside(c.registerTools, m)
	case "unregisterTools":
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

// unattached closes a connection that could not become an instance: there is
// nothing that it could be used for.
func (c *conn) unattached(err error) error {
	f := c.e.cfg.Fault(err)
	if f.Close == 0 {
		f.Close = int(closeFlood)
	}
	return &problem{code: f.Name, message: f.Message, close: websocket.StatusCode(f.Close)}
}

// aside handles a rare message on another stack. The reader's own then stays small:
// an idle provider holds it, and Go shrinks stacks only as it collects garbage.
func aside(handle func(*message) error, m *message) error {
	done := make(chan error, 1)
	go func() { done <- handle(m) }()
	return <-done
}

func clip(s string) string { return s[:min(len(s), 40)] }

// encode encodes what the bridge itself says, which always encodes.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("provider: " + err.Error())
	}
	return b
}

func (c *conn) toolResult(m *message, buf *wire.Buffer) (keep bool, err error) {
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

func (c *conn) toolError(m *message) error {
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

func (c *conn) progress(m *message) error {
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

func (c *conn) log(m *message) error {
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
