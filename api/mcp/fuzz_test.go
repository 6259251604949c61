package mcp

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzRequest: a body is refused, or its envelope is read as any other reader of JSON
// reads it.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"n":1e999},"_meta":{"progressToken":"t"}}}`,
		`{"jsonrpc":"2.0","id":"é","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"1"}}}`,
		` {"id":1.0e1,"result":null,"jsonrpc":"2.0"} `, `{"jsonrpc":"2.0","method":"notifications\/cancelled","params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","Method":"y"}`, `[1]`, `7`, `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, bad := decode(body, 32)
		if bad != nil {
			if q.id != nil && !isID(q.id) {
				t.Errorf("%q was refused with the id %q", body, q.id)
			}
			return
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(body, &all); err != nil {
			t.Fatalf("%q was taken: %v", body, err)
		}
		var method string
		if raw, ok := all["method"]; ok {
			if err := json.Unmarshal(raw, &method); err != nil {
				t.Fatalf("%q was taken: %v", body, err)
			}
		}
		if id := bytes.TrimSpace(all["id"]); q.method != method || string(id) != "null" && !bytes.Equal(q.id, id) {
			t.Errorf("%q was read as method %q, id %q", body, q.method, q.id)
		}
		if string(all["params"]) != "null" && !bytes.Equal(q.params, bytes.TrimSpace(all["params"])) {
			t.Errorf("%q: params are %q", body, q.params)
		}
	})
}
