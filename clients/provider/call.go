package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Client is who calls, as the client itself says. It is for display only.
type Client struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Call is one call of a tool. Its methods may be used from several goroutines,
// and do nothing once the handler has returned or nobody waits any more.
//
// A Call made by hand, as in a test of a handler, works and reports nothing.
type Call struct {
	// Name is the tool's name as this provider registered it.
	Name string
	// Arguments is a JSON object as the client wrote it; nil if it sent none.
	Arguments json.RawMessage
	// Deadline is when the bridge stops waiting; zero if it did not say.
	Deadline time.Time
	// Client is who calls; zero if the bridge did not say.
	Client Client
	// Capabilities is the client's capabilities, a JSON object of MCP's; nil if
	// the bridge did not say.
	Capabilities json.RawMessage
	// Responses are the client's answers to an earlier result of [Ask], by the
	// keys used there; nil on a call that follows none. Each is what MCP defines
	// as the result of its request, unchecked.
	Responses map[string]json.RawMessage
	// State is the state that the earlier result gave; may be empty.
	State string
	// Traceparent is the W3C trace context of the call; may be empty.
	Traceparent string
	// LogLevel is the lowest level of log message that the client asked for; may
	// be empty.
	LogLevel string
	// WantsProgress tells whether the client asked to be told of progress.
	WantsProgress bool

	provider *Provider
	id       json.RawMessage // as the bridge wrote it

	// Guarded by provider.mu.
	cancel context.CancelCauseFunc
	link   *link // where the answer goes; nil while the connection is lost
	ended  bool  // answered, cancelled or forgotten
}

// Bind decodes the arguments into v, like json.Unmarshal. Absent arguments are
// an empty object. The error is one that a handler can return as it is.
func (c *Call) Bind(v any) error {
	if len(c.Arguments) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.Arguments, v); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("argument %q: a JSON %s does not fit", e.Field, e.Value)
		}
		return errors.New("the arguments cannot be read")
	}
	return nil
}

// Progress tells the client how far the call has come. progress must grow from
// one report to the next; total is 0 if unknown; message may be empty. It does
// nothing if the client did not ask.
func (c *Call) Progress(progress, total float64, message string) {
	if !c.WantsProgress || math.IsNaN(progress) || math.IsInf(progress, 0) || math.IsInf(total, 0) {
		return
	}
	var o object
	o.text("type", "progress")
	o.raw("callId", c.id)
	o.number("progress", progress)
	if total > 0 {
		o.number("total", total)
	}
	o.optional("message", message)
	c.tell(o.end())
}

// levels are MCP's log levels, least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Log sends a log message to the client of this call alone. level is one of
// MCP's (debug, info, notice, warning, error, critical, alert, emergency);
// logger may be empty; data is any JSON value, usually a string. Below the level
// that the client asked for it does nothing.
func (c *Call) Log(level, logger string, data any) {
	if slices.Index(levels, level) < slices.Index(levels, c.LogLevel) {
		return
	}
	raw, err := encode(data)
	if err != nil {
		raw = quote(fmt.Sprint(data))
	}
	var o object
	o.text("type", "log")
	o.raw("callId", c.id)
	o.text("level", level)
	o.optional("logger", logger)
	o.raw("data", raw)
	c.tell(o.end())
}

// tell sends a message about a call that still runs. What cannot be sent now is
// dropped: it would be stale later.
func (c *Call) tell(frame []byte) {
	p := c.provider
	if p == nil {
		return
	}
	p.mu.Lock()
	l, ended := c.link, c.ended
	limit := p.frameLimit
	p.mu.Unlock()
	if l == nil || ended {
		return
	}
	if len(frame) > limit {
		p.log.Warn("message about a call dropped", "reason", "too big", "call", string(c.id), "bytes", len(frame), "limit", limit)
		return
	}
	l.write(frame)
}

// stop ends the call's context without an answer. The provider's mu is held.
func (c *Call) stop(cause error) {
	c.ended = true
	c.link = nil
	c.cancel(cause)
}
