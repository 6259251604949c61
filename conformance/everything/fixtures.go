package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"sync"
	"time"

	"mcpbridge/clients/provider"
)

// pause is the time between the notifications of a fixture.
const pause = 50 * time.Millisecond

// fixtures is what the provider offers, whatever the dialect.
type fixtures struct {
	whole bool // prompts and resources are offered too

	mu      sync.Mutex // held while the offer is read or changes
	visitor bool       // test_visiting_tool is offered
	guest   bool       // test_visiting_prompt is offered
	// publish tells the bridge that tools or prompts have changed, with mu held.
	publish func(ctx context.Context, kind string) error
}

// reporter takes what a tool reports before it answers: a call, in either dialect.
type reporter interface {
	Progress(progress, total float64, message string)
	Log(level, logger string, data any)
}

// tool is a tool with a Handle, or one that reports on its way.
type tool struct {
	provider.Tool
	report func(ctx context.Context, to reporter) (provider.Result, error)
}

// newProvider is the provider of dialect bridge.v1, which carries tools alone.
func newProvider(cfg provider.Config) (*provider.Provider, error) {
	f := &fixtures{}
	tools := func() []provider.Tool {
		var all []provider.Tool
		for _, t := range f.tools() {
			if t.report != nil {
				t.Handle = func(ctx context.Context, call *provider.Call) (provider.Result, error) { return t.report(ctx, call) }
			}
			all = append(all, t.Tool)
		}
		return all
	}
	cfg.Tools = tools()
	p, err := provider.New(cfg)
	f.publish = func(ctx context.Context, _ string) error {
		_, err := p.SetTools(ctx, tools()...)
		return err
	}
	return p, err
}

