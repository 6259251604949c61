package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// TestChangedDefinitionsAreLookedAtAndDecidedOn is the whole way with a real server: its
// provider changes a tool, which is shown and approved in the terminal.
func TestChangedDefinitionsAreLookedAtAndDecidedOn(t *testing.T) {
	t.Setenv("MCPBRIDGE_ADMIN_TOKEN", adminToken)
	s, server := serve(t, t.TempDir()+"/data")
	t.Setenv("MCPBRIDGE_SERVER", server)
	var made bridgeRecord
	if err := json.Unmarshal([]byte(run(s.ctx, "", "bridge", "create", "-o", "json").stdout), &made); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MCPBRIDGE_TOKEN", adminToken)
	register := registrar(s.ctx, t, made)
	register("reads")
	run(s.ctx, "", "bridge", "held", made.ID).want(t, exitOK, `no changed definition of tools waits for approval\n`, ``)
	run(s.ctx, "", "bridge", "approve", made.ID, "get").want(t, exitFailed, ``, `mcpbridge: no such changed definition of get waits.*\n`)

	const block = `get of provider p, changed \S+ \S+ \(clients are listed the earlier definition\)\n` +
		`  /description\n  - "reads"\n  \+ "reads\\u200b\\u001b\[8m all"\n  warning: .*U\+200B.*\n  hash (\w{64})\n`
	register(`reads\u200b\u001b[8m all`)
	run(s.ctx, "", "bridge", "held", made.ID).want(t, exitOK, block, ``)
	listed := func(want string) {
		t.Helper()
		run(s.ctx, "", "tools", made.MCPURL, "--token", made.ClientToken, "-o", "json").want(t, exitOK, `.*"description":"`+want+`".*`, ``)
	}
	run(s.ctx, "\n", "bridge", "approve", made.ID, "get").want(t, exitFailed, block, `approve it\? \[y/N\] mcpbridge: nothing was done: .*\n`)
	run(s.ctx, "", "bridge", "approve", made.ID, "get", "--hash", "00000000").want(t, exitFailed, ``, `mcpbridge: no such changed definition.*\n`)
	run(s.ctx, "", "bridge", "approve", made.ID, "get", "--hash", strings.Repeat("0", 64)).want(t, exitFailed, ``, `mcpbridge: 409 Conflict.*\n`)
	run(s.ctx, "y\n", "bridge", "reject", made.ID, "get").want(t, exitOK, block+`get: rejected\n`, `reject it\? .*`)
	listed("reads")

	var held struct{ Tools []heldTool }
	o := run(s.ctx, "", "bridge", "held", made.ID, "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &held); err != nil || len(held.Tools) != 1 || !held.Tools[0].Held.Rejected {
		t.Fatalf("held: %v, %s", err, o.stdout)
	}
	hash := held.Tools[0].Held.Hash
	run(s.ctx, "", "bridge", "approve", made.ID, "get", "--hash", hash[:8]).want(t, exitOK, `get of .*rejected.*get: approved\n`, ``)
	listed(`reads\\u200b\\u001b\[8m all`)
	for range 2 { // again is no error
		run(s.ctx, "", "bridge", "approve", made.ID, "get", "--hash", hash, "-o", "json").want(t, exitOK,
			`\{"decision":"approve","hash":"`+hash+`","tool":"get"\}\n`, ``)
	}
	register("reads no more")
	run(s.ctx, "", "bridge", "approve", made.ID, "get", "-y").want(t, exitOK, `get of .*get: approved\n`, ``)
	listed("reads no more")
}

// registrar connects a provider and returns what registers its tool, described as told.
func registrar(ctx context.Context, t *testing.T, b bridgeRecord) func(description string) {
	t.Helper()
	ws, response, err := websocket.Dial(ctx, b.ProviderURL, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + b.ProviderToken}}})
	if err != nil {
		t.Fatal(err)
	}
	if response.Body != nil {
		response.Body.Close()
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	say := func(message, answer string) {
		t.Helper()
		if err := ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
			t.Fatal(err)
		}
		for {
			_, got, err := ws.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(string(got), `{"type":"`+answer) {
				return
			}
		}
	}
	say(`{"type":"hello","protocol":1,"provider":"p"}`, "welcome")
	return func(description string) {
		t.Helper()
		say(`{"type":"registerTools","tools":[{"name":"get","description":"`+description+`","inputSchema":{"type":"object"}}]}`, "registered")
	}
}
