package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/clients/provider"
	"mcpbridge/clients/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a provider under test and the bridge that it talks to.
type running struct {
	*provider.Provider
	bridge *providertest.Bridge
	log    *lockedBuffer
	stop   context.CancelFunc
	ended  chan error // what Run returned
}

// start runs a provider in a bubble; change may alter its configuration.
func start(t *testing.T, change func(*provider.Config), tools ...provider.Tool) *running {
	t.Helper()
	return startOn(t, providertest.New(t), change, tools...)
}

func startOn(t *testing.T, bridge *providertest.Bridge, change func(*provider.Config), tools ...provider.Tool) *running {
	t.Helper()
	r := &running{bridge: bridge, log: &lockedBuffer{}, ended: make(chan error, 1)}
	cfg := r.bridge.Config(tools...)
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	if change != nil {
		change(&cfg)
	}
	p, err := provider.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Provider = p
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.ended <- p.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-finished })
	return r
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func echo() provider.Tool {
	return provider.Tool{Name: "echo", Handle: func(_ context.Context, c *provider.Call) (provider.Result, error) {
		return provider.Text(string(c.Arguments)), nil
	}}
}

// blocker is a tool whose handler tells its Call and its context, and answers
// when told.
func blocker() (provider.Tool, chan context.Context, chan string) {
	began, release := make(chan context.Context, 8), make(chan string)
	return provider.Tool{Name: "block", Handle: func(ctx context.Context, c *provider.Call) (provider.Result, error) {
		began <- ctx
		select {
		case text := <-release:
			return provider.Text(text), nil
		case <-ctx.Done():
			return provider.Result{}, context.Cause(ctx)
		}
	}}, began, release
}

func welcome(resume string, resumed bool) string {
	b, _ := json.Marshal(map[string]any{
		"type": "welcome", "protocol": 1, "bridge": "test", "provider": "test", "instance": "i",
		"resume": resume, "resumed": resumed, "pingSeconds": 20, "limits": map[string]any{},
	})
	return string(b)
}

func TestHelloComesFirstAndNamesTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(c *provider.Config) {
			c.Token, c.Title, c.Version, c.Instance, c.Retain = "secret", "A <b> title", "1.2", "one", 90*time.Second
		}, echo())
		peer := r.bridge.Accept()
		hello, tools := peer.Greet()
		if got := peer.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization = %q", got)
		}
		if got := peer.Header.Get("Sec-WebSocket-Protocol"); got != "bridge.v1" {
			t.Errorf("subprotocol = %q", got)
		}
		want := `{"type":"hello","protocol":1,"provider":"test","title":"A <b> title","version":"1.2","instance":"one","retainSeconds":90}`
		if string(hello.Raw) != want {
			t.Errorf("hello = %s\nwant    %s", hello.Raw, want)
		}
		want = `{"type":"registerTools","id":"1","replace":true,"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		if string(tools.Raw) != want {
			t.Errorf("tools = %s\nwant    %s", tools.Raw, want)
		}
		if strings.Contains(r.log.String(), "secret") {
			t.Error("the token is in the log")
		}
	})
}

func TestRetainCanBeNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(c *provider.Config) { c.Retain = -1 })
		hello := r.bridge.Accept().Expect("hello")
		if hello.RetainSeconds == nil || *hello.RetainSeconds != 0 {
			t.Errorf("hello = %s, want retainSeconds 0", hello.Raw)
		}
	})
}

func TestPingIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"ping"}`)
		if got := peer.Expect("pong"); string(got.Raw) != `{"type":"pong"}` {
			t.Errorf("pong = %s", got.Raw)
		}
	})
}

func TestRawJSONPassesByteForByte(t *testing.T) {
	definition := "{\"name\": \"raw\",\n \"inputSchema\": {\"type\":\"object\",\"x\":9007199254740993}, \"_meta\":{\"a\":\"<&>\"}}"
	result := "{ \"content\" : [ {\"type\":\"new\",\"n\":9007199254740993,\"s\":\"<\\u0026>\"} ] }"
	synctest.Test(t, func(t *testing.T) {
		var arguments string
		r := start(t, nil, provider.Tool{
			Raw: json.RawMessage(definition),
			Handle: func(_ context.Context, c *provider.Call) (provider.Result, error) {
				arguments = string(c.Arguments)
				return provider.Result{Raw: json.RawMessage(result)}, nil
			},
		})
		peer := r.bridge.Accept()
		if _, tools := peer.Greet(); !strings.Contains(string(tools.Raw), definition) {
			t.Errorf("tools = %s\nwant    %s", tools.Raw, definition)
		}
		answer, _ := peer.Call("raw", `{"n": 9007199254740993, "s":"<"}`)
		if want := `{"type":"toolResult","callId":"call","result":` + result + `}`; string(answer.Raw) != want {
			t.Errorf("answer = %s\nwant     %s", answer.Raw, want)
		}
		if want := `{"n": 9007199254740993, "s":"<"}`; arguments != want {
			t.Errorf("arguments = %s, want %s", arguments, want)
		}
	})
}

