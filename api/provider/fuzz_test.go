package provider

import (
	"bytes"
	"encoding/json"
	"testing"
)

// same tells whether a member is what the standard library reads, null being none.
func same(got json.RawMessage, all map[string]json.RawMessage, name string) bool {
	want, ok := all[name]
	if !ok || string(want) == "null" {
		return got == nil || string(got) == "null"
	}
	return bytes.Equal(got, bytes.TrimSpace(want))
}

// FuzzFrame: a frame is refused, or read as any other reader of JSON reads it.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"toolResult","callId":"0000-1","result":{"content":[{"type":"text","text":"é\u00e9"}],"isError":true,"_meta":{}}}`,
		`{"type":"registerTools","id":1,"replace":true,"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`,
		` {"type":"hello","protocol":1,"provider":"p","retainSeconds":1e3,"resume":null} `,
		`{"type":"progress","Type":1}`, `{"type":"x","type":"y"}`, `{"callId":{}}`, `[]`, `{"type":"\u0070ong"}`,
		`{"jsonrpc":"2.0","id":"mcpb-1","result":{"tools":[],"nextCursor":"x"}}`, `{"method":"notifications\/x","params":[1]}`,
	} {
		f.Add([]byte(seed))
	}
	const depth = 32
	f.Fuzz(func(t *testing.T, frame []byte) {
		var all map[string]json.RawMessage
		var m message
		if m.decode(frame, depth) == nil {
			if err := json.Unmarshal(frame, &all); err != nil {
				t.Fatalf("%q was taken: %v", frame, err)
			}
			for i, name := range memberNames {
				if !same(m.members[i], all, name) {
					t.Errorf("%q: %s is %q", frame, name, m.members[i])
				}
			}
			var kind string
			if err := json.Unmarshal(all["type"], &kind); err != nil || kind != m.kind {
				t.Errorf("%q is of type %q, %v", frame, m.kind, err)
			}
		}
		var r rpc
		if r.decode(frame, depth) == nil {
			if err := json.Unmarshal(frame, &all); err != nil {
				t.Fatalf("%q was taken: %v", frame, err)
			}
			for i, name := range rpcNames {
				if i != rMethod && !same(r.members[i], all, name) {
					t.Errorf("%q: %s is %q", frame, name, r.members[i])
				}
			}
		}
	})
}
