package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"mcpbridge/session"
)

// askingResult asks for a name, and wants state back.
const askingResult = `{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object"}}}},"requestState":"s\u00e9cret"}`

// asks makes a provider that asks once and then says what it was told.
func asks(p *peer) {
	p.answers(func(f frame) string {
		var call struct {
			InputResponses, RequestState json.RawMessage
			Meta                         struct{ ClientCapabilities json.RawMessage }
		}
		if err := json.Unmarshal([]byte(f.raw), &call); err != nil {
			return ""
		}
		if call.InputResponses == nil {
			return askingResult
		}
		return `{"content":[],"responses":` + string(call.InputResponses) + `,"state":` + string(call.RequestState) + `,"caps":` + string(call.Meta.ClientCapabilities) + `}`
	})
}

// withCaps is a modern call with capabilities and more members of params.
func withCaps(caps, more string) (body string, headers []string) {
	body, headers = modernRequest("tools/call", "a", `"name":"a","arguments":{"x":1}`+more)
	return strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":`+caps, 1), headers
}

func TestModernClientIsAskedAndCallsAgain(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	asks(p)
	body, h := withCaps(`{"elicitation":{}}`, "")
	a := w.post("b", body, h...)
	var got struct {
		Result struct {
			ResultType    string
			InputRequests map[string]json.RawMessage
			RequestState  string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Result.ResultType != "input_required" ||
		string(got.Result.InputRequests["who"]) != `{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object"}}}` {
		t.Fatalf("asked with %s", a.body)
	}
	state := got.Result.RequestState
	if strings.Contains(state, "cret") || state == "" {
		t.Errorf("the provider's state is shown: %q", state)
	}
	answer := func(state string) string {
		return `,"inputResponses":{"who":{"action":"accept","content":{"name":"x"}}},"requestState":"` + state + `"`
	}
	body, h = withCaps(`{"elicitation":{}}`, answer(state))
	if a := w.post("b", body, h...); !strings.Contains(a.body, `"responses":{"who":{"action":"accept","content":{"name":"x"}}},"state":"s\u00e9cret","caps":{"elicitation":{}}`) {
		t.Errorf("answered with %s", a.body)
	}
	// The same arguments, written otherwise.
	if a := w.post("b", strings.Replace(body, `{"x":1}`, `{ "x" : 1 }`, 1), h...); !strings.Contains(a.body, `"state":"s\u00e9cret"`) {
		t.Errorf("written otherwise: %s", a.body)
	}
	for name, change := range map[string]func(string) string{
		"tampered":        func(s string) string { return strings.Replace(s, state, state[:20]+string(state[20]^1)+state[21:], 1) },
		"other arguments": func(s string) string { return strings.Replace(s, `{"x":1}`, `{"x":2}`, 1) },
		"no string":       func(s string) string { return strings.Replace(s, `"`+state+`"`, `7`, 1) },
		"no object":       func(s string) string { return strings.Replace(s, `"inputResponses":{`, `"inputResponses":[],"y":{`, 1) },
	} {
		if a := w.post("b", change(body), h...); !strings.Contains(a.body, `"code":-32602`) {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	q := w.provider("c", "p", "")
	q.register(tool("a"))
	asks(q)
	if a := w.post("c", body, h...); !strings.Contains(a.body, `"code":-32602`) {
		t.Errorf("on another bridge: %s", a.body)
	}
}

func TestModernClientIsAskedOnlyForWhatItDeclared(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	asking := make(chan string, 1)
	p.answers(func(frame) string {
		return `{"resultType":"input_required","inputRequests":{"k":` + <-asking + `}}`
	})
	for _, c := range []struct{ caps, request, want string }{
		{`{}`, `{"method":"elicitation/create","params":{}}`, `{"elicitation":{}}`},
		{`{"elicitation":{}}`, `{"method":"elicitation/create","params":{"mode":"url"}}`, `{"elicitation":{"url":{}}}`},
		{`{"elicitation":{"url":{}}}`, `{"method":"elicitation/create","params":{"mode":"url"}}`, ""},
		{`{"elicitation":{"url":{}}}`, `{"method":"elicitation/create","params":{}}`, `{"elicitation":{"form":{}}}`},
		{`{"elicitation":{"url":{},"form":{}}}`, `{"method":"elicitation/create","params":{"mode":"form"}}`, ""},
		{`{}`, `{"method":"sampling/createMessage"}`, `{"sampling":{}}`},
		{`{"sampling":{}}`, `{"method":"sampling/createMessage","params":{"tools":[]}}`, `{"sampling":{"tools":{}}}`},
		{`{"sampling":{}}`, `{"method":"sampling/createMessage","params":{}}`, ""},
		{`{}`, `{"method":"roots/list"}`, `{"roots":{}}`},
		{`{"roots":{}}`, `{"method":"roots/list"}`, ""},
	} {
		asking <- c.request
		body, h := withCaps(c.caps, "")
		a := w.post("b", body, h...)
		refused := a.status == 400 && strings.Contains(a.body, `"code":-32021`) && strings.Contains(a.body, `"data":{"requiredCapabilities":`+c.want+`}`)
		if refused != (c.want != "") || c.want == "" && !strings.Contains(a.body, `"inputRequests":{"k":`+c.request+`}`) {
			t.Errorf("%s with %s: %d %s", c.request, c.caps, a.status, a.body)
		}
	}
	for _, bad := range []string{`{"method":"shell/run"}`, `{}`, `7`} {
		asking <- bad
		body, h := withCaps(`{}`, "")
		if a := w.post("b", body, h...); !strings.Contains(a.body, `"code":-32603`) {
			t.Errorf("%s: %s", bad, a.body)
		}
	}
}

func TestLegacyClientIsAskedOnTheCallsStream(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	asks(p)
	a := w.post("b", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}`)
	headers := []string{"Mcp-Session-Id", a.header.Get("Mcp-Session-Id")}
	e := w.stream("POST", w.mcpURL("b"), callBody("5", "a", `{"x":1}`), headers...)
	asked := e.want("elicitation/create")
	var request struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(asked), &request); err != nil ||
		asked != `{"jsonrpc":"2.0","id":`+string(request.ID)+`,"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object"}}}` {
		t.Fatalf("asked with %s", asked)
	}
	response := `{"jsonrpc":"2.0","id":` + string(request.ID) + `,"result":{"action":"decline","n":9007199254740993}}`
	if a := w.post("b", response, w.initialize("b")...); a.status != 202 { // another session's answer goes nowhere
		t.Errorf("%d", a.status)
	}
	if a := w.post("b", response, headers...); a.status != 202 {
		t.Errorf("%d", a.status)
	}
	if got, want := e.want("result"), `{"jsonrpc":"2.0","id":5,"result":{"content":[],"responses":{"who":{"action":"decline","n":9007199254740993}},"state":"s\u00e9cret","caps":{"elicitation":{}}}}`; got != want {
		t.Errorf("answered with %s\nwant %s", got, want)
	}

	// A client that refuses, and clients that cannot be asked.
	e = w.stream("POST", w.mcpURL("b"), callBody("6", "a", "{}"), headers...)
	if err := json.Unmarshal([]byte(e.want("elicitation/create")), &request); err != nil {
		t.Fatal(err)
	}
	w.post("b", `{"jsonrpc":"2.0","id":`+string(request.ID)+`,"error":{"code":-1,"message":"the user is away"}}`, headers...)
	e.want(`the user is away"}],"isError":true`)
	for _, h := range [][]string{w.initialize("b"), nil, append([]string{"Accept", "application/json"}, headers...)} {
		if a := w.post("b", callBody("7", "a", "{}"), h...); !strings.Contains(a.body, `The tool needs elicitation, which this client cannot give."}],"isError":true`) {
			t.Errorf("%v: %s", h, a.body)
		}
	}
}

func TestToolThatAsksForeverIsGivenUp(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	p.answers(func(frame) string { return `{"resultType":"input_required","requestState":"again"}` })
	a := w.post("b", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	if a := w.post("b", callBody("1", "a", "{}"), "Mcp-Session-Id", a.header.Get("Mcp-Session-Id")); !strings.Contains(a.body, "asked for input 10 times") {
		t.Errorf("%s", a.body)
	}
}

// A provider that speaks MCP looks at the client's capabilities itself.
func TestProvidersOwnMissingCapabilityReachesModernClients(t *testing.T) {
	w := start(t)
	a := w.actor("b", "p", everything()...)
	a.answer = func(*session.Call) (string, error) {
		return "", &session.ProtocolError{Code: -32021, Message: "roots are needed", Data: []byte(`{"requiredCapabilities":{"roots":{}}}`)}
	}
	for _, method := range []string{"tools/call", "prompts/get"} {
		if a := w.modern("b", method, "a", `"name":"a"`); a.status != 400 || !strings.Contains(a.body, `"error":{"code":-32021,"message":"roots are needed","data":{"requiredCapabilities":{"roots":{}}}}`) {
			t.Errorf("modern %s: %d %s", method, a.status, a.body)
		}
		if a := w.post("b", rpc(method, `"name":"a"`)); !strings.Contains(a.body, `"error":{"code":-32603,"message":"roots are needed"`) {
			t.Errorf("legacy %s: %s", method, a.body)
		}
	}
}
