package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDKClient is the official Go SDK's.
type goSDKClient struct {
	client    *mcp.Client
	transport mcp.Transport
	options   *mcp.ClientSessionOptions
	session   *mcp.ClientSession
}

// goSDK speaks a revision, or the newest it knows.
func goSDK(revision string) func(testing.TB, string, *sightings) mcpClient {
	return func(t testing.TB, url string, seen *sightings) mcpClient {
		t.Helper()
		c := &goSDKClient{
			client: mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { seen.changed <- struct{}{} },
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					seen.progress <- report{r.Params.Progress, r.Params.Total, r.Params.Message}
				},
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Zoë"}}, nil
				},
				CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) { //nolint:staticcheck // deprecated, and servers still ask for it
					return &mcp.CreateMessageResult{Role: "assistant", Content: &mcp.TextContent{Text: "something"}, Model: "m"}, nil //nolint:staticcheck // deprecated, and servers still ask for it
				},
			}),
			transport: &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: watchedHTTP(t, seen)},
			options:   &mcp.ClientSessionOptions{ProtocolVersion: revision},
		}
		c.client.AddRoots(&mcp.Root{URI: "file:///home/zoe"}) //nolint:staticcheck // deprecated, and servers still ask for it
		t.Cleanup(func() { _ = c.close() })
		return c
	}
}

func (c *goSDKClient) connect(ctx context.Context) (identity, error) {
	var err error
	if c.session, err = c.client.Connect(ctx, c.transport, c.options); err != nil {
		return identity{}, err
	}
	r := c.session.InitializeResult()
	return identity{r.ServerInfo.Name, r.ServerInfo.Version, r.ProtocolVersion}, nil
}

func (c *goSDKClient) list(ctx context.Context) ([]definition, error) {
	r, err := c.session.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	return definitions(r.Tools)
}

// definitions are a library's own tools as JSON has them.
func definitions(tools any) ([]definition, error) {
	text, err := json.Marshal(tools)
	if err != nil {
		return nil, err
	}
	var all []definition
	return all, json.Unmarshal(text, &all)
}

func (c *goSDKClient) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken("steps of " + tool)
	r, err := c.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	return firstText(r.Content, r.IsError)
}

// firstText is the text of a result's first block, or the error that it says.
func firstText(content any, isError bool) (string, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	var blocks []struct{ Type, Text string }
	if err := json.Unmarshal(text, &blocks); err != nil || len(blocks) != 1 || blocks[0].Type != "text" {
		return "", fmt.Errorf("content %s, want one text: %w", text, err)
	}
	if isError {
		return "", errors.New(blocks[0].Text)
	}
	return blocks[0].Text, nil
}

func (c *goSDKClient) listen(context.Context) error { return errors.ErrUnsupported }

func (c *goSDKClient) close() error {
	if c.session == nil {
		return nil
	}
	return c.session.Close()
}
