package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"mcpbridge/clients/provider"
	"mcpbridge/clients/provider/demo"
)

// demoBridge is the bridge of `serve --demo`.
const demoBridge = "demo"

type demoCmd struct {
	URL       string `name:"url" default:"ws://127.0.0.1:8080/b/demo/provider" placeholder:"URL" help:"The bridge's provider URL. Default: ${default}."`
	Token     string `placeholder:"TOKEN" help:"The bridge's provider token. Better given as the environment variable: others can see a command's flags."`
	Counter   string `type:"path" default:"./demo-counter" placeholder:"FILE" help:"Where get_counter keeps its value. Default: ./demo-counter."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error. Default: ${default}."`
	LogFormat string `enum:"text,json" default:"text" help:"text or json. Default: ${default}."`
}

// Run offers the demo tools until ctx ends.
func (c *demoCmd) Run(ctx context.Context, p *Program) error {
	log := newLogger(p.Stderr, c.LogLevel, c.LogFormat)
	err := provider.Run(ctx, demoProvider(c.URL, c.Token, c.Counter, log, func(r provider.Registration) {
		log.Info("tools registered", "tools", len(r.Tools), "rejected", len(r.Rejected))
	}))
	if ctx.Err() == nil {
		return err
	}
	return nil // we were told to
}

func demoProvider(url, token, counter string, log *slog.Logger, registered func(provider.Registration)) provider.Config {
	return provider.Config{
		URL:        url,
		Token:      token,
		Provider:   "demo",
		Title:      "mcpbridge demo",
		Version:    buildVersion(),
		Tools:      demo.Tools(counter),
		Registered: registered,
		Log:        log,
	}
}

// firstCall bounds how long the demo's own call may take to be answered.
const firstCall = 20 * time.Second

// show is the main job for a newcomer: it connects the demo provider, whose
// counter is in that file, to a bridge of the server at address, calls a tool
// through it as any MCP client would, and prints what happened and what clients
// need, all of it under the public URL. The provider stays until ctx ends.
func show(ctx context.Context, p *Program, public, address, counter string, log *slog.Logger) error {
	staying, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	ready := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		err := provider.Run(staying, demoProvider("ws://"+address+"/b/"+demoBridge+"/provider", "", counter, log,
			func(provider.Registration) { once.Do(func() { close(ready) }) }))
		leave(cmp.Or(err, errDemoEnded))
	})
	defer wg.Wait()
	select {
	case <-ready:
		if err := showCall(staying, p.Stdout, public, address); err != nil {
			leave(err)
		}
	case <-staying.Done():
	}
	<-staying.Done()
	if ctx.Err() != nil { // we were told to
		return nil
	}
	return context.Cause(staying)
}

var errDemoEnded = errors.New("the demo provider ended")

// showCall makes one call over HTTP and prints it with the URLs.
func showCall(ctx context.Context, w io.Writer, public, address string) error {
	const tool, arguments = "add", `{"a":2,"b":40}`
	ctx, cancel := context.WithTimeout(ctx, firstCall)
	defer cancel()
	client := &mcpClient{url: "http://" + address + "/b/" + demoBridge + "/mcp"}
	if err := client.connect(ctx); err != nil {
		return err
	}
	defer client.close(ctx)
	tools, err := client.tools(ctx)
	if err != nil {
		return err
	}
	result, err := client.call(ctx, tool, json.RawMessage(arguments))
	if err != nil {
		return err
	}
	var names []string
	for _, raw := range tools {
		var t struct{ Name string }
		if json.Unmarshal(raw, &t) == nil {
			names = append(names, t.Name)
		}
	}
	base := public + "/b/" + demoBridge
	fmt.Fprintf(w, `
mcpbridge is up at %s

The demo provider has dialled in and offers: %s
One real tools/call through it, over HTTP:
  %s %s
  → %s

  MCP clients      %s/mcp
  2024-11-05 SSE   %s/sse
  tool providers   ws%s/provider
  health           %s/health

%s
From this terminal:
  mcpbridge tools %s/mcp
  mcpbridge call %s/mcp %s '%s'

Ctrl-C ends it.
`, public, strings.Join(names, ", "), tool, arguments, result,
		base, base, strings.TrimPrefix(base, "http"), base,
		clientConfig("mcpbridge-demo", base+"/mcp"), base, base, tool, arguments)
	return nil
}

// clientConfig is what a user pastes to make clients use the endpoint, which
// wants no token.
func clientConfig(name, endpoint string) string {
	object := func(v any) string {
		text, err := json.MarshalIndent(v, "  ", "  ")
		if err != nil {
			panic(err) // strings and maps
		}
		return string(text)
	}
	server := map[string]string{"type": "http", "url": endpoint}
	return fmt.Sprintf(`VS Code, in .vscode/mcp.json:
  %s
Claude Code:
  claude mcp add --transport http %s %s
Cursor, in .cursor/mcp.json:
  %s
`, object(map[string]any{"servers": map[string]any{name: server}}), name, endpoint,
		object(map[string]any{"mcpServers": map[string]any{name: map[string]string{"url": endpoint}}}))
}
