package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type callCmd struct {
	Bridge    string `arg:"" help:"The bridge's ID, or its MCP URL."`
	Tool      string `arg:"" help:"The tool's name, as \"mcpbridge tools\" lists it."`
	Arguments string `arg:"" optional:"" default:"{}" help:"A JSON object; \"-\" reads it from standard input."`
	bridgeFlags
	Timeout time.Duration `placeholder:"60s" help:"Deadline of the call, in whole seconds. Default: the tool's or the server's own."`
	Output  string        `short:"o" enum:"text,json" default:"text" help:"text, or json: the result as the tool gave it."`
}

// Validate implements kong's interface.
func (c *callCmd) Validate() error {
	if c.Timeout < 0 || c.Timeout%time.Second != 0 {
		return fmt.Errorf("--timeout is %v, want whole seconds", c.Timeout)
	}
	return nil
}

// errToolFailed: the result is printed, and says why.
var errToolFailed = errors.New("the tool reports an error")

// Run calls the tool.
func (c *callCmd) Run(ctx context.Context, p *Program) error {
	arguments := []byte(c.Arguments)
	if c.Arguments == "-" {
		var err error
		if arguments, err = io.ReadAll(io.LimitReader(p.Stdin, maxAnswer)); err != nil {
			return err
		}
	}
	if !isObject(arguments) {
		return usagef("the arguments are not a JSON object, such as '{\"message\":\"hello\"}'")
	}
	target, err := endpoint(c.Server, c.Bridge)
	if err != nil {
		return err
	}
	if target, err = withTimeout(target, c.Timeout); err != nil {
		return err
	}
	shown := newProgress(p.Stderr)
	client := &mcpClient{url: target, token: c.Token, notify: shown.notification}
	if err := client.connect(ctx); err != nil {
		return err
	}
	defer client.close(ctx)
	result, err := client.call(ctx, c.Tool, arguments)
	shown.clear()
	switch {
	case err == nil:
		return p.print(result, c.Output)
	case ctx.Err() != nil:
		return fmt.Errorf("cancelled: %w; the bridge was told", err)
	default:
		return err
	}
}

func isObject(text []byte) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
}

// withTimeout asks for a deadline the way the bridge reads it; zero asks for
// none.
func withTimeout(target string, d time.Duration) (string, error) {
	if d == 0 {
		return target, nil
	}
	u, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Set("timeout", strconv.FormatInt(int64(d/time.Second), 10))
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// call is tools/call: the raw result. arguments is a JSON object.
func (c *mcpClient) call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	return c.request(ctx, "tools/call", map[string]any{
		"name":      tool,
		"arguments": arguments,
		"_meta":     map[string]any{"progressToken": "cli"},
	})
}

// notification shows what the bridge tells about a call under way.
func (p *progress) notification(method string, params json.RawMessage) {
	switch method {
	case "notifications/progress":
		var report struct {
			Progress, Total float64
			Message         string
		}
		if json.Unmarshal(params, &report) == nil {
			p.show(report.Progress, report.Total, report.Message)
		}
	case "notifications/message":
		var entry struct {
			Level, Logger string
			Data          json.RawMessage
		}
		if json.Unmarshal(params, &entry) == nil {
			text := string(entry.Data)
			var plain string
			if json.Unmarshal(entry.Data, &plain) == nil {
				text = plain
			}
			p.line(oneLine(strings.Join([]string{entry.Level, entry.Logger, text}, " "), 200))
		}
	}
}

// print writes a tool's result: as it came, or its content for people. A result
// that is an error is printed too, and is an error.
func (p *Program) print(result json.RawMessage, output string) error {
	var r struct {
		Content           []json.RawMessage
		StructuredContent json.RawMessage
		IsError           bool
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return fmt.Errorf("the answer is not a tool result: %w", err)
	}
	var text string
	switch {
	case output == "json":
		text = string(result) + "\n"
	case len(r.Content) == 0 && r.StructuredContent != nil:
		text = string(r.StructuredContent) + "\n"
	default:
		for _, block := range r.Content {
			text += describe(block) + "\n"
		}
	}
	if isTerminal(p.Stdout) {
		text = harmless(text)
	}
	if _, err := io.WriteString(p.Stdout, text); err != nil {
		return err
	}
	if r.IsError {
		return errToolFailed
	}
	return nil
}

// describe is a content block for people: its text, or what it is.
func describe(block json.RawMessage) string {
	var b struct {
		Type, Text, Data, MimeType, URI, Name string
		Resource                              struct{ URI, Text, MimeType string }
	}
	if json.Unmarshal(block, &b) != nil {
		return string(block)
	}
	switch b.Type {
	case "text":
		return b.Text
	case "image", "audio":
		return fmt.Sprintf("[%s %s, %d bytes; -o json prints it]", b.Type, b.MimeType, len(strings.TrimRight(b.Data, "="))*3/4)
	case "resource_link":
		return fmt.Sprintf("[%s %s]", b.Name, b.URI)
	case "resource":
		if b.Resource.Text != "" {
			return b.Resource.Text
		}
		return fmt.Sprintf("[resource %s %s]", b.Resource.URI, b.Resource.MimeType)
	default:
		return string(block)
	}
}