func TestAnswers(t *testing.T) {
	structured, err := provider.Structured(map[string]int{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		result provider.Result
		err    error
		want   string
	}{
		"text":       {provider.Text("<a>"), nil, `"result":{"content":[{"type":"text","text":"<a>"}]}`},
		"empty":      {provider.Result{}, nil, `"result":{"content":[]}`},
		"image":      {provider.Image("image/png", []byte{1, 2}), nil, `"result":{"content":[{"type":"image","data":"AQI=","mimeType":"image/png"}]}`},
		"failure":    {provider.Failure("no"), nil, `"result":{"content":[{"type":"text","text":"no"}],"isError":true}`},
		"error":      {provider.Result{}, errors.New("no"), `"result":{"content":[{"type":"text","text":"no"}],"isError":true}`},
		"structured": {structured, nil, `"result":{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}`},
		"blocks": {
			provider.Blocks(provider.AudioContent("audio/wav", nil), provider.ResourceContent("a://b", "text/plain", "x")), nil,
			`"result":{"content":[{"type":"audio","data":"","mimeType":"audio/wav"},{"type":"resource","resource":{"uri":"a://b","mimeType":"text/plain","text":"x"}}]}`,
		},
		"meta": {provider.Result{Meta: json.RawMessage(`{"a":1}`)}, nil, `"result":{"content":[],"_meta":{"a":1}}`},
		"protocol error": {
			provider.Result{},
			&provider.Error{Code: -32000, Message: "<no>", Data: json.RawMessage(`{ "a":1}`)},
			`"error":{"code":-32000,"message":"<no>","data":{ "a":1}}`,
		},
		"bad raw":     {provider.Result{Raw: json.RawMessage(`[]`)}, nil, `"error":{"code":-32603,"message":"the tool's result cannot be encoded"}`},
		"bad content": {provider.Blocks(json.RawMessage(`{`)), nil, `"error":{"code":-32603,"message":"the tool's result cannot be encoded"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, nil, provider.Tool{Name: "tool", Handle: func(context.Context, *provider.Call) (provider.Result, error) {
					return test.result, test.err
				}})
				peer := r.bridge.Accept()
				peer.Greet()
				answer, _ := peer.Call("tool", "")
				if !strings.Contains(string(answer.Raw), `"callId":"call",`+test.want+`}`) {
					t.Errorf("answer = %s\nwant     %s", answer.Raw, test.want)
				}
			})
		})
	}
}

func TestUnknownToolIsAProtocolError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		answer, _ := peer.Call("nothing", "{}")
		if answer.Error == nil || answer.Error.Code != -32602 {
			t.Errorf("answer = %s", answer.Raw)
		}
	})
}

func TestPanicIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, provider.Tool{Name: "panic", Handle: func(context.Context, *provider.Call) (provider.Result, error) {
			panic("oh")
		}}, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		answer, _ := peer.Call("panic", "")
		if answer.Error == nil || answer.Error.Code != -32603 {
			t.Errorf("answer = %s", answer.Raw)
		}
		if answer, _ := peer.Call("echo", `{"a":1}`); answer.Type != "toolResult" {
			t.Errorf("after a panic: %s", answer.Raw)
		}
	})
}

func TestCallIDIsEchoedAsItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":9007199254740993,"name":"echo","params":null}`)
		if got := peer.Expect("toolResult"); string(got.CallID) != "9007199254740993" {
			t.Errorf("callId = %s", got.CallID)
		}
	})
}

func TestMetaReachesTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got provider.Call
		var left time.Duration
		r := start(t, nil, provider.Tool{Name: "tool", Handle: func(ctx context.Context, c *provider.Call) (provider.Result, error) {
			got = provider.Call{Arguments: c.Arguments, Client: c.Client, Traceparent: c.Traceparent, LogLevel: c.LogLevel, WantsProgress: c.WantsProgress}
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			if !deadline.Equal(c.Deadline) {
				t.Errorf("Deadline = %v, the context's is %v", c.Deadline, deadline)
			}
			return provider.Result{}, nil
		}})
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"tool","meta":{"deadlineMs":1500,"progress":true,"client":{"name":"c","version":"2"},"traceparent":"tp","logLevel":"notice","more":1}}`)
		peer.Expect("toolResult")
		if got.Arguments != nil || got.Client != (provider.Client{Name: "c", Version: "2"}) || got.Traceparent != "tp" || got.LogLevel != "notice" || !got.WantsProgress {
			t.Errorf("Call = %+v", got)
		}
		if left != 1500*time.Millisecond {
			t.Errorf("time left = %v", left)
		}
	})
}

func TestAskedClientsAnswersReachTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, provider.Tool{Name: "tool", Handle: func(_ context.Context, c *provider.Call) (provider.Result, error) {
			if c.Responses == nil {
				return provider.Ask("round <1>", map[string]provider.Request{
					"who":       provider.Elicit("Who?", json.RawMessage(`{ "type":"object" }`)),
					"a \"key\"": provider.Sample("Say <hi>", 50),
					"where":     provider.Roots(),
				}), nil
			}
			return provider.Text(c.State + string(c.Responses["who"]) + string(c.Capabilities)), nil
		}})
		peer := r.bridge.Accept()
		peer.Greet()
		answer, _ := peer.Call("tool", "{}")
		want := `{"resultType":"input_required","inputRequests":{` +
			`"a \"key\"":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"Say <hi>"}}],"maxTokens":50}},` +
			`"where":{"method":"roots/list","params":{}},` +
			`"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{ "type":"object" }}}},"requestState":"round <1>"}`
		if string(answer.Result) != want {
			t.Errorf("asked with %s\nwant       %s", answer.Result, want)
		}
		peer.Send(`{"type":"callTool","callId":"2","name":"tool","params":{},"inputResponses":{"who":{"action": "accept"}},"requestState":"s","meta":{"clientCapabilities":{"roots":{}}}}`)
		if got := peer.Expect("toolResult"); !strings.Contains(string(got.Result), `"s{\"action\": \"accept\"}{\"roots\":{}}"`) {
			t.Errorf("answer = %s", got.Raw)
		}
		for _, responses := range []string{`null`, `7`, `[]`} {
			peer.Send(`{"type":"callTool","callId":"3","name":"tool","inputResponses":` + responses + `,"requestState":5}`)
			if got := peer.Expect("toolResult"); string(got.Result) != want {
				t.Errorf("with %s: %s", responses, got.Raw)
			}
		}
	})
}

func TestProgressAndLogReachTheBridgeBeforeTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, provider.Tool{Name: "tool", Handle: func(_ context.Context, c *provider.Call) (provider.Result, error) {
			c.Progress(1, 0, "")
			c.Progress(2.5, 4, "half <way>")
			c.Log("info", "", "text")
			c.Log("error", "db", map[string]any{"a": "<"})
			return provider.Result{}, nil
		}})
		peer := r.bridge.Accept()
		peer.Greet()
		_, before := peer.Call("tool", "{}")
		want := []string{
			`{"type":"progress","callId":"call","progress":1}`,
			`{"type":"progress","callId":"call","progress":2.5,"total":4,"message":"half <way>"}`,
			`{"type":"log","callId":"call","level":"info","data":"text"}`,
			`{"type":"log","callId":"call","level":"error","logger":"db","data":{"a":"<"}}`,
		}
		if len(before) != len(want) {
			t.Fatalf("%d messages, want %d", len(before), len(want))
		}
		for i, w := range want {
			if string(before[i].Raw) != w {
				t.Errorf("message %d = %s\nwant        %s", i, before[i].Raw, w)
			}
		}
	})
}

func TestUnaskedProgressAndLowLogsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var call *provider.Call
		r := start(t, nil, provider.Tool{Name: "tool", Handle: func(_ context.Context, c *provider.Call) (provider.Result, error) {
			call = c
			c.Progress(1, 2, "")
			c.Log("info", "", "too low")
			c.Log("warning", "", "heard")
			return provider.Result{}, nil
		}})
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"tool","meta":{"logLevel":"warning"}}`)
		if got := peer.Expect("log"); string(got.Data) != `"heard"` {
			t.Errorf("log = %s", got.Raw)
		}
		peer.Expect("toolResult")
		call.Log("error", "", "after the end")
		peer.Send(`{"type":"ping"}`)
		peer.Expect("pong")
	})
}

func TestCancelEndsTheHandlerWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, _ := blocker()
		r := start(t, nil, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		ctx := <-began
		peer.Send(`{"type":"cancelCall","callId":"1","reason":"client left"}`)
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, provider.ErrCancelled) || !strings.Contains(err.Error(), "client left") {
			t.Errorf("cause = %v", err)
		}
		peer.Send(`{"type":"ping"}`)
		peer.Expect("pong") // and no toolResult before it

		peer.Cut() // nor is one kept for later
		peer = r.bridge.Accept()
		peer.Expect("hello")
		peer.Expect("registerTools")
		peer.Send(welcome("token-2", true))
		synctest.Wait()
		peer.Send(`{"type":"ping"}`)
		peer.Expect("pong")
	})
}

func TestDeadlineEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, _ := blocker()
		r := start(t, nil, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block","meta":{"deadlineMs":3000}}`)
		ctx := <-began
		from := time.Now()
		<-ctx.Done()
		if took := time.Since(from); took != 3*time.Second || !errors.Is(context.Cause(ctx), provider.ErrDeadline) {
			t.Errorf("ended after %v: %v", took, context.Cause(ctx))
		}
		peer.Expect("toolResult")
	})
}

func TestTooManyCallsAreTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, release := blocker()
		r := start(t, func(c *provider.Config) { c.MaxCalls = 1 }, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		<-began
		peer.Send(`{"type":"callTool","callId":"2","name":"block"}`)
		if got := peer.Expect("toolResult"); string(got.CallID) != `"2"` || !strings.Contains(string(got.Result), "busy") {
			t.Errorf("answer = %s", got.Raw)
		}
		release <- "done"
		if got := peer.Expect("toolResult"); string(got.CallID) != `"1"` {
			t.Errorf("answer = %s", got.Raw)
		}
	})
}

func TestSetToolsWaitsForTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []provider.Registration
		r := start(t, func(c *provider.Config) {
			c.Registered = func(g provider.Registration) { seen = append(seen, g) }
		}, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		var got provider.Registration
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			other := echo()
			other.Name = "other"
			got, err = r.SetTools(t.Context(), other)
		}()
		tools := peer.Expect("registerTools")
		if !tools.Replace || len(tools.Tools) != 1 || tools.Tools[0].Name != "other" {
			t.Errorf("tools = %s", tools.Raw)
		}
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("SetTools returned before the acknowledgement")
		default:
		}
		// Until it is acknowledged, clients may still call what was there before.
		if answer, _ := peer.Call("echo", "{}"); answer.Type != "toolResult" {
			t.Errorf("old tool: %s", answer.Raw)
		}
		peer.Send(`{"type":"registered","id":"` + tools.ID + `","revision":7,"tools":[{"name":"other","exposedAs":"other-1a2b","warnings":["long",{"code":"x"}]}],"rejected":[{"name":"bad","code":"schema_too_deep","message":"no"}],"held":[{"name":"back","hash":"00ff","message":"approve it"}]}`)
		<-done
		if err != nil || got.Revision != 7 || len(got.Tools) != 1 || got.Tools[0].ExposedAs != "other-1a2b" || len(got.Tools[0].Warnings) != 2 ||
			len(got.Rejected) != 1 || got.Rejected[0] != (provider.RejectedTool{Name: "bad", Code: "schema_too_deep", Message: "no"}) ||
			len(got.Held) != 1 || got.Held[0] != (provider.HeldTool{Name: "back", Hash: "00ff", Message: "approve it"}) {
			t.Errorf("SetTools = %+v, %v", got, err)
		}
		if answer, _ := peer.Call("echo", "{}"); answer.Type != "toolError" {
			t.Errorf("removed tool: %s", answer.Raw)
		}
		if len(seen) != 2 || seen[1].Revision != 7 {
			t.Errorf("Registered was told %+v", seen)
		}
	})
}

func TestSetToolsTellsOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		errs := make(chan error)
		go func() {
			_, err := r.SetTools(t.Context(), echo())
			errs <- err
		}()
		peer.Expect("registerTools")
		peer.Send(`{"type":"error","code":"too_many_tools","message":"at most 1000","of":"registerTools"}`)
		err := <-errs
		if e, ok := errors.AsType[*provider.RegisterError](err); !ok || e.Code != "too_many_tools" {
			t.Errorf("SetTools = %v", err)
		}
	})
}

func TestSetToolsSurvivesALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		errs := make(chan error)
		go func() {
			other := echo()
			other.Name = "other"
			_, err := r.SetTools(t.Context(), other)
			errs <- err
		}()
		peer.Expect("registerTools")
		peer.Cut()
		if _, tools := r.bridge.Accept().Greet(); len(tools.Tools) != 1 || tools.Tools[0].Name != "other" {
			t.Errorf("tools = %s", tools.Raw)
		}
		if err := <-errs; err != nil {
			t.Errorf("SetTools = %v", err)
		}
	})
}

func TestSetToolsEndsWithItsContextAndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		r.bridge.Accept().Expect("hello")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.SetTools(ctx, echo()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetTools = %v", err)
		}
		r.stop()
		if _, err := r.SetTools(t.Context(), echo()); !errors.Is(err, provider.ErrStopped) {
			t.Errorf("SetTools after Run = %v", err)
		}
	})
}

func TestBadConfigurationIsRefusedAtOnce(t *testing.T) {
	handle := echo().Handle
	for name, cfg := range map[string]provider.Config{
		"no url":       {Provider: "p"},
		"scheme":       {URL: "ftp://h/", Provider: "p"},
		"no host":      {URL: "ws:///b", Provider: "p"},
		"no provider":  {URL: "ws://h/"},
		"no handler":   {URL: "ws://h/", Provider: "p", Tools: []provider.Tool{{Name: "a"}}},
		"no name":      {URL: "ws://h/", Provider: "p", Tools: []provider.Tool{{Handle: handle}}},
		"bad schema":   {URL: "ws://h/", Provider: "p", Tools: []provider.Tool{{Name: "a", InputSchema: json.RawMessage(`{`), Handle: handle}}},
		"two names":    {URL: "ws://h/", Provider: "p", Tools: []provider.Tool{echo(), echo()}},
		"raw no name":  {URL: "ws://h/", Provider: "p", Tools: []provider.Tool{{Raw: json.RawMessage(`{}`), Handle: handle}}},
		"raw misnamed": {URL: "ws://h/", Provider: "p", Tools: []provider.Tool{{Name: "b", Raw: json.RawMessage(`{"name":"a"}`), Handle: handle}}},
	} {
		if err := provider.Run(t.Context(), cfg); err == nil || strings.Contains(err.Error(), "panic") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunIsForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		r.bridge.Accept().Expect("hello")
		if err := r.Run(t.Context()); !errors.Is(err, provider.ErrRunning) {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestOversizeAnswerNamesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, provider.Tool{Name: "big", Handle: func(_ context.Context, c *provider.Call) (provider.Result, error) {
			c.Log("info", "", strings.Repeat("x", 2000)) // too big: dropped
			return provider.Text(strings.Repeat("x", 2000)), nil
		}})
		peer := r.bridge.Accept()
		peer.Expect("hello")
		peer.Send(`{"type":"welcome","resume":"t","limits":{"frameBytes":1000,"tools":"many"}}`)
		peer.Expect("registerTools")
		answer, before := peer.Call("big", "")
		if len(before) != 0 || !strings.Contains(string(answer.Result), `"isError":true`) || !strings.Contains(string(answer.Result), "at most 1000 bytes (limits.frameBytes)") {
			t.Errorf("answer = %s after %d messages", answer.Raw, len(before))
		}
	})
}

func TestOversizeToolsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil)
		peer := r.bridge.Accept()
		peer.Expect("hello")
		peer.Send(`{"type":"welcome","resume":"t","limits":{"frameBytes":1000}}`)
		synctest.Wait()
		big := echo()
		big.Description = strings.Repeat("x", 1000)
		_, err := r.SetTools(t.Context(), big)
		if e, ok := errors.AsType[*provider.TooBigError](err); !ok || e.Limit != 1000 || e.Bytes <= 1000 {
			t.Errorf("SetTools = %v", err)
		}
	})
}

func TestUnknownMessagesAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Expect("hello")
		peer.Expect("registerTools")
		for _, m := range []string{
			`{"type":"news","name":7,"tools":"x","meta":[],"callId":{}}`, `not json`, `[]`, `{}`, `{"type":5}`,
			`{"type":"callTool","name":"echo"}`, `{"type":"cancelCall","callId":"none"}`, `{"type":"cancelCall"}`,
		} {
			peer.Send(m)
		}
		if answer, _ := peer.Call("echo", `{"late":"welcome"}`); !strings.Contains(string(answer.Result), "welcome") {
			t.Errorf("answer = %s", answer.Raw)
		}
		peer.Send(welcome("t", false))
		if answer, _ := peer.Call("echo", `{}`); answer.Type != "toolResult" {
			t.Errorf("answer = %s", answer.Raw)
		}
	})
}

