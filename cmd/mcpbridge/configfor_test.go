package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

var update = flag.Bool("update", false, "write the golden files of config-for")

const configURL = "https://bridge.example/base/b/k3v6/mcp?timeout=120&meta=1"

// TestConfigForPrintsWhatTheClientReads: the text parses as the client's format, and says
// there what the client's documentation asks for; the golden file holds every byte.
func TestConfigForPrintsWhatTheClientReads(t *testing.T) {
	type object = map[string]any
	header := func(value string) object { return object{"Authorization": "Bearer " + value} }
	for client, want := range map[string]struct {
		whole, bare object
		token       string // on stderr
	}{
		"vscode": {
			object{
				"inputs":  []any{object{"type": "promptString", "id": "tools-token", "description": "Client token of the bridge tools", "password": true}},
				"servers": object{"tools": object{"type": "http", "url": configURL, "headers": header("${input:tools-token}")}},
			},
			object{"servers": object{"tools": object{"type": "http", "url": configURL}}},
			"VS Code asks for the bridge's client token",
		},
		"claude-code": {
			object{"mcpServers": object{"tools": object{"type": "http", "url": configURL, "headers": header("${MCPBRIDGE_CLIENT_TOKEN}")}}},
			object{"mcpServers": object{"tools": object{"type": "http", "url": configURL}}},
			"export MCPBRIDGE_CLIENT_TOKEN=…",
		},
		"claude-desktop": {
			object{"mcpServers": object{"tools": object{
				"command": "npx",
				"args":    []any{"-y", "mcp-remote", configURL, "--transport", "http-only", "--header", "Authorization:${AUTH_HEADER}"},
				"env":     object{"AUTH_HEADER": "Bearer PASTE-THE-CLIENT-TOKEN-HERE"},
			}}},
			object{"mcpServers": object{"tools": object{"command": "npx", "args": []any{"-y", "mcp-remote", configURL, "--transport", "http-only"}}}},
			"put the bridge's client token where the text says so",
		},
		"cursor": {
			object{"mcpServers": object{"tools": object{"url": configURL, "headers": header("${env:MCPBRIDGE_CLIENT_TOKEN}")}}},
			object{"mcpServers": object{"tools": object{"url": configURL}}},
			"export MCPBRIDGE_CLIENT_TOKEN=…",
		},
		"codex": {
			object{"mcp_servers": object{"tools": object{"url": configURL, "bearer_token_env_var": "MCPBRIDGE_CLIENT_TOKEN"}}},
			object{"mcp_servers": object{"tools": object{"url": configURL}}},
			"export MCPBRIDGE_CLIENT_TOKEN=…",
		},
	} {
		t.Run(client, func(t *testing.T) {
			parse := func(text string) (v object) {
				t.Helper()
				err := json.Unmarshal([]byte(text), &v)
				if client == "codex" {
					err = toml.Unmarshal([]byte(text), &v)
				}
				if err != nil {
					t.Fatalf("%v in\n%s", err, text)
				}
				return v
			}
			o := run(t.Context(), "", "config-for", client, configURL, "--name", "tools", "--token", "a-secret")
			if o.status != exitOK || !strings.Contains(o.stderr, want.token) || strings.Contains(o.stdout+o.stderr, "a-secret") {
				t.Errorf("%+v", o)
			}
			if got := parse(o.stdout); !reflect.DeepEqual(got, want.whole) {
				t.Errorf("got %v, want %v", got, want.whole)
			}
			golden := filepath.Join("testdata", "config-for", client)
			if *update {
				if err := os.WriteFile(golden, []byte(o.stdout), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if text, err := os.ReadFile(golden); err != nil || string(text) != o.stdout {
				t.Errorf("%v; the golden file has\n%s\nand this was printed:\n%s", err, text, o.stdout)
			}

			o = run(t.Context(), "", "config-for", client, configURL, "--name", "tools", "--no-token")
			if got := parse(o.stdout); !reflect.DeepEqual(got, want.bare) || strings.Contains(o.stderr, "token") {
				t.Errorf("without a token: %v, %s", got, o.stderr)
			}
		})
	}
}

func TestConfigForFindsTheBridgesURL(t *testing.T) {
	server := provisioning(t)
	var b bridgeRecord
	o := run(t.Context(), "", "bridge", "create", "--server", server.URL, "--token", adminToken, "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &b); err != nil {
		t.Fatal(err)
	}
	// The server knows how the world reaches it.
	run(t.Context(), "", "config-for", "cursor", b.ID, "--server", server.URL, "--token", adminToken).
		want(t, exitOK, `.*"url": "https://bridge\.example/b/`+b.ID+`/mcp".*`, `For \.cursor/mcp\.json.*`)
	run(t.Context(), "", "config-for", "cursor", "never-was", "--server", server.URL, "--token", adminToken).
		want(t, exitFailed, ``, `mcpbridge: 404 .*`)
	// Without a token nobody asks it.
	run(t.Context(), "", "config-for", "cursor", "b1", "--server", "http://127.0.0.1:1/").
		want(t, exitOK, `.*"url": "http://127\.0\.0\.1:1/b/b1/mcp".*`, `.*`)
	run(t.Context(), "", "config-for", "claude-desktop", "b1", "--server", "http://127.0.0.1:1").
		want(t, exitOK, `.*"--allow-http".*`, `.*`)
	run(t.Context(), "", "config-for", "emacs", "b1").want(t, exitUsage, ``, `.*vscode.*`)
	run(t.Context(), "", "config-for", "cursor", "b1", "--name", "a b").want(t, exitUsage, ``, `.*--name is "a b".*`)
	run(t.Context(), "", "config-for", "cursor", "b1", "--client-token-variable", "A=B").want(t, exitUsage, ``, `.*--client-token-variable.*`)
	run(t.Context(), "", "config-for", "cursor", "a/b", "--token", "x").want(t, exitUsage, ``, `.*neither a bridge ID nor a URL.*`)
}
