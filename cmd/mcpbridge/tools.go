package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// bridgeFlags name a bridge and how to get in, for the commands that are MCP
// clients.
type bridgeFlags struct {
	Server string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server, where BRIDGE is an ID. Default: ${default}."`
	Token  string `placeholder:"TOKEN" help:"The bridge's client token. Better given as the environment variable: others can see a command's flags."`
}

type toolsCmd struct {
	Bridge string `arg:"" help:"The bridge's ID, or its MCP URL."`
	bridgeFlags
	Output string `short:"o" enum:"table,json" default:"table" help:"table, or json: the definitions as the bridge sent them."`
}

// Run lists the tools.
func (c *toolsCmd) Run(ctx context.Context, p *Program) error {
	url, err := endpoint(c.Server, c.Bridge)
	if err != nil {
		return err
	}
	client := &mcpClient{url: url, token: c.Token}
	if err := client.connect(ctx); err != nil {
		return err
	}
	defer client.close(ctx)
	tools, err := client.tools(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		text, err := encode(tools)
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "%s\n", text)
		}
		return err
	}
	rows := [][]string{{"NAME", "DESCRIPTION"}}
	for _, raw := range tools {
		var tool struct{ Name, Title, Description string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			return fmt.Errorf("the bridge lists what is not a tool: %w", err)
		}
		if tool.Description == "" {
			tool.Description = tool.Title
		}
		rows = append(rows, []string{oneLine(tool.Name, 128), oneLine(tool.Description, 100)})
	}
	return table(p.Stdout, rows)
}

// maxPages bounds a list whose cursors never end.
const maxPages = 1000

// tools reads every page of the bridge's tools, raw.
func (c *mcpClient) tools(ctx context.Context) ([]json.RawMessage, error) {
	tools := []json.RawMessage{}
	params := map[string]string{}
	for range maxPages {
		result, err := c.request(ctx, "tools/list", params)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []json.RawMessage
			NextCursor string
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, fmt.Errorf("the bridge's list of tools: %w", err)
		}
		tools = append(tools, page.Tools...)
		if page.NextCursor == "" {
			return tools, nil
		}
		params["cursor"] = page.NextCursor
	}
	return nil, errors.New("the bridge's list of tools does not end")
}