func TestFinalCloseCodesEndRun(t *testing.T) {
	for code, word := range map[int]string{4400: "hello", 4401: "credential", 4403: "bridge", 4409: "replaced"} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, nil, echo())
			peer := r.bridge.Accept()
			peer.Expect("hello")
			peer.Close(code, "because")
			err := <-r.ended
			e, ok := errors.AsType[*provider.Refused](err)
			if !ok || e.Code != code || e.Reason != "because" || !strings.Contains(err.Error(), word) {
				t.Errorf("close %d: Run = %v", code, err)
			}
			if _, err := r.SetTools(t.Context()); !errors.Is(err, e) {
				t.Errorf("close %d: SetTools = %v", code, err)
			}
		})
	}
}

func TestOtherCloseCodesMeanReconnect(t *testing.T) {
	for code, least := range map[int]time.Duration{1000: 0, 1001: 0, 1008: 0, 1009: 0, 1012: 0, 4408: 0, 4429: 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, nil, echo())
			peer := r.bridge.Accept()
			peer.Greet()
			from := time.Now()
			peer.Close(code, "")
			hello, _ := r.bridge.Accept().Greet()
			if took := time.Since(from); took < least || took > 10*time.Second+least {
				t.Errorf("close %d: back after %v", code, took)
			}
			if hello.Resume != "token-1" {
				t.Errorf("close %d: hello = %s, want the resume token", code, hello.Raw)
			}
		})
	}
}

func TestRefusedUpgrades(t *testing.T) {
	for status, final := range map[int]bool{401: true, 403: true, 404: true, 400: false, 429: false, 500: false, 502: false, 503: false} {
		synctest.Test(t, func(t *testing.T) {
			bridge := providertest.New(t)
			refuse := true
			bridge.Before(func(w http.ResponseWriter, _ *http.Request) bool {
				if refuse {
					refuse = final
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(status)
					return false
				}
				return true
			})
			r := startOn(t, bridge, nil)
			from := time.Now()
			if final {
				err := <-r.ended
				if e, ok := errors.AsType[*provider.Refused](err); !ok || e.Code != status {
					t.Errorf("status %d: Run = %v", status, err)
				}
				return
			}
			r.bridge.Accept().Expect("hello")
			took := time.Since(from)
			if wait := status == 429 || status == 503; wait != (took >= 7*time.Second) || took > 10*time.Second {
				t.Errorf("status %d: back after %v", status, took)
			}
		})
	}
}

func TestBridgeThatVanishesLaterIsNotFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		missing := 2
		r.bridge.Before(func(w http.ResponseWriter, _ *http.Request) bool {
			if missing--; missing >= 0 {
				w.WriteHeader(404)
				return false
			}
			return true
		})
		peer.Cut()
		r.bridge.Accept().Greet()
	})
}

// TestBackOffGrowsToItsCapAndStartsOver holds case O16: a relay that is down for a minute
// meets no busy loop.
func TestBackOffGrowsToItsCapAndStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		var times []time.Time
		bridge.Before(func(w http.ResponseWriter, _ *http.Request) bool {
			if times = append(times, time.Now()); len(times) <= 12 {
				w.WriteHeader(502)
				return false
			}
			return true
		})
		r := startOn(t, bridge, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		top := 250 * time.Millisecond
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < top/2 || gap > top {
				t.Errorf("wait %d = %v, want %v to %v", i, gap, top/2, top)
			}
			top = min(2*top, 30*time.Second)
		}
		<-time.After(10 * time.Second) // in the bubble: a stable connection
		from := time.Now()
		peer.Cut()
		r.bridge.Accept().Greet()
		if took := time.Since(from); took > time.Second {
			t.Errorf("after a stable connection: %v", took)
		}
	})
}

// TestHungUpgradeIsGivenUp holds case O6: a relay that takes the connection and says
// nothing.
func TestHungUpgradeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		hung := true
		from := time.Now()
		bridge.Before(func(_ http.ResponseWriter, req *http.Request) bool {
			if hung {
				hung = false
				<-req.Context().Done()
				return false
			}
			return true
		})
		r := startOn(t, bridge, nil, echo())
		r.bridge.Accept().Greet()
		if took := time.Since(from); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("back after %v, want 10 s and a little", took)
		}
	})
}

func TestSilentBridgeIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Expect("hello")
		peer.Send(`{"type":"welcome","resume":"t","pingSeconds":4}`)
		peer.Expect("registerTools")
		for range 5 { // it speaks: nothing happens
			<-time.After(4 * time.Second) // in the bubble
			peer.Send(`{"type":"ping"}`)
			peer.Expect("pong")
		}
		from := time.Now()
		r.bridge.Accept().Greet()
		if took := time.Since(from); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("back after %v of silence, want 2.5 pings and a little", took)
		}
	})
}

func TestBridgeThatNeverSpeaksIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		from := time.Now()
		peer := r.bridge.Accept()
		peer.Expect("hello")
		peer.Expect("registerTools")
		r.bridge.Accept().Greet()
		if took := time.Since(from); took < 50*time.Second || took > 51*time.Second {
			t.Errorf("back after %v of silence, want 50 s and a little", took)
		}
	})
}

func TestHelloComesFirstEvenWhereACallIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Send(`{"type":"callTool","callId":"1","name":"echo"}`)
		synctest.Wait() // the provider has read it, and its hello is not read yet
		peer.Expect("hello")
		for range 2 { // in either order
			if m := peer.Receive(); m.Type != "toolResult" && m.Type != "registerTools" {
				t.Errorf("message %s", m.Raw)
			}
		}
	})
}

func TestReconnectIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, release := blocker()
		r := start(t, nil, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		<-began
		from := time.Now()
		peer.Send(`{"type":"reconnect","afterMs":20000}`)
		<-time.After(5 * time.Second) // in the bubble: the call still runs
		release <- "done"
		peer.Expect("toolResult")
		if code := peer.Gone(); code != 1001 {
			t.Errorf("close code = %d", code)
		}
		if took := time.Since(from); took != 5*time.Second {
			t.Errorf("left after %v, want as soon as the call was answered", took)
		}
		r.bridge.Accept().Greet()
		if took := time.Since(from); took < 20*time.Second || took > 24*time.Second {
			t.Errorf("back after %v, want 20 s and a little", took)
		}
	})
}

// TestRestartsOfTheBridgeAreNoFailures: a bridge that says goodbye, time and again, is
// not waited for longer each time.
func TestRestartsOfTheBridgeAreNoFailures(t *testing.T) {
	for name, end := range map[string]func(*providertest.Peer){
		"reconnect":       func(p *providertest.Peer) { p.Send(`{"type":"reconnect","afterMs":500}`); p.Gone() },
		"service restart": func(p *providertest.Peer) { p.Close(1012, "") },
		"going away":      func(p *providertest.Peer) { p.Close(1001, "") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, nil, echo())
				peer := r.bridge.Accept()
				peer.Greet()
				for n := range 12 {
					from := time.Now()
					end(peer)
					peer = r.bridge.Accept()
					peer.Greet()
					if took := time.Since(from); took > 6*time.Second {
						t.Fatalf("restart %d: back after %v", n, took)
					}
				}
			})
		})
	}
}

func TestReconnectWaitsForAnAnswerToBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, release := blocker()
		r := start(t, nil, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		peer.Send(`{"type":"callTool","callId":"2","name":"block"}`)
		<-began
		<-began
		peer.Send(`{"type":"reconnect","afterMs":0}`)
		release <- "done"
		synctest.Wait()
		for _, id := range []string{"1", "2"} { // whichever still runs: nothing runs any more
			peer.Send(`{"type":"cancelCall","callId":"` + id + `"}`)
		}
		<-time.After(7 * time.Second) // in the bubble: the bridge is slow to read
		peer.Expect("toolResult")
		if code := peer.Gone(); code != 1001 {
			t.Errorf("close code = %d", code)
		}
	})
}

func TestReconnectHoldsWhenTheBridgeClosesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, _ := blocker()
		r := start(t, nil, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		<-began
		from := time.Now()
		peer.Send(`{"type":"reconnect","afterMs":8000}`)
		peer.Close(1012, "restart")
		r.bridge.Accept().Greet()
		if took := time.Since(from); took < 8*time.Second || took > 11*time.Second {
			t.Errorf("back after %v, want 8 s and a little", took)
		}
	})
}

