package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

type configForCmd struct {
	Client string `arg:"" enum:"vscode,claude-code,claude-desktop,cursor,codex" help:"vscode, claude-code, claude-desktop, cursor or codex."`
	Bridge string `arg:"" help:"The bridge's ID, or its MCP URL. An ID is looked up where a token for it is given, else it is one of --server."`
	Server string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server, where BRIDGE is an ID. Default: ${default}."`
	Token  string `env:"MCPBRIDGE_TOKEN,MCPBRIDGE_ADMIN_TOKEN" placeholder:"TOKEN" help:"An admin token or REST key, by which the server tells the bridge's public URL. It is not printed."`
	Name   string `default:"mcpbridge" help:"What the client calls the bridge. Default: ${default}."`
	Var    string `name:"client-token-variable" default:"MCPBRIDGE_CLIENT_TOKEN" placeholder:"NAME" help:"The environment variable in which the client finds the bridge's client token. Default: ${default}."`
	NoAuth bool   `name:"no-token" help:"The server runs with --open and wants no token."`
}

var (
	clientName   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`) // what every client takes, and Cursor with a tool's name behind it
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Validate implements kong's interface.
func (c *configForCmd) Validate() error {
	if !clientName.MatchString(c.Name) {
		return fmt.Errorf("--name is %q, want 1 to 32 of A-Z, a-z, 0-9, _ and -", c.Name)
	}
	if !variableName.MatchString(c.Var) {
		return fmt.Errorf("--client-token-variable is %q, which is no name of an environment variable", c.Var)
	}
	return nil
}

// Run prints the configuration, which a client takes as it is, and on stderr where it
// goes and how the token gets there.
func (c *configForCmd) Run(ctx context.Context, p *Program) error {
	endpoint, err := c.endpoint(ctx)
	if err != nil {
		return err
	}
	text, place, token := clientConfigs[c.Client](c, endpoint)
	if _, err := fmt.Fprint(p.Stdout, text); err != nil {
		return err
	}
	fmt.Fprintln(p.Stderr, place)
	if !c.NoAuth {
		fmt.Fprintln(p.Stderr, token)
	}
	return nil
}

// endpoint is the bridge's MCP URL as the client reaches it.
func (c *configForCmd) endpoint(ctx context.Context) (string, error) {
	if strings.Contains(c.Bridge, "://") || c.Token == "" || c.NoAuth {
		return endpoint(c.Server, c.Bridge)
	}
	if _, err := endpoint(c.Server, c.Bridge); err != nil {
		return "", err
	}
	admin := adminFlags{Server: c.Server, Token: c.Token}
	answer, err := admin.do(ctx, http.MethodGet, "/api/v1/bridges/"+url.PathEscape(c.Bridge), nil)
	if err != nil {
		return "", err
	}
	var b bridgeRecord
	if err := json.Unmarshal(answer, &b); err != nil || b.MCPURL == "" {
		return "", fmt.Errorf("%s does not answer like the provisioning API", address(c.Server))
	}
	return b.MCPURL, nil
}

// clientServer is one server in a client's JSON. Which members a client knows differs.
type clientServer struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// bearer has the header that holds the token, in the client's notation; nil without one.
func (c *configForCmd) bearer(notation string) map[string]string {
	if c.NoAuth {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + notation}
}

// servers is the shape that all but VS Code and Codex share.
func (c *configForCmd) servers(s clientServer) string {
	return indented(struct {
		Servers map[string]clientServer `json:"mcpServers"`
	}{map[string]clientServer{c.Name: s}})
}

// export is the line that tells where the client takes the token from.
func (c *configForCmd) export(client string) string {
	return fmt.Sprintf("%s reads the bridge's client token from the environment: export %s=… before you start it.", client, c.Var)
}

// clientConfigs give each client's configuration, where it goes and how the token gets
// there: by reference, wherever the client knows references.
var clientConfigs = map[string]func(c *configForCmd, endpoint string) (text, place, token string){
	// code.visualstudio.com/docs/copilot/reference/mcp-configuration: servers, inputs
	"vscode": func(c *configForCmd, endpoint string) (text, place, token string) {
		type input struct {
			Type        string `json:"type"`
			ID          string `json:"id"`
			Description string `json:"description"`
			Password    bool   `json:"password"`
		}
		id := c.Name + "-token"
		var inputs []input
		if !c.NoAuth {
			inputs = []input{{"promptString", id, "Client token of the bridge " + c.Name, true}}
		}
		return indented(struct {
				Inputs  []input                 `json:"inputs,omitempty"`
				Servers map[string]clientServer `json:"servers"`
			}{inputs, map[string]clientServer{c.Name: {Type: "http", URL: endpoint, Headers: c.bearer("${input:" + id + "}")}}}),
			"For .vscode/mcp.json, or the file that \"MCP: Open User Configuration\" opens.",
			"VS Code asks for the bridge's client token when it starts the server, and keeps it encrypted."
	},
	// code.claude.com/docs/en/mcp: "Environment variable expansion in .mcp.json"
	"claude-code": func(c *configForCmd, endpoint string) (text, place, token string) {
		return c.servers(clientServer{Type: "http", URL: endpoint, Headers: c.bearer("${" + c.Var + "}")}),
			"For .mcp.json in the project's directory.",
			c.export("Claude Code")
	},
	// claude_desktop_config.json starts programs alone, and refers to nothing; mcp-remote
	// is the usual one. No space in its argument: Claude Desktop on Windows splits there.
	"claude-desktop": func(c *configForCmd, endpoint string) (text, place, token string) {
		s := clientServer{Command: "npx", Args: []string{"-y", "mcp-remote", endpoint, "--transport", "http-only"}}
		if strings.HasPrefix(endpoint, "http://") {
			s.Args = append(s.Args, "--allow-http")
		}
		if !c.NoAuth {
			s.Args = append(s.Args, "--header", "Authorization:${AUTH_HEADER}")
			s.Env = map[string]string{"AUTH_HEADER": "Bearer PASTE-THE-CLIENT-TOKEN-HERE"}
		}
		return c.servers(s),
			"For claude_desktop_config.json: Settings, Developer, Edit Config. It needs Node.js.",
			"Claude Desktop knows no references: put the bridge's client token where the text says so, and keep the file to yourself."
	},
	// cursor.com/docs/mcp: "Config interpolation"
	"cursor": func(c *configForCmd, endpoint string) (text, place, token string) {
		return c.servers(clientServer{URL: endpoint, Headers: c.bearer("${env:" + c.Var + "}")}),
			"For .cursor/mcp.json in the project's directory, or ~/.cursor/mcp.json.",
			c.export("Cursor")
	},
	// developers.openai.com/codex/mcp: url, bearer_token_env_var
	"codex": func(c *configForCmd, endpoint string) (text, place, token string) {
		text = fmt.Sprintf("[mcp_servers.%s]\nurl = %s\n", c.Name, tomlString(endpoint))
		if !c.NoAuth {
			text += fmt.Sprintf("bearer_token_env_var = %s\n", tomlString(c.Var))
		}
		return text, "For ~/.codex/config.toml.", c.export("Codex")
	},
}

// indented is v as JSON that people read.
func indented(v any) string {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and maps
	}
	return text.String()
}

// tomlString is a basic string of TOML, whose escapes are JSON's.
func tomlString(s string) string { return strings.TrimSpace(indented(s)) }
