package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type bridgeCmd struct {
	Create bridgeCreateCmd `cmd:"" help:"Create a bridge and print its URLs and tokens, which no later command shows again."`
	List   bridgeListCmd   `cmd:"" help:"List the bridges."`
	Show   bridgeShowCmd   `cmd:"" help:"Show a bridge."`
	Update bridgeUpdateCmd `cmd:"" help:"Change a bridge."`
	Delete bridgeDeleteCmd `cmd:"" help:"Delete bridges, with their tokens and tools."`

	Held    bridgeHeldCmd    `cmd:"" help:"Show the changed definitions of tools that wait for approval."`
	Approve bridgeApproveCmd `cmd:"" help:"Show a changed definition, ask, and have clients listed it."`
	Reject  bridgeRejectCmd  `cmd:"" help:"Show a changed definition, ask, and leave the earlier one listed."`
}

// adminFlags name a server and how to get in, for the commands that provision.
type adminFlags struct {
	Server string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server. Default: ${default}."`
	Token  string `env:"MCPBRIDGE_TOKEN,MCPBRIDGE_ADMIN_TOKEN" placeholder:"TOKEN" help:"An admin token or a REST key. Better given as the environment variable: others can see a command's flags."`
	Output string `short:"o" enum:"table,json" default:"table" help:"table, or json: what the server answered."`
}

// bridgeRecord is a bridge as the API shows it.
type bridgeRecord struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Owner       string          `json:"owner"`
	Tenant      string          `json:"tenant"`
	Policy      json.RawMessage `json:"policy"`
	Created     time.Time       `json:"created"`
	MCPURL      string          `json:"mcpUrl"`
	SSEURL      string          `json:"sseUrl"`
	ProviderURL string          `json:"providerUrl"`
	HealthURL   string          `json:"healthUrl"`

	ClientToken   string `json:"clientToken"`
	ProviderToken string `json:"providerToken"`
}

type bridgeCreateCmd struct {
	Name   string `help:"A name for people."`
	Owner  string `help:"Whose it is, for people."`
	Tenant string `placeholder:"ID" help:"The tenant whose it is, for good. Default: that of the asking key, or the default tenant."`
	Policy string `placeholder:"JSON" help:"Settings of the bridge, a JSON object: instances (share, single, reject), names (suffix, reject), definitions (pin, trust)."`
	adminFlags
}

// Validate implements kong's interface.
func (c *bridgeCreateCmd) Validate() error {
	if c.Policy != "" && !isObject([]byte(c.Policy)) {
		return errors.New("--policy is not a JSON object")
	}
	return nil
}

// Run creates a bridge.
func (c *bridgeCreateCmd) Run(ctx context.Context, p *Program) error {
	body := map[string]any{}
	for key, value := range map[string]string{"name": c.Name, "owner": c.Owner, "tenant": c.Tenant} {
		if value != "" {
			body[key] = value
		}
	}
	if c.Policy != "" {
		body["policy"] = json.RawMessage(c.Policy)
	}
	answer, err := c.do(ctx, http.MethodPost, "/api/v1/bridges", body)
	if err != nil {
		return err
	}
	return c.printOne(p, answer)
}

type bridgeShowCmd struct {
	Bridge string `arg:"" help:"The bridge's ID."`
	adminFlags
}

// Run shows a bridge.
func (c *bridgeShowCmd) Run(ctx context.Context, p *Program) error {
	answer, err := c.do(ctx, http.MethodGet, "/api/v1/bridges/"+url.PathEscape(c.Bridge), nil)
	if err != nil {
		return err
	}
	return c.printOne(p, answer)
}

type bridgeListCmd struct {
	Tenant string `placeholder:"ID" help:"Only those of this tenant."`
	adminFlags
}

// Run lists every bridge, page by page.
func (c *bridgeListCmd) Run(ctx context.Context, p *Program) error {
	all := []json.RawMessage{}
	tenant := ""
	if c.Tenant != "" {
		tenant = "&tenant=" + url.QueryEscape(c.Tenant)
	}
	for cursor := ""; ; {
		answer, err := c.do(ctx, http.MethodGet, "/api/v1/bridges?limit=200"+tenant+"&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return err
		}
		var page struct {
			Bridges    []json.RawMessage
			NextCursor string
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("the server's list of bridges: %w", err)
		}
		all = append(all, page.Bridges...)
		if page.NextCursor == "" || page.NextCursor == cursor {
			break
		}
		cursor = page.NextCursor
	}
	if c.Output == "json" {
		text, err := encode(map[string]any{"bridges": all})
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "%s\n", text)
		}
		return err
	}
	rows := [][]string{{"ID", "TENANT", "CREATED", "OWNER", "NAME"}}
	for _, raw := range all {
		var b bridgeRecord
		if err := json.Unmarshal(raw, &b); err != nil {
			return fmt.Errorf("the server's list of bridges: %w", err)
		}
		rows = append(rows, []string{oneLine(b.ID, 64), oneLine(b.Tenant, 64), b.Created.Local().Format(time.DateTime), oneLine(b.Owner, 40), oneLine(b.Name, 60)})
	}
	return table(p.Stdout, rows)
}

type bridgeDeleteCmd struct {
	Bridges []string `arg:"" name:"bridge" help:"The bridges' IDs."`
	adminFlags
}

// Run deletes the bridges in their order, up to the first that cannot be.
func (c *bridgeDeleteCmd) Run(ctx context.Context, p *Program) error {
	return c.remove(ctx, p, "deleted", "/api/v1/bridges", c.Bridges)
}

// do sends one request to the provisioning API and returns the answer's body.
// body is encoded as JSON; nil sends none.
func (c *adminFlags) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	answer, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(err)
	}
	return bytes.TrimSpace(all), nil
}

// send is do without the reading: the caller closes the answer's body.
func (c *adminFlags) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = encode(body); err != nil {
			return nil, err
		}
	}
	server, err := url.Parse(strings.TrimRight(c.Server, "/"))
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return nil, usagef("--server is %q, want an http or https URL", address(c.Server))
	}
	r, err := http.NewRequestWithContext(ctx, method, server.String()+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := noRedirects.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, unreachable(err)
	}
	if answer.StatusCode/100 != 2 {
		defer answer.Body.Close()
		return nil, refusal(answer)
	}
	return answer, nil
}

// printOne prints one bridge: as the server answered, or a line for each thing
// it tells.
func (c *adminFlags) printOne(p *Program, answer []byte) error {
	if c.Output == "json" {
		_, err := fmt.Fprintf(p.Stdout, "%s\n", answer)
		return err
	}
	var b bridgeRecord
	if err := json.Unmarshal(answer, &b); err != nil || b.ID == "" {
		return fmt.Errorf("%s does not answer like the provisioning API", address(c.Server))
	}
	var rows [][]string
	for _, row := range [][]string{
		{"id", b.ID},
		{"name", b.Name},
		{"owner", b.Owner},
		{"tenant", b.Tenant},
		{"policy", string(b.Policy)},
		{"created", b.Created.Local().Format(time.DateTime)},
		{"MCP URL", b.MCPURL},
		{"SSE URL", b.SSEURL},
		{"provider URL", b.ProviderURL},
		{"health URL", b.HealthURL},
		{"client token", b.ClientToken},
		{"provider token", b.ProviderToken},
	} {
		if row[1] != "" {
			rows = append(rows, []string{row[0], oneLine(row[1], 2000)})
		}
	}
	return table(p.Stdout, rows)
}