// TestAnswersAfterADrop tells what becomes of a call whose connection was lost
// while it ran.
func TestAnswersAfterADrop(t *testing.T) {
	for name, test := range map[string]struct {
		welcomed bool // the first connection got a welcome
		early    bool // the handler ends while there is no connection
		resumed  bool // what the second welcome says
		want     bool // the answer arrives
	}{
		"resumed, ended between":       {true, true, true, true},
		"resumed, ended later":         {true, false, true, true},
		"not resumed, ended between":   {true, true, false, false},
		"not resumed, ended later":     {true, false, false, false},
		"never welcomed, but resumed?": {false, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tool, began, release := blocker()
				r := start(t, nil, tool, echo())
				peer := r.bridge.Accept()
				if test.welcomed {
					peer.Greet()
				} else {
					peer.Expect("hello")
					peer.Expect("registerTools")
				}
				peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
				ctx := <-began
				peer.Cut()
				synctest.Wait()
				if test.early && test.welcomed {
					release <- "late"
					synctest.Wait()
				}
				peer = r.bridge.Accept()
				hello := peer.Expect("hello")
				if want := map[bool]string{true: "token-1"}[test.welcomed]; hello.Resume != want {
					t.Errorf("resume = %q, want %q", hello.Resume, want)
				}
				peer.Expect("registerTools")
				// The new bridge may know another call by that ID: nothing of ours
				// may come before it said that it resumed us.
				peer.Send(`{"type":"ping"}`)
				peer.Expect("pong")
				peer.Send(welcome("token-2", test.resumed))
				if test.want {
					if !test.early {
						release <- "late"
					}
					if got := peer.Expect("toolResult"); string(got.CallID) != `"1"` || !strings.Contains(string(got.Result), "late") {
						t.Errorf("answer = %s", got.Raw)
					}
				} else if !test.early {
					<-ctx.Done()
					if err := context.Cause(ctx); !errors.Is(err, provider.ErrForgotten) {
						t.Errorf("cause = %v", err)
					}
				}
				if answer, before := peer.Call("echo", "{}"); len(before) != 0 || string(answer.CallID) != `"call"` {
					t.Errorf("then %s after %d messages", answer.Raw, len(before))
				}
			})
		})
	}
}

func TestAnswerWrittenToADyingConnectionIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, nil, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		first, _ := peer.Call("echo", `{"a":1}`)
		peer.Cut()
		peer = r.bridge.Accept()
		peer.Expect("hello")
		peer.Send(welcome("token-2", true))
		again := peer.Receive()
		if again.Type == "registerTools" { // either may come first
			again = peer.Receive()
		}
		if !bytes.Equal(again.Raw, first.Raw) {
			t.Errorf("again = %s, want %s", again.Raw, first.Raw)
		}
	})
}

func TestOldCallGivesWayToANewOneOfTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, _ := blocker()
		r := start(t, nil, tool, echo())
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		ctx := <-began
		peer.Cut()
		peer = r.bridge.Accept()
		peer.Expect("hello")
		peer.Expect("registerTools")
		peer.Send(`{"type":"callTool","callId":"1","name":"echo","params":{"new":true}}`)
		if got := peer.Expect("toolResult"); !strings.Contains(string(got.Result), "new") {
			t.Errorf("answer = %s", got.Raw)
		}
		<-ctx.Done()
	})
}

func TestStoppingAnswersWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool, began, _ := blocker()
		r := start(t, nil, tool)
		peer := r.bridge.Accept()
		peer.Greet()
		peer.Send(`{"type":"callTool","callId":"1","name":"block"}`)
		ctx := <-began
		r.stop()
		if got := peer.Expect("toolResult"); !strings.Contains(string(got.Result), `"isError":true`) {
			t.Errorf("answer = %s", got.Raw)
		}
		if code := peer.Gone(); code != 1000 {
			t.Errorf("close code = %d", code)
		}
		if err := <-r.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if err := context.Cause(ctx); !errors.Is(err, provider.ErrStopped) {
			t.Errorf("cause = %v", err)
		}
	})
}

func TestRunEndsWhileItWaitsToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		bridge.Before(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(502); return false })
		r := startOn(t, bridge, nil)
		<-time.After(time.Minute) // in the bubble
		from := time.Now()
		r.stop()
		if err := <-r.ended; err != nil || time.Since(from) != 0 {
			t.Errorf("Run = %v after %v", err, time.Since(from))
		}
	})
}

func TestLogsCarryNoPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		fail := true
		bridge.Before(func(http.ResponseWriter, *http.Request) bool {
			if fail {
				fail = false
				panic(http.ErrAbortHandler)
			}
			return true
		})
		r := startOn(t, bridge, func(c *provider.Config) {
			c.URL += "?ticket=secret-ticket"
			c.Token = "secret-token"
		}, provider.Tool{Name: "tool", Handle: func(context.Context, *provider.Call) (provider.Result, error) {
			return provider.Text("secret-result"), nil
		}})
		peer := bridge.Accept()
		peer.Greet()
		peer.Call("tool", `{"a":"secret-argument"}`)
		peer.Cut()
		bridge.Accept().Greet()
		if log := r.log.String(); strings.Contains(log, "secret") || !strings.Contains(log, "no connection") {
			t.Errorf("log = %s", log)
		}
	})
}
