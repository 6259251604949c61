//nolint:staticcheck // servers of earlier revisions use what 2026-07-28 deprecates
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goTourist is the official Go SDK's.
type goTourist struct {
	client    *mcp.Client
	transport mcp.Transport
	options   *mcp.ClientSessionOptions
	session   *mcp.ClientSession
	level     string // of a revision in which each request says it
}

// goTour speaks a revision, or the newest it knows, with a URL or a command.
func goTour(revision string) func(testing.TB, *sightings, []string) tourist {
	return func(t testing.TB, seen *sightings, target []string) tourist {
		t.Helper()
		told := func(method string, params any) { seen.told <- noteOf(t, note{method, params}) }
		asked := func(method string, params any) { seen.asked <- noteOf(t, note{method, params}) }
		c := &goTourist{
			options: &mcp.ClientSessionOptions{ProtocolVersion: revision},
			client: mcp.NewClient(&mcp.Implementation{Name: "tour", Version: "1"}, &mcp.ClientOptions{
				Capabilities: &mcp.ClientCapabilities{
					RootsV2:     &mcp.RootCapabilities{ListChanged: true},
					Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
				},
				CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
					asked("sampling/createMessage", r.Params)
					return said[mcp.CreateMessageResult]("sampling/createMessage")
				},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked("elicitation/create", r.Params)
					return said[mcp.ElicitResult]("elicitation/create")
				},
				LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
					told("notifications/message", r.Params)
				},
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					told("notifications/progress", r.Params)
				},
				ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
					told("notifications/resources/updated", r.Params)
				},
				ResourceListChangedHandler: func(_ context.Context, r *mcp.ResourceListChangedRequest) {
					told("notifications/resources/list_changed", r.Params)
				},
			}),
		}
		if len(target) == 1 {
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			c.transport = &mcp.StreamableClientTransport{Endpoint: target[0], HTTPClient: &http.Client{Transport: transport}}
		} else {
			cmd := exec.Command(target[0], target[1:]...)
			cmd.Env, cmd.Dir = environment(), t.TempDir()
			c.transport = &mcp.CommandTransport{Command: cmd}
		}
		t.Cleanup(func() { _ = c.leave() })
		return c
	}
}

// said is what the client says when it is asked.
func said[R any](method string) (*R, error) {
	text, err := json.Marshal(answers[method])
	if err != nil {
		return nil, err
	}
	r := new(R)
	return r, json.Unmarshal(text, r)
}

func (c *goTourist) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	value, err := c.do(ctx, method, text)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return json.Marshal(map[string]any{"error": wire})
	}
	if err != nil {
		return json.Marshal(map[string]any{"error": map[string]any{"message": err.Error()}})
	}
	return json.Marshal(map[string]any{"result": value})
}

// with calls a method of the SDK with the parameters of its type.
func with[P, R any](ctx context.Context, call func(context.Context, *P) (R, error), params []byte) (any, error) {
	p := new(P)
	if err := json.Unmarshal(params, p); err != nil {
		return nil, err
	}
	return call(ctx, p)
}

func whole[T any](all iter.Seq2[T, error]) (any, error) {
	list := []T{}
	for v, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (c *goTourist) do(ctx context.Context, method string, params []byte) (any, error) {
	s := c.session
	switch method {
	case "connect":
		for _, root := range answers["roots/list"].(map[string]any)["roots"].([]any) {
			r := root.(map[string]any)
			c.client.AddRoots(&mcp.Root{URI: r["uri"].(string), Name: r["name"].(string)})
		}
		var err error
		if c.session, err = c.client.Connect(ctx, c.transport, c.options); err != nil {
			return nil, err
		}
		r := c.session.InitializeResult()
		return map[string]any{"server": r.ServerInfo, "instructions": r.Instructions, "capabilities": r.Capabilities}, nil
	case "tools/list":
		return whole(s.Tools(ctx, nil))
	case "prompts/list":
		return whole(s.Prompts(ctx, nil))
	case "resources/list":
		return whole(s.Resources(ctx, nil))
	case "resources/templates/list":
		return whole(s.ResourceTemplates(ctx, nil))
	case "tools/call":
		return with(ctx, func(ctx context.Context, p *mcp.CallToolParams) (*mcp.CallToolResult, error) {
			p.SetProgressToken("of " + p.Name)
			if c.level != "" {
				p.Meta["io.modelcontextprotocol/logLevel"] = c.level
			}
			return s.CallTool(ctx, p)
		}, params)
	case "prompts/get":
		return with(ctx, s.GetPrompt, params)
	case "resources/read":
		return with(ctx, s.ReadResource, params)
	case "completion/complete":
		return with(ctx, s.Complete, params)
	case "resources/subscribe":
		return with(ctx, func(ctx context.Context, p *mcp.SubscribeParams) (any, error) {
			return struct{}{}, s.Subscribe(ctx, p)
		}, params)
	case "resources/unsubscribe":
		return with(ctx, func(ctx context.Context, p *mcp.UnsubscribeParams) (any, error) {
			return struct{}{}, s.Unsubscribe(ctx, p)
		}, params)
	case "logging/setLevel":
		return with(ctx, func(ctx context.Context, p *mcp.SetLoggingLevelParams) (any, error) {
			if s.InitializeResult().ProtocolVersion >= "2026-07-28" {
				c.level = string(p.Level)
				return struct{}{}, nil
			}
			return struct{}{}, s.SetLoggingLevel(ctx, p)
		}, params)
	}
	return nil, fmt.Errorf("no method %s", method)
}

func (c *goTourist) leave() error {
	if c.session == nil {
		return nil
	}
	err := c.session.Close()
	if err != nil && strings.Contains(err.Error(), "signal") {
		return nil // the server did not end by itself
	}
	return err
}