// tools is the whole set, read with mu held. Its names and what the tools do come from the
// descriptions in the suite's own scenarios.
func (f *fixtures) tools() []tool {
	plain := []provider.Tool{
		{
			Name: "test_simple_text", Title: "Simple text", Description: "Returns a text.",
			Handle: returns(provider.Text("This is a simple text response for testing.")),
		},
		{
			Name: "test_image_content", Title: "Image", Description: "Returns a PNG image of one red pixel.",
			Handle: returns(provider.Image("image/png", redPixel())),
		},
		{
			Name: "test_audio_content", Title: "Audio", Description: "Returns a tenth of a second of a 440 Hz tone as WAV.",
			Handle: returns(provider.Blocks(provider.AudioContent("audio/wav", tone()))),
		},
		{
			Name: "test_embedded_resource", Title: "Embedded resource", Description: "Returns a text resource inside the result.",
			Handle: returns(provider.Blocks(provider.ResourceContent("test://embedded-resource", "text/plain", "This is an embedded resource content."))),
		},
		{
			Name: "test_multiple_content_types", Title: "Several kinds of content", Description: "Returns a text, an image and a resource.",
			Handle: returns(provider.Blocks(
				provider.TextContent("Multiple content types test:"),
				provider.ImageContent("image/png", redPixel()),
				provider.ResourceContent("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
			)),
		},
		{
			Name: "test_error_handling", Title: "Failing tool", Description: "Always fails.",
			Handle: returns(provider.Failure("This tool intentionally returns an error for testing")),
		},
		{
			Name: "test_trigger_tool_change", Title: "Change of tools", Description: "Adds or removes the tool test_visiting_tool.",
			Handle: f.changeTools,
		},
		{
			Name: "test_reconnection", Title: "Slow answer", Description: "Answers after a tenth of a second, so that a client can lose its stream meanwhile.",
			Handle: slow,
		},
		{
			Name: "json_schema_2020_12_tool", Title: "JSON Schema 2020-12", Description: "Tool with JSON Schema 2020-12 features",
			InputSchema: json.RawMessage(contactSchema),
			Handle:      returnsArguments,
		},
		{
			Name: "test_mirrored_argument", Title: "Argument in a header", Description: "Returns its arguments, of which clients mirror region into a header.",
			InputSchema: json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`),
			Handle:      returnsArguments,
		},
	}
	plain = append(plain, inputTools()...)
	plain = append(plain, taskTools()...)
	if f.whole {
		plain = append(plain, provider.Tool{
			Name: "test_trigger_prompt_change", Title: "Change of prompts", Description: "Adds or removes the prompt test_visiting_prompt.",
			Handle: f.changePrompts,
		})
	}
	if f.visitor {
		plain = append(plain, provider.Tool{
			Name: "test_visiting_tool", Title: "Visitor", Description: "Comes and goes with test_trigger_tool_change.",
			Handle: returns(provider.Text("Here for now.")),
		})
	}
	tools := []tool{
		{report: progress, Tool: provider.Tool{
			Name: "test_tool_with_progress", Title: "Progress", Description: "Reports progress of 0, 50 and 100 of 100.",
		}},
		{report: logging, Tool: provider.Tool{
			Name: "test_tool_with_logging", Title: "Logging", Description: "Sends three log messages at level info.",
		}},
		{report: logOnce, Tool: provider.Tool{
			Name: "test_logging_tool", Title: "Logging once", Description: "Sends one log message at level info.",
		}},
	}
	for _, t := range plain {
		tools = append(tools, tool{Tool: t})
	}
	return tools
}

// contactSchema uses the vocabulary of SEP-1613 and SEP-2106: $defs, $anchor,
// composition and conditions.
const contactSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "$defs": {
    "address": {
      "$anchor": "addressDef",
      "type": "object",
      "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
    }
  },
  "properties": {
    "name": {"type": "string"},
    "address": {"$ref": "#/$defs/address"},
    "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    "phone": {"type": "string"},
    "email": {"type": "string"}
  },
  "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
  "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
  "then": {"required": ["phone"]},
  "else": {"required": ["email"]},
  "additionalProperties": false
}`

func returns(r provider.Result) provider.Handler {
	return func(context.Context, *provider.Call) (provider.Result, error) { return r, nil }
}

func returnsArguments(_ context.Context, call *provider.Call) (provider.Result, error) {
	if call.Arguments == nil {
		return provider.Text("{}"), nil
	}
	return provider.Text(string(call.Arguments)), nil
}

func progress(ctx context.Context, to reporter) (provider.Result, error) {
	for _, step := range []float64{0, 50, 100} {
		if step > 0 {
			if err := wait(ctx, pause); err != nil {
				return provider.Result{}, err
			}
		}
		to.Progress(step, 100, fmt.Sprintf("%g of 100", step))
	}
	return provider.Text("Went from 0 to 100."), nil
}

func logging(ctx context.Context, to reporter) (provider.Result, error) {
	for i, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			if err := wait(ctx, pause); err != nil {
				return provider.Result{}, err
			}
		}
		to.Log("info", "", text)
	}
	return provider.Text("Logged three messages."), nil
}

func logOnce(_ context.Context, to reporter) (provider.Result, error) {
	to.Log("info", "", "Tool execution started")
	return provider.Text("Logged one message."), nil
}

func slow(ctx context.Context, _ *provider.Call) (provider.Result, error) {
	if err := wait(ctx, 2*pause); err != nil {
		return provider.Result{}, err
	}
	return provider.Text("Answered late."), nil
}

// changeTools adds the visiting tool or takes it away, and answers once the bridge
// has been told.
func (f *fixtures) changeTools(ctx context.Context, _ *provider.Call) (provider.Result, error) {
	return f.change(ctx, "tools", "test_visiting_tool", &f.visitor)
}

// changePrompts does the same with the visiting prompt.
func (f *fixtures) changePrompts(ctx context.Context, _ *provider.Call) (provider.Result, error) {
	return f.change(ctx, "prompts", "test_visiting_prompt", &f.guest)
}

func (f *fixtures) change(ctx context.Context, kind, name string, here *bool) (provider.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*here = !*here
	if err := f.publish(ctx, kind); err != nil {
		return provider.Result{}, err
	}
	return provider.Text(presence(name, *here)), nil
}

func presence(name string, here bool) string {
	if here {
		return name + " is here."
	}
	return name + " is away."
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func redPixel() []byte {
	img := image.NewRGBA(image.Rect(0, 0, 1, 1))
	img.Set(0, 0, color.RGBA{R: 255, A: 255})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err) // of one pixel, into memory
	}
	return b.Bytes()
}

// tone is a WAV file: 8 kHz, mono, 16 bits.
func tone() []byte {
	const rate, samples = 8000, 800
	var data bytes.Buffer
	for i := range samples {
		v := math.Sin(2*math.Pi*440*float64(i)/rate) * math.MaxInt16 / 2
		binary.Write(&data, binary.LittleEndian, int16(v)) //nolint:errcheck // into memory
	}
	var b bytes.Buffer
	b.WriteString("RIFF")
	binary.Write(&b, binary.LittleEndian, uint32(36+data.Len())) //nolint:errcheck // into memory
	b.WriteString("WAVEfmt ")
	for _, field := range []any{uint32(16), uint16(1), uint16(1), uint32(rate), uint32(rate * 2), uint16(2), uint16(16)} {
		binary.Write(&b, binary.LittleEndian, field) //nolint:errcheck // into memory
	}
	b.WriteString("data")
	binary.Write(&b, binary.LittleEndian, uint32(data.Len())) //nolint:errcheck // into memory
	b.Write(data.Bytes())
	return b.Bytes()
}
