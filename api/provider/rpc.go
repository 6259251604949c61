package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// rpc is one JSON-RPC message from an MCP server. Its members are raw values of the
// frame, nil when absent.
type rpc struct {
	members [len(rpcNames)]json.RawMessage
	result  session.Result // what result is, when it is an object
}

var rpcNames = [...]string{"id", "method", "params", "result", "error", "jsonrpc"}

const (
	rID = iota
	rMethod
	rParams
	rResult
	rError
)

var rpcs = sync.Pool{New: func() any { return new(rpc) }}

// decode reads a frame's envelope into an empty rpc and checks the whole frame's
// syntax, visiting each byte once.
func (r *rpc) decode(frame []byte, depth int) error {
	s, err := wire.NewScanner(frame, depth)
	if err != nil {
		return err
	}
	members := wire.NewMembers(rpcNames[:]...)
	err = s.Object(func(name []byte) error {
		i, err := members.Check(name)
		if err != nil {
			return err
		}
		if i == rResult && s.Kind() == '{' {
			r.result, err = readResult(&s, frame)
			r.members[rResult] = r.result.Raw
			return err
		}
		v, err := s.Raw()
		if i >= 0 {
			r.members[i] = v
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.End(); err != nil {
		return err
	}
	method := r.members[rMethod]
	if method != nil && method[0] != '"' {
		return errors.New(`member "method" must be a string`)
	}
	if bytes.IndexByte(method, '\\') >= 0 { // PHP escapes every slash
		text, _ := wire.Text(method)
		r.members[rMethod] = json.RawMessage(`"` + text + `"`)
	}
	return nil
}

// text returns what is between the quotes of the id, without looking at escapes: the
// bridge's own IDs have none. Nil for an id that is no string.
func (r *rpc) text() []byte {
	id := r.members[rID]
	if len(id) < 2 || id[0] != '"' {
		return nil
	}
	return id[1 : len(id)-1]
}

// params finds the members of a message's params that a reader names; a value is nil
// when it is absent. False when the params are no object.
func params(raw json.RawMessage, names []string, values []json.RawMessage) bool {
	if raw == nil || raw[0] != '{' {
		return false
	}
	s := wire.Reread(raw)
	return s.Object(func(name []byte) error {
		v, err := s.Raw()
		for i, n := range names {
			if string(name) == n && string(v) != "null" {
				values[i] = v
			}
		}
		return err
	}) == nil
}
