package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// subprotocol is the dialect that this package speaks.
const subprotocol = "bridge.v1"

// object builds one JSON object, member by member and in order. Raw values are
// copied as they are: package json would compact them and escape <, > and &.
type object []byte

func (o *object) raw(name string, value []byte) {
	if len(*o) == 0 {
		*o = append(*o, '{')
	} else {
		*o = append(*o, ',')
	}
	*o = append(*o, quote(name)...)
	*o = append(*o, ':')
	*o = append(*o, value...)
}

func (o *object) text(name, value string) { o.raw(name, quote(value)) }

// optional adds a text member unless it is empty.
func (o *object) optional(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

func (o *object) number(name string, value float64) {
	o.raw(name, strconv.AppendFloat(nil, value, 'f', -1, 64))
}

func (o *object) end() []byte {
	if len(*o) == 0 {
		return []byte("{}")
	}
	return append(*o, '}')
}

// array joins raw values.
func array(values []json.RawMessage) []byte {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// encode is json.Marshal without HTML escaping, which leaves a raw message as
// it is.
func encode(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		if !json.Valid(raw) {
			return nil, errors.New("provider: raw JSON is not valid")
		}
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func quote(s string) json.RawMessage {
	b, _ := encode(s) // a string always encodes
	return b
}

// isObject tells whether raw is one valid JSON object.
func isObject(raw []byte) bool {
	return json.Valid(raw) && bytes.TrimLeft(raw, " \t\r\n")[0] == '{'
}

// word is a text that a bridge may also write as a number or anything else.
type word string

func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*w = word(s) // null leaves it empty
	} else {
		*w = word(b)
	}
	return nil
}

// message is any message from the bridge: the members of all its types.
type message struct {
	Type string `json:"type"`

	// callTool, cancelCall
	CallID json.RawMessage `json:"callId"`
	Name   string          `json:"name"`
	Params json.RawMessage `json:"params"`
	Meta   struct {
		DeadlineMs         float64         `json:"deadlineMs"`
		Progress           bool            `json:"progress"`
		Client             Client          `json:"client"`
		ClientCapabilities json.RawMessage `json:"clientCapabilities"`
		Traceparent        string          `json:"traceparent"`
		LogLevel           string          `json:"logLevel"`
	} `json:"meta"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
	RequestState   string                     `json:"requestState"`
	Reason         word                       `json:"reason"`

	// welcome
	Bridge      string  `json:"bridge"`
	Instance    string  `json:"instance"`
	Resume      string  `json:"resume"`
	Resumed     bool    `json:"resumed"`
	PingSeconds float64 `json:"pingSeconds"`
	Limits      struct {
		FrameBytes float64 `json:"frameBytes"`
	} `json:"limits"`

	// registered
	ID       word    `json:"id"`
	Revision float64 `json:"revision"`
	Tools    []struct {
		Name      string `json:"name"`
		ExposedAs string `json:"exposedAs"`
		Warnings  []word `json:"warnings"`
	} `json:"tools"`
	Rejected []struct {
		Name    string `json:"name"`
		Code    word   `json:"code"`
		Message string `json:"message"`
	} `json:"rejected"`
	Held []struct {
		Name      string `json:"name"`
		ExposedAs string `json:"exposedAs"`
		Hash      string `json:"hash"`
		Message   string `json:"message"`
	} `json:"held"`

	// reconnect
	AfterMs float64 `json:"afterMs"`

	// error
	Code    word   `json:"code"`
	Message string `json:"message"`
	Of      word   `json:"of"`
}

// decode reads a message. A member of an unexpected type is left out, so that a
// newer bridge may say more than we know.
func decode(frame []byte) (message, error) {
	var m message
	err := json.Unmarshal(frame, &m)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && m.Type != "" {
		err = nil
	}
	return m, err
}

// registration is what a registered message says.
func (m *message) registration() Registration {
	r := Registration{Revision: uint64(max(0, m.Revision))}
	for _, t := range m.Tools {
		rt := RegisteredTool{Name: t.Name, ExposedAs: t.ExposedAs}
		for _, w := range t.Warnings {
			rt.Warnings = append(rt.Warnings, string(w))
		}
		r.Tools = append(r.Tools, rt)
	}
	for _, t := range m.Rejected {
		r.Rejected = append(r.Rejected, RejectedTool{Name: t.Name, Code: string(t.Code), Message: t.Message})
	}
	for _, t := range m.Held {
		r.Held = append(r.Held, HeldTool(t))
	}
	return r
}

// answerFrame is the message that ends a call.
func answerFrame(id json.RawMessage, r Result, err error) []byte {
	if e, ok := errors.AsType[*Error](err); ok {
		return errorFrame(id, e)
	}
	if err != nil {
		r = Failure(err.Error())
	}
	result, err := r.encode()
	if err != nil {
		return errorFrame(id, &Error{Code: CodeInternal, Message: "the tool's result cannot be encoded"})
	}
	var o object
	o.text("type", "toolResult")
	o.raw("callId", id)
	o.raw("result", result)
	return o.end()
}

func errorFrame(id json.RawMessage, e *Error) []byte {
	var fault object
	fault.raw("code", strconv.AppendInt(nil, int64(e.Code), 10))
	fault.text("message", e.Message)
	if e.Data != nil {
		if data, err := encode(e.Data); err == nil {
			fault.raw("data", data)
		}
	}
	var o object
	o.text("type", "toolError")
	o.raw("callId", id)
	o.raw("error", fault.end())
	return o.end()
}
