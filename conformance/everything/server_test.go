package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"mcpbridge/clients/provider/providertest"
)

const everyCapability = `{"elicitation":{},"sampling":{},"roots":{}}`

// rpc is a request of the revision's; more are members of its params.
func rpc(method, more string) string { return rpcAs("1", method, everyCapability, "", more) }

func rpcAs(id, method, capabilities, meta, more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":` + capabilities + meta + `}` + more + `}}`
}

// dialled runs the server in a bubble and returns the bridge's end, and what stops
// the server and waits for it.
func dialled(t *testing.T) (*providertest.Peer, context.CancelFunc) {
	t.Helper()
	bridge := providertest.New(t)
	bridge.Speak(subprotocol)
	var path string
	bridge.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		path = r.URL.RequestURI()
		return true
	})
	s, err := newServer(bridge.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	peer := bridge.Accept()
	if path != "/b/test/provider?provider=test" {
		t.Errorf("dialled %s", path)
	}
	return peer, stop
}

func TestServerAnswersAsTheRevisionAndTheSuiteDescribe(t *testing.T) {
	const alice = `{"action":"accept","content":{"context":"work"}}`
	synctest.Test(t, func(t *testing.T) {
		peer, _ := dialled(t)
		for _, c := range []struct{ request, want string }{
			{rpc("server/discover", ""), `"supportedVersions":["2026-07-28"]`},
			{rpc("server/discover", ""), `"tools":{"listChanged":true}`},
			{rpc("server/discover", ""), `"io.modelcontextprotocol/serverInfo":{"name":"everything"`},
			{rpc("tools/list", ""), `"name":"test_tool_with_progress"`},
			{rpc("tools/list", ""), `"resultType":"complete"`},
			{rpc("tools/list", `"cursor":"x"`), `"code":-32602`},
			{rpc("tools/call", `"name":"test_simple_text"`), `"content":[{"type":"text","text":"This is a simple text response for testing."}]`},
			{rpc("tools/call", `"name":"test_error_handling","arguments":{}`), `"isError":true`},
			{rpc("tools/call", `"name":"nobody"`), `"code":-32602`},
			{rpc("tools/call", `"name":"test_sampling","arguments":{"prompt":7}`), `"isError":true`},
			{rpc("tools/call", `"name":"test_missing_capability"`), `"resultType":"input_required"`},
			{rpcAs("1", "tools/call", `{"roots":{}}`, "", `"name":"test_missing_capability"`), `"code":-32021,"message":"the client lacks a capability that this needs","data":{"requiredCapabilities":{"sampling":{}}}`},
			{rpcAs("1", "tools/call", `{"elicitation":{"url":{}}}`, "", `"name":"test_input_required_result_elicitation"`), `"requiredCapabilities":{"elicitation":{"form":{}}}`},
			{rpcAs("1", "tools/call", `{}`, "", `"name":"test_input_required_result_list_roots"`), `"requiredCapabilities":{"roots":{}}`},
			{rpc("tools/call", `"name":"test_input_required_result_request_state","inputResponses":{"confirm":{"action":"decline"}},"requestState":"other"`), `"code":-32602`},
			{rpc("prompts/list", ""), `"name":"test_input_required_result_prompt"`},
			{rpc("prompts/get", `"name":"test_simple_prompt"`), `"messages":[{"content":{"type":"text","text":"This is a simple prompt for testing."},"role":"user"}]`},
			{rpc("prompts/get", `"name":"test_prompt_with_arguments","arguments":{"arg1":"<a>","arg2":"b"}`), `arg1='<a>', arg2='b'`},
			{rpc("prompts/get", `"name":"test_prompt_with_arguments","arguments":{"arg1":"a"}`), `argument missing: arg2`},
			{rpc("prompts/get", `"name":"test_prompt_with_arguments","arguments":{"arg1":1,"arg2":"b"}`), `"code":-32602`},
			{rpc("prompts/get", `"name":"test_prompt_with_embedded_resource","arguments":{"resourceUri":"test://r"}`), `"uri":"test://r","mimeType":"text/plain"`},
			{rpc("prompts/get", `"name":"test_prompt_with_image"`), `"type":"image"`},
			{rpc("prompts/get", `"name":"test_visiting_prompt"`), `"code":-32602`},
			{rpc("prompts/get", `"name":"test_input_required_result_prompt"`), `"inputRequests":{"user_context":{"method":"elicitation/create"`},
			{rpc("prompts/get", `"name":"test_input_required_result_prompt","inputResponses":{"user_context":`+alice+`}`), `asked for a context: action=accept`},
			{rpc("completion/complete", `"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg1","value":"par"}`), `"values":["paris","park","party"]`},
			{rpc("completion/complete", `"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg2","value":"par"}`), `"values":[]`},
			{rpc("completion/complete", `"ref":{"type":"ref/prompt","name":"test_simple_prompt"},"argument":{"name":"arg1","value":""}`), `"code":-32602`},
			{rpc("completion/complete", `"ref":{"type":"ref/resource","uri":"test://template/{id}/data"},"argument":{"name":"id","value":""}`), `"values":[]`},
			{rpc("completion/complete", `"ref":{"type":"ref/resource","uri":"test://other"},"argument":{"name":"id","value":""}`), `"code":-32602`},
			{rpc("completion/complete", `"ref":{"type":"ref/other"}`), `"code":-32602`},
			{rpc("resources/list", ""), `"uri":"test://watched-resource"`},
			{rpc("resources/templates/list", ""), `"uriTemplate":"test://template/{id}/data"`},
			{rpc("resources/read", `"uri":"test://static-text"`), `"contents":[{"mimeType":"text/plain","text":"This is the content of the static text resource.","uri":"test://static-text"}]`},
			{rpc("resources/read", `"uri":"test://static-text"`), `"cacheScope":"public"`},
			{rpc("resources/read", `"uri":"test://static-binary"`), `"blob":"iVBOR`},
			{rpc("resources/read", `"uri":"test://watched-resource"`), `"text":"test_visiting_tool is away. test_visiting_prompt is away."`},
			{rpc("resources/read", `"uri":"test://template/123/data"`), `"text":"{\"data\":\"Data for ID: 123\",\"id\":\"123\",\"templateTest\":true}"`},
			{rpc("resources/read", `"uri":"test://template/1/2/data"`), `"code":-32602`},
			{rpc("resources/read", `"uri":"test://nowhere"`), `"code":-32602,"message":"unknown resource","data":{"uri":"test://nowhere"}`},
			{rpc("subscriptions/listen", ""), `"code":-32602`},
			{rpc("initialize", ""), `"code":-32601`},
			{rpc("tools/call", `"name":7`), `"code":-32602`},
			{`{"jsonrpc":"2.0","id":"1","method":"tools/list"}`, `"code":-32602`},
			{strings.Replace(rpc("tools/list", ""), "2026-07-28", "2030-01-01", 1), `"code":-32022,"message":"unsupported protocol version","data":{"requested":"2030-01-01","supported":["2026-07-28"]}`},
			{`{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700`},
		} {
			peer.Send(`{"jsonrpc":"2.0","method":"notifications/unknown"}`)
			peer.Send(c.request)
			if got := peer.Receive(); !strings.Contains(string(got.Raw), c.want) {
				t.Errorf("%s\n got %s\nwant %s", c.request, got.Raw, c.want)
			}
		}
	})
}

