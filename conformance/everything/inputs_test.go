package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
)

// TestFixturesAskUntilTheyAreAnswered walks each fixture through its rounds: more
// are the members of the call beside its name, want is in the answer.
func TestFixturesAskUntilTheyAreAnswered(t *testing.T) {
	type round struct{ more, want string }
	const (
		alice = `{"action":"accept","content":{"name":"Alice"}}`
		paris = `{"role":"assistant","content":{"type":"text","text":"Paris"},"model":"m"}`
		root  = `{"roots":[{"uri":"file:///a","name":"A"}]}`
		again = `"resultType":"input_required"`
	)
	for tool, rounds := range map[string][]round{
		"test_sampling": {
			{`"params":{"prompt":"Hi <b>"}`, `"text":"Hi <b>"`},
			{`"params":{"prompt":"Hi"},"inputResponses":{"answer":` + paris + `}`, `"LLM response: Paris"`},
		},
		"test_elicitation": {
			{`"params":{"message":"Who?"}`, `"message":"Who?"`},
			{`"params":{"message":"Who?"},"inputResponses":{"user":{"action":"decline"}}`, `"User response: action=decline"`},
		},
		"test_elicitation_sep1034_defaults": {
			{`"params":{}`, `"default":95.5`},
			{`"params":{},"inputResponses":{"answer":{"action":"accept","content":{"age":25}}}`, `action=accept, content={\"age\":25}`},
		},
		"test_elicitation_sep1330_enums": {{`"params":{}`, `"enumNames":["Option One"`}},
		"test_streaming_elicitation":     {{`"params":{}`, `"elicitation/create"`}},
		"test_missing_capability":        {{`"params":{}`, `"sampling/createMessage"`}, {`"inputResponses":{"word":` + paris + `}`, `"Paris"`}},
		"test_input_required_result_elicitation": {
			{`"params":{}`, `"inputRequests":{"user_name":{"method":"elicitation/create"`},
			{`"inputResponses":{"wrong_key":` + alice + `}`, again},
			{`"inputResponses":{"user_name":12345}`, again},
			{`"inputResponses":{"user_name":{"action":"accept"}}`, again},
			{`"inputResponses":{"user_name":` + alice + `,"more":{}}`, `"Hello, Alice!"`},
			{`"inputResponses":{"user_name":{"action":"cancel"}}`, `"Hello, whoever you are!"`},
		},
		"test_input_required_result_sampling": {
			{`"params":{}`, `"capital_question":{"method":"sampling/createMessage"`},
			{`"inputResponses":{"capital_question":` + paris + `}`, `"Paris"`},
		},
		"test_input_required_result_list_roots": {
			{`"params":{}`, `"client_roots":{"method":"roots/list","params":{}}`},
			{`"inputResponses":{"client_roots":{}}`, again},
			{`"inputResponses":{"client_roots":` + root + `}`, `"file:///a A"`},
		},
		"test_input_required_result_request_state": {
			{`"params":{}`, `"requestState":"waiting for ok"`},
			{`"inputResponses":{"confirm":{"action":"accept","content":{"ok":true}}},"requestState":"waiting for ok"`, `"state-ok: `},
			{`"inputResponses":{"confirm":{"action":"accept","content":{"ok":true}}}`, `"code":-32602`},
		},
		"test_input_required_result_tampered_state": {
			{`"params":{}`, `"requestState":"unchanged"`},
			{`"inputResponses":{"confirm":{"action":"accept","content":{"ok":true}}},"requestState":"changed"`, `"code":-32602`},
		},
		"test_input_required_result_multiple_inputs": {
			{`"params":{}`, `"greeting":{"method":"sampling/createMessage"`},
			{`"inputResponses":{"user_name":` + alice + `,"greeting":` + paris + `},"requestState":"several"`, again},
			{`"inputResponses":{"user_name":` + alice + `,"greeting":` + paris + `,"client_roots":` + root + `},"requestState":"several"`, `"The client has 1 roots."`},
		},
		"test_input_required_result_multi_round": {
			{`"params":{}`, `"requestState":"first"`},
			{`"inputResponses":{"step1":7},"requestState":"first"`, `"requestState":"first"`},
			{`"inputResponses":{"step1":` + alice + `},"requestState":"first"`, `"requestState":"second:action=accept, content={\"name\":\"Alice\"}"`},
			{`"inputResponses":{"step2":7},"requestState":"second:a"`, `"requestState":"second:a"`},
			{`"inputResponses":{"step2":{"action":"accept","content":{"color":"blue"}}},"requestState":"second:a"`, `"First a, then action=accept`},
			{`"inputResponses":{"step2":{"action":"accept"}},"requestState":"third"`, `"code":-32602`},
		},
		"test_input_required_result_capabilities": {
			{`"meta":{"clientCapabilities":{"sampling":{}}}`, `"inputRequests":{"sampling":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"Say hello."}}],"maxTokens":50}}}`},
			{`"meta":{"clientCapabilities":{}}`, `"The client cannot be asked for anything."`},
			{`"params":{}`, `"The client cannot be asked for anything."`},
			{`"inputResponses":{"sampling":` + paris + `}`, `"The client gave 1 answers."`},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			peer := connected(t)
			for _, r := range rounds {
				peer.Send(`{"type":"callTool","callId":"1","name":"` + tool + `",` + r.more + `}`)
				if got := peer.Receive(); !strings.Contains(string(got.Raw), r.want) {
					t.Errorf("%s with %s: %s\nwant %s", tool, r.more, got.Raw, r.want)
				}
			}
		})
	}
}

func TestSchemasOfElicitationsAreJSON(t *testing.T) {
	for _, schema := range []string{nameSchema, okSchema, defaultsSchema, enumsSchema} {
		if !json.Valid([]byte(schema)) {
			t.Errorf("no JSON: %s", schema)
		}
	}
}
