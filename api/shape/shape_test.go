package shape_test

import (
	"encoding/json"
	"testing"

	"mcpbridge/api/shape"
	"mcpbridge/api/wire"
)

func TestToolsAreShapedByEra(t *testing.T) {
	object := `{"name":"a","inputSchema":{},"outputSchema":{"type":"object"} , "x":1}`
	array := `{"name":"a","inputSchema":{},"outputSchema":{"type":"array"} , "x":1}`
	for _, c := range []struct {
		era      shape.Era
		in, want string
	}{
		{shape.Modern, array, array},
		{shape.Structured, object, object},
		{shape.Structured, array, `{"name":"a","inputSchema":{},"x":1}`},
		{shape.Annotated, object, `{"name":"a","inputSchema":{},"x":1}`},
		{shape.First, object, `{"name":"a","inputSchema":{},"x":1}`},
	} {
		if got := (shape.Profile{Era: c.era}).Tool([]byte(c.in)); string(got) != c.want {
			t.Errorf("era %d: %s, want %s", c.era, got, c.want)
		}
	}
	in := []byte(object)
	if got := (shape.Profile{Era: shape.Structured}).Tool(in); &got[0] != &in[0] {
		t.Error("an unchanged definition was copied")
	}
}

func TestResultsAreShapedByEra(t *testing.T) {
	for _, c := range []struct {
		era      shape.Era
		in, want string
	}{
		{shape.Modern, `{"structuredContent":[1]}`, `{"structuredContent":[1]}`},
		{shape.Structured, `{"content":[],"structuredContent":{"n":9007199254740993}}`, `{"content":[],"structuredContent":{"n":9007199254740993}}`},
		{shape.Structured, `{"content":[{"type":"text","text":"1"}],"structuredContent":[1]}`, `{"content":[{"type":"text","text":"1"}]}`},
		{shape.Structured, `{"content":[],"structuredContent":[9007199254740993],"x":1}`, `{"x":1,"content":[{"type":"text","text":"[9007199254740993]"}]}`},
		{shape.Annotated, `{"content":[{"type":"resource_link","name":"n","uri":"u://x"},{"type":"audio"}]}`, `{"content":[{"type":"text","text":"n u://x"},{"type":"audio"}]}`},
		{
			shape.First, `{"content":[{"type":"audio","data":"x","mimeType":"audio/wav"},{"type":"video"}],"isError":false}`,
			`{"content":[{"type":"text","text":"[audio, audio/wav, which this client's revision cannot carry]"},{"type":"video"}],"isError":false}`,
		},
	} {
		if got := (shape.Profile{Era: c.era}).Result([]byte(c.in)); string(got) != c.want {
			t.Errorf("era %d\n got %s\nwant %s", c.era, got, c.want)
		}
	}
}

// TestShieldRepairsWhatClientsRefuse holds case O20, among others.
func TestShieldRepairsWhatClientsRefuse(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                `{"type":"object","properties":{}}`,
		`{"type":"object"}`: `{"type":"object","properties":{}}`,
		`{"type":"object","properties":{"a":{"type":"string"}}}`:                                                `{"type":"object","properties":{"a":{"type":"string"}}}`,
		`{"type":"object","properties":{"a":{"type":"array"}}}`:                                                 `{"type":"object","properties":{"a":{"type":"array","items":{}}}}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"array"}}}}`:                        `{"type":"object","properties":{"a":{"type":"array","items":{"type":"array","items":{}}}}}`,
		`{"anyOf":[{"properties":{"a":{}}},{"properties":{"a":{"type":"string"},"b":{"n":9007199254740993}}}]}`: `{"properties":{"a":{},"b":{"n":9007199254740993}},"type":"object"}`,
	} {
		got := shape.Input(json.RawMessage(in))
		if string(got) != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
		if again := shape.Input(got); string(again) != string(got) {
			t.Errorf("%s: repaired twice, it is %s", in, again)
		}
		if warned := len(shape.Warnings(json.RawMessage(in))) > 0; warned && string(got) == in {
			t.Errorf("%s: a warning of nothing", in)
		}
	}
}

func TestClientsThatNeedTheShield(t *testing.T) {
	for name, want := range map[string]bool{
		"claude-code": true, "claude-ai": true, "Visual Studio Code": true, "cursor-vscode": true, "openai-mcp": true, "codex-mcp-client": true,
		"mcp-inspector": false, "my-agent": false, "": false,
	} {
		if shape.Shielded(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// FuzzShape: whatever is shaped is still JSON, and shaping it again changes nothing.
func FuzzShape(f *testing.F) {
	f.Add(`{"inputSchema":{"anyOf":[{"properties":{"a":{"type":"array"}}}]},"outputSchema":{"type":"array"}}`)
	f.Add(`{"content":[{"type":"resource_link","name":7}],"structuredContent":[1]}`)
	f.Fuzz(func(t *testing.T, in string) {
		s, err := wire.NewScanner([]byte(in), 64)
		if err != nil || in == "" || in[0] != '{' {
			return
		}
		if _, err := s.Raw(); err != nil || s.End() != nil {
			return
		}
		for era := range shape.First + 1 {
			p := shape.Profile{Era: era, Shield: true}
			for name, f := range map[string]func([]byte) []byte{"tool": p.Tool, "result": p.Result} {
				out := f([]byte(in))
				if !json.Valid(out) {
					t.Fatalf("%s of %s is %s", name, in, out)
				}
				if again := f(out); string(again) != string(out) {
					t.Fatalf("%s of %s is %s, and then %s", name, in, out, again)
				}
			}
		}
	})
}