// heard is the next message's method and params, or its result.
func heard(t *testing.T, peer *providertest.Peer) string {
	t.Helper()
	var m struct {
		Method string
		Params json.RawMessage
		Result json.RawMessage
	}
	if err := json.Unmarshal(peer.Receive().Raw, &m); err != nil {
		t.Fatal(err)
	}
	return m.Method + string(m.Params) + string(m.Result)
}

func expect(t *testing.T, peer *providertest.Peer, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if got := heard(t, peer); !strings.Contains(got, want) {
			t.Errorf("heard %s\nwant %s", got, want)
		}
	}
}

func TestServerReportsWhatTheRequestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, _ := dialled(t)
		peer.Send(rpcAs("1", "tools/call", "{}", `,"progressToken":7`, `"name":"test_tool_with_progress"`))
		for _, step := range []string{"0", "50", "100"} {
			expect(t, peer, `notifications/progress{"message":"`+step+` of 100","progress":`+step+`,"progressToken":7,"total":100}`)
		}
		expect(t, peer, "Went from 0 to 100.")
		peer.Send(rpcAs("1", "tools/call", "{}", "", `"name":"test_tool_with_progress"`))
		expect(t, peer, "Went from 0 to 100.")
		peer.Send(rpcAs("1", "tools/call", "{}", `,"io.modelcontextprotocol/logLevel":"info"`, `"name":"test_logging_tool"`))
		expect(t, peer, `notifications/message{"data":"Tool execution started","level":"info"}`, "Logged one message.")
		peer.Send(rpcAs("1", "tools/call", "{}", `,"io.modelcontextprotocol/logLevel":"warning"`, `"name":"test_logging_tool"`))
		expect(t, peer, "Logged one message.")
		peer.Send(rpcAs("1", "tools/call", "{}", "", `"name":"test_logging_tool"`))
		expect(t, peer, "Logged one message.")
	})
}

func TestListenersHearWhatTheyAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, stop := dialled(t)
		peer.Send(rpcAs("t", "subscriptions/listen", "{}", "", `"notifications":{"toolsListChanged":true,"resourcesListChanged":true}`))
		expect(t, peer, `notifications/subscriptions/acknowledged{"_meta":{"io.modelcontextprotocol/subscriptionId":"t"},"notifications":{"toolsListChanged":true}}`)
		peer.Send(rpc("tools/call", `"name":"test_trigger_prompt_change"`))
		expect(t, peer, "test_visiting_prompt is here.")
		peer.Send(rpc("tools/call", `"name":"test_trigger_tool_change"`))
		expect(t, peer, `notifications/tools/list_changed{"_meta":{"io.modelcontextprotocol/subscriptionId":"t"}}`, "test_visiting_tool is here.")
		peer.Send(rpc("tools/call", `"name":"test_visiting_tool"`))
		expect(t, peer, "Here for now.")
		peer.Send(rpc("prompts/get", `"name":"test_visiting_prompt"`))
		expect(t, peer, "Here for now.")

		peer.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"t"}}`)
		synctest.Wait()
		peer.Send(rpcAs("r", "subscriptions/listen", "{}", "", `"notifications":{"promptsListChanged":true,"resourceSubscriptions":["test://watched-resource"]}`))
		expect(t, peer, `notifications/subscriptions/acknowledged{"_meta":{"io.modelcontextprotocol/subscriptionId":"r"},"notifications":{"promptsListChanged":true,"resourceSubscriptions":["test://watched-resource"]}}`)
		peer.Send(rpc("tools/call", `"name":"test_trigger_tool_change"`))
		expect(t, peer, `notifications/resources/updated{"_meta":{"io.modelcontextprotocol/subscriptionId":"r"},"uri":"test://watched-resource"}`, "test_visiting_tool is away.")
		peer.Send(rpc("tools/call", `"name":"test_trigger_prompt_change"`))
		expect(t, peer, `notifications/prompts/list_changed`, `notifications/resources/updated`, "test_visiting_prompt is away.")

		stop()
		expect(t, peer, `"io.modelcontextprotocol/subscriptionId":"r"},"resultType":"complete"`)
		if code := peer.Gone(); code != 1000 {
			t.Errorf("left with code %d", code)
		}
	})
}

func TestCancelledRequestIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer, _ := dialled(t)
		peer.Send(rpcAs("slow", "tools/call", "{}", "", `"name":"test_reconnection"`))
		peer.Send(rpcAs("slow", "tools/call", "{}", "", `"name":"test_simple_text"`)) // the id is in use
		peer.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slow"}}`)
		peer.Send(rpcAs("next", "tools/call", "{}", "", `"name":"test_reconnection"`))
		if m := peer.Receive(); m.ID != "next" {
			t.Errorf("got %s", m.Raw)
		}
	})
}

func TestServerDialsAgainUnlessItIsPointless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		bridge.Speak(subprotocol)
		s, err := newServer(bridge.Config())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		bridge.Accept().Cut()
		peer := bridge.Accept()
		peer.Send(rpc("tools/call", `"name":"test_reconnection"`))
		peer.Close(1012, "restart")
		peer = bridge.Accept()
		peer.Send(rpc("tools/call", `"name":"test_simple_text"`))
		peer.Receive()
		peer.Close(4403, "not yours")
		if _, ok := errors.AsType[*refusedError](<-ended); !ok {
			t.Error("Run went on")
		}
	})
}

func TestServerLeavesABridgeOfAnotherDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bridge := providertest.New(t)
		s, err := newServer(bridge.Config())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		if code := bridge.Accept().Gone(); code != 1002 {
			t.Errorf("left with code %d", code)
		}
		if err := <-ended; !errors.Is(err, errDialect) {
			t.Errorf("Run = %v", err)
		}
		bridge.Before(func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return false
		})
		if s, err = newServer(bridge.Config()); err != nil {
			t.Fatal(err)
		}
		if _, ok := errors.AsType[*refusedError](s.Run(t.Context())); !ok {
			t.Error("a refusal was not one")
		}
	})
}
