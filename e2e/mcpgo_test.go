package e2e

import (
	"context"
	"log/slog"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// mcpGoClient is mcp-go's.
type mcpGoClient struct {
	*client.Client
	t      testing.TB
	legacy bool
	seen   *sightings
}

// mcpGo speaks the newest revision, or the newest with sessions: a transport that
// listens all the time does.
func mcpGo(legacy bool) func(testing.TB, string, *sightings) mcpClient {
	return func(t testing.TB, url string, seen *sightings) mcpClient {
		t.Helper()
		options := []transport.StreamableHTTPCOption{
			transport.WithHTTPBasicClient(watchedHTTP(t, seen)),
			transport.WithHTTPLogger(slog.New(slog.DiscardHandler)),
		}
		if legacy {
			options = append(options, transport.WithContinuousListening()) //nolint:staticcheck // deprecated, and used by all who need a stream with sessions
		}
		stream, err := transport.NewStreamableHTTP(url, options...)
		if err != nil {
			t.Fatal(err)
		}
		inner := client.NewClient(stream,
			client.WithElicitationHandler(zoe{}), client.WithSamplingHandler(zoe{}), client.WithRootsHandler(zoe{}))
		c := &mcpGoClient{inner, t, legacy, seen}
		t.Cleanup(func() { _ = c.close() })
		c.OnNotification(func(n mcp.JSONRPCNotification) {
			switch n.Method {
			case string(mcp.MethodNotificationToolsListChanged):
				seen.changed <- struct{}{}
			case "notifications/progress":
				p := n.Params.AdditionalFields
				done, _ := p["progress"].(float64)
				total, _ := p["total"].(float64)
				message, _ := p["message"].(string)
				seen.progress <- report{done, total, message}
			}
		})
		return c
	}
}

// zoe answers a server's questions.
type zoe struct{}

// Elicit implements [client.ElicitationHandler].
func (zoe) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"name": "Zoë"},
	}}, nil
}

// CreateMessage implements [client.SamplingHandler].
func (zoe) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("something")}, Model: "m",
	}, nil
}

// ListRoots implements [client.RootsHandler].
func (zoe) ListRoots(context.Context, mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: "file:///home/zoe"}}}, nil
}

func (c *mcpGoClient) connect(ctx context.Context) (identity, error) {
	if err := c.Start(context.WithoutCancel(ctx)); err != nil { // it listens until Close
		return identity{}, err
	}
	request := mcp.InitializeRequest{}
	request.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	r, err := c.Initialize(ctx, request)
	if err != nil {
		return identity{}, err
	}
	if !c.legacy {
		if err := c.listen(ctx); err != nil {
			return identity{}, err
		}
	}
	return identity{r.ServerInfo.Name, r.ServerInfo.Version, r.ProtocolVersion}, nil
}

func (c *mcpGoClient) list(ctx context.Context) ([]definition, error) {
	r, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	return definitions(r.Tools)
}

func (c *mcpGoClient) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	request := mcp.CallToolRequest{}
	request.Params.Name = tool
	request.Params.Arguments = arguments
	request.Params.Meta = &mcp.Meta{ProgressToken: "steps of " + tool}
	r, err := c.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	return firstText(r.Content, r.IsError)
}

func (c *mcpGoClient) listen(ctx context.Context) error {
	stop, err := c.ListenAsync(context.WithoutCancel(ctx), mcp.SubscriptionFilter{ToolsListChanged: true},
		func(error) { c.seen.ended <- struct{}{} })
	if err == nil {
		c.t.Cleanup(stop)
	}
	return err
}

func (c *mcpGoClient) close() error { return c.Close() }
