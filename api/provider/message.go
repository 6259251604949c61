package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// message is one frame from a provider. Its members are raw values of the frame,
// nil when absent.
type message struct {
	kind    string
	members [len(memberNames)]json.RawMessage
	result  session.Result // what result is, when it is an object
}

// memberNames are the members of all message types, kind first.
var memberNames = [...]string{
	"type", "callId", "result", "error", "tools", "names", "replace", "id",
	"progress", "total", "message", "level", "logger", "data",
	"protocol", "provider", "title", "version", "instance", "resume", "retainSeconds", "instructions",
}

const (
	mType = iota
	mCallID
	mResult
	mError
	mTools
	mNames
	mReplace
	mID
	mProgress
	mTotal
	mMessage
	mLevel
	mLogger
	mData
	mProtocol
	mProvider
	mTitle
	mVersion
	mInstance
	mResume
	mRetain
	mInstructions
)

// messages are used again. They are no locals of the reader's: its stack should
// stay small.
var messages = sync.Pool{New: func() any { return new(message) }}

// decode reads a frame's envelope into an empty message and checks the whole frame's
// syntax, visiting each byte once.
func (m *message) decode(frame []byte, depth int) error {
	s, err := wire.NewScanner(frame, depth)
	if err != nil {
		return err
	}
	members := wire.NewMembers(memberNames[:]...)
	err = s.Object(func(name []byte) error {
		i, err := members.Check(name)
		if err != nil {
			return err
		}
		if i == mResult && s.Kind() == '{' {
			m.result, err = readResult(&s, frame)
			m.members[mResult] = m.result.Raw
			return err
		}
		v, err := s.Raw()
		if i >= 0 && string(v) != "null" {
			m.members[i] = v
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.End(); err != nil {
		return err
	}
	var ok bool
	if m.kind, ok = kindOf(m.members[mType]); !ok {
		return errors.New(`member "type" must be a string`)
	}
	return nil
}

// kindOf returns a type's name without allocating for the common ones.
func kindOf(raw json.RawMessage) (string, bool) {
	switch string(raw) {
	case `"toolResult"`:
		return "toolResult", true
	case `"pong"`:
		return "pong", true
	}
	return wire.Text(raw)
}

// metaServerInfo is the key of a server's identity in a result's _meta (MCP
// 2026-07-28 basic, "_meta").
const metaServerInfo = "io.modelcontextprotocol/serverInfo"

// readResult passes over a tool result and notes what an edge may have to add.
func readResult(s *wire.Scanner, frame []byte) (r session.Result, err error) {
	start := s.Offset()
	err = s.Object(func(name []byte) error {
		if string(name) == "_meta" && s.Kind() == '{' {
			r.MetaAt = s.Offset() - start + 1
			return s.Object(func(name []byte) error {
				r.Signed = r.Signed || string(name) == metaServerInfo
				_, err := s.Raw()
				return err
			})
		}
		v, err := s.Raw()
		switch string(name) {
		case "isError":
			r.IsError = string(v) == "true"
		case "structuredContent":
			r.Loose = v[0] != '{'
		case "resultType":
			r.Typed = true
			r.Asks = string(v) == `"input_required"`
		}
		return err
	})
	r.Raw = frame[start:s.Offset():s.Offset()]
	return r, err
}

// text returns a string member; empty when absent. An error when it is something
// else or longer than limit bytes.
func (m *message) text(i, limit int) (string, error) {
	raw := m.members[i]
	if raw == nil {
		return "", nil
	}
	text, ok := wire.Text(raw)
	if !ok {
		return "", fmt.Errorf("member %q must be a string", memberNames[i])
	}
	if len(text) > limit {
		return "", fmt.Errorf("member %q is longer than %d bytes", memberNames[i], limit)
	}
	return text, nil
}

// callID returns the bytes between the quotes of callId. IDs are the bridge's
// own and have no escapes.
func (m *message) callID() ([]byte, error) {
	raw := m.members[mCallID]
	if len(raw) < 2 || raw[0] != '"' {
		return nil, fmt.Errorf(`member "callId" must be a string`)
	}
	return raw[1 : len(raw)-1], nil
}

// elements returns the raw elements of an array member.
func (m *message) elements(i int) ([]json.RawMessage, error) {
	raw := m.members[i]
	if raw == nil || raw[0] != '[' {
		return nil, fmt.Errorf("member %q must be an array", memberNames[i])
	}
	s := wire.Reread(raw)
	var all []json.RawMessage
	err := s.Array(func() error {
		e, err := s.Raw()
		all = append(all, e)
		return err
	})
	return all, err
}
