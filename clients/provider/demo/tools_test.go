package demo_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"mcpbridge/clients/provider"
	"mcpbridge/clients/provider/demo"
	"mcpbridge/clients/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call runs a tool's handler as it is.
func call(t *testing.T, counterPath, tool, arguments string) (provider.Result, error) {
	t.Helper()
	for _, d := range demo.Tools(counterPath) {
		if d.Name == tool {
			c := &provider.Call{Name: tool}
			if arguments != "" {
				c.Arguments = json.RawMessage(arguments)
			}
			return d.Handle(t.Context(), c)
		}
	}
	t.Fatalf("no tool %q", tool)
	return provider.Result{}, nil
}

// text is the text of a result's only block.
func text(t *testing.T, r provider.Result, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var block struct{ Type, Text string }
	if len(r.Content) != 1 || json.Unmarshal(r.Content[0], &block) != nil || block.Type != "text" {
		t.Fatalf("content = %s", r.Content)
	}
	return block.Text
}

func TestEcho(t *testing.T) {
	for _, want := range []string{"", "hello <&> \u2028 ☃"} {
		arguments, err := json.Marshal(map[string]string{"text": want})
		if err != nil {
			t.Fatal(err)
		}
		r, err := call(t, "", "echo", string(arguments))
		if got := text(t, r, err); got != want {
			t.Errorf("echo = %q, want %q", got, want)
		}
	}
}

func TestAdd(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"a":2,"b":40}`:                                   "42",
		`{"a":-1,"b":0.5}`:                                 "-0.5",
		`{"a":9007199254740993,"b":1}`:                     "9007199254740994",
		`{"a":99999999999999999999999999999999999,"b":-1}`: "99999999999999999999999999999999998",
		`{"a":1e300,"b":1e300}`:                            "2e+300",
	} {
		r, err := call(t, "", "add", arguments)
		if got := text(t, r, err); got != want || string(r.Structured) != `{"sum":`+want+`}` {
			t.Errorf("add %s = %q, %s; want %q", arguments, got, r.Structured, want)
		}
	}
	for _, arguments := range []string{`{"a":1.7e308,"b":1.7e308}`, `{"a":1}`, `{"a":"x","b":1}`, ``, `{"a":1e999,"b":1}`} {
		if r, err := call(t, "", "add", arguments); err == nil {
			t.Errorf("add %s = %s", arguments, r.Content)
		}
	}
}

func TestCounterSurvivesRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "counter")
	for _, step := range []struct{ arguments, want string }{
		{``, "1"}, {`{}`, "2"}, {`{"by":40}`, "42"}, {`{"by":-50}`, "-8"}, {`{"by":0}`, "-8"},
	} {
		r, err := call(t, path, "get_counter", step.arguments) // each time a new set: a restart
		if got := text(t, r, err); got != step.want || string(r.Structured) != `{"value":`+step.want+`}` {
			t.Errorf("get_counter %s = %q, %s; want %q", step.arguments, got, r.Structured, step.want)
		}
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "-8\n" {
		t.Errorf("file = %q, %v", b, err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCounterTellsWhatIsWrongButNotWhere(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "counter")
	for content, by := range map[string]string{"many": `{}`, "9223372036854775807": `{"by":1}`, "-9223372036854775808": `{"by":-1}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := call(t, path, "get_counter", by); err == nil || strings.Contains(err.Error(), folder) {
			t.Errorf("%s: get_counter = %s, %v", content, r.Content, err)
		}
	}
	if _, err := call(t, folder, "get_counter", ""); err == nil || strings.Contains(err.Error(), folder) {
		t.Errorf("a folder: %v", err)
	}
}

func TestCounterLosesNoCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counter")
	var handle provider.Handler
	for _, d := range demo.Tools(path) {
		if d.Name == "get_counter" {
			handle = d.Handle
		}
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := handle(t.Context(), &provider.Call{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r, err := call(t, path, "get_counter", `{"by":0}`)
	if got := text(t, r, err); got != "20" {
		t.Errorf("counter = %s, want 20", got)
	}
}

func TestPictureIsAPNG(t *testing.T) {
	r, err := call(t, "", "picture", "")
	if err != nil {
		t.Fatal(err)
	}
	var block struct{ Type, Data, MimeType string }
	if err := json.Unmarshal(r.Content[0], &block); err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(block.Data)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil || block.Type != "image" || block.MimeType != "image/png" || img.Bounds().Dx() != 96 {
		t.Errorf("picture = %s %s: %v", block.Type, block.MimeType, err)
	}
}

func TestSlowReportsProgressAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- provider.Run(ctx, bridge.Config(demo.Tools("")...)) }()
		peer := bridge.Accept()
		if _, tools := peer.Greet(); len(tools.Tools) != 5 {
			t.Errorf("%d tools", len(tools.Tools))
		}
		from := time.Now()
		answer, steps := peer.Call("slow", `{"seconds":2.5}`)
		if took := time.Since(from); took != 2500*time.Millisecond || !strings.Contains(string(answer.Result), "2.5 seconds") {
			t.Errorf("answer after %v: %s", took, answer.Raw)
		}
		for i, want := range []float64{1, 2, 2.5} {
			if len(steps) != 3 || steps[i].Progress != want || steps[i].Total != 2.5 {
				t.Fatalf("steps = %+v", steps)
			}
		}
		if _, steps := peer.Call("slow", ""); len(steps) != 5 {
			t.Errorf("%d steps by default, want 5", len(steps))
		}
		from = time.Now()
		peer.Send(`{"type":"callTool","callId":"1","name":"slow","params":{"seconds":3600}}`)
		peer.Send(`{"type":"cancelCall","callId":"1","reason":"enough"}`)
		stop()
		if err := <-ended; err != nil || time.Since(from) > 10*time.Second { // Run waits for its handlers
			t.Errorf("Run = %v after %v", err, time.Since(from))
		}
	})
	for _, arguments := range []string{`{"seconds":-1}`, `{"seconds":3601}`, `{"seconds":"x"}`} {
		if _, err := call(t, "", "slow", arguments); err == nil {
			t.Errorf("slow takes %s", arguments)
		}
	}
}

func TestStoppedSlowSaysHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, provider.ErrDeadline)
		defer cancel()
		_, err := demo.Tools("")[3].Handle(ctx, &provider.Call{})
		if !errors.Is(err, provider.ErrDeadline) || !strings.Contains(err.Error(), "after 1 of 5 seconds") {
			t.Errorf("slow = %v", err)
		}
	})
}

func TestEveryToolIsFullyDescribed(t *testing.T) {
	for _, d := range demo.Tools("") {
		a := d.Annotations
		if d.Title == "" || d.Description == "" || a == nil || a.ReadOnly == nil || a.Destructive == nil || a.Idempotent == nil || a.OpenWorld == nil {
			t.Errorf("%s = %+v", d.Name, d)
		}
		for _, raw := range []json.RawMessage{d.InputSchema, d.OutputSchema} {
			if raw == nil {
				continue
			}
			schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				t.Fatalf("%s: %v in %s", d.Name, err, raw)
			}
			c := jsonschema.NewCompiler()
			if err := c.AddResource("tool.json", schema); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Compile("tool.json"); err != nil {
				t.Errorf("%s: %v", d.Name, err)
			}
		}
	}
}
