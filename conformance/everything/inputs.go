package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"mcpbridge/clients/provider"
)

// inputTools are the fixtures that ask the client for something before they
// answer.
func inputTools() []provider.Tool {
	return []provider.Tool{
		{
			Name: "test_sampling", Title: "Sampling", Description: "Returns what the client's model makes of a prompt.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"prompt":{"type":"string","description":"The prompt for the model."}},"required":["prompt"]}`),
			Handle:      samplePrompt,
		},
		{
			Name: "test_elicitation", Title: "Elicitation", Description: "Asks the user for a name and an address.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","description":"What the user is shown."}},"required":["message"]}`),
			Handle:      elicitUser,
		},
		{
			Name: "test_elicitation_sep1034_defaults", Title: "Elicitation with defaults", Description: "Asks the user for values that have defaults.",
			Handle: elicits("Please check these values", defaultsSchema),
		},
		{
			Name: "test_elicitation_sep1330_enums", Title: "Elicitation with choices", Description: "Asks the user to choose, in each way that a schema can offer choices.",
			Handle: elicits("Please choose", enumsSchema),
		},
		{
			Name: "test_streaming_elicitation", Title: "Elicitation on a stream", Description: "Asks the user for a confirmation.",
			Handle: elicits("Please confirm", okSchema),
		},
		{
			Name: "test_missing_capability", Title: "Missing capability", Description: "Needs the client's sampling, and is refused to clients that did not declare it.",
			Handle: asks("", map[string]provider.Request{"word": provider.Sample("Say one word.", 10)}, func(c *provider.Call) (provider.Result, bool) {
				text, ok := sampled(c.Responses["word"])
				return provider.Text(text), ok
			}),
		},
		{
			Name: "test_input_required_result_elicitation", Title: "Asking the user", Description: "Asks the user for a name and says hello.",
			Handle: asks("", map[string]provider.Request{"user_name": askName}, func(c *provider.Call) (provider.Result, bool) {
				return hello(c.Responses["user_name"])
			}),
		},
		{
			Name: "test_input_required_result_sampling", Title: "Asking the model", Description: "Asks the client's model for the capital of France.",
			Handle: asks("", map[string]provider.Request{"capital_question": provider.Sample("What is the capital of France?", 100)}, func(c *provider.Call) (provider.Result, bool) {
				text, ok := sampled(c.Responses["capital_question"])
				return provider.Text(text), ok
			}),
		},
		{
			Name: "test_input_required_result_list_roots", Title: "Asking for roots", Description: "Asks the client for its roots and lists them.",
			Handle: asks("", map[string]provider.Request{"client_roots": provider.Roots()}, func(c *provider.Call) (provider.Result, bool) {
				return roots(c.Responses["client_roots"])
			}),
		},
		{
			Name: "test_input_required_result_request_state", Title: "Asking with state", Description: "Asks for a confirmation, and wants its state back with it.",
			Handle: asks("waiting for ok", map[string]provider.Request{"confirm": askOK}, func(c *provider.Call) (provider.Result, bool) {
				a, ok := elicited(c.Responses["confirm"])
				return provider.Text("state-ok: " + a.String()), ok
			}),
		},
		{
			Name: "test_input_required_result_tampered_state", Title: "Asking with state that nobody may change", Description: "Asks for a confirmation; changed state is refused.",
			Handle: asks("unchanged", map[string]provider.Request{"confirm": askOK}, func(c *provider.Call) (provider.Result, bool) {
				a, ok := elicited(c.Responses["confirm"])
				return provider.Text("The state came back unchanged: " + a.String()), ok
			}),
		},
		{
			Name: "test_input_required_result_multiple_inputs", Title: "Asking for several things", Description: "Asks the user, the model and for the roots at once.",
			Handle: asks("several", map[string]provider.Request{
				"user_name":    askName,
				"greeting":     provider.Sample("Generate a greeting", 50),
				"client_roots": provider.Roots(),
			}, severalInputs),
		},
		{
			Name: "test_input_required_result_multi_round", Title: "Asking twice", Description: "Asks for a name, and then for a colour.",
			Handle: twoRounds,
		},
		{
			Name: "test_input_required_result_capabilities", Title: "Asking for what there is", Description: "Asks only for what the client says it can give.",
			Handle: asksWhatThereIs,
		},
	}
}

const (
	nameSchema = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	okSchema   = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`

	defaultsSchema = `{"type":"object","properties":{
		"name":{"type":"string","description":"A name","default":"John Doe"},
		"age":{"type":"integer","description":"An age in years","default":30},
		"score":{"type":"number","description":"A score","default":95.5},
		"status":{"type":"string","description":"A status","enum":["active","inactive","pending"],"default":"active"},
		"verified":{"type":"boolean","description":"Whether it was verified","default":true}}}`

	enumsSchema = `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`
)

var (
	askName = provider.Elicit("What is your name?", json.RawMessage(nameSchema))
	askOK   = provider.Elicit("Please confirm", json.RawMessage(okSchema))
)

// asks asks for requests until answer is content with what came, and refuses
// responses that come with another state than the one it gave.
func asks(state string, requests map[string]provider.Request, answer func(*provider.Call) (provider.Result, bool)) provider.Handler {
	return func(_ context.Context, call *provider.Call) (provider.Result, error) {
		if call.Responses == nil {
			return provider.Ask(state, requests), nil
		}
		if call.State != state {
			return provider.Result{}, badState()
		}
		if r, ok := answer(call); ok {
			return r, nil
		}
		return provider.Ask(state, requests), nil
	}
}

func badState() error {
	return &provider.Error{Code: provider.CodeInvalidParams, Message: "the request state is not the one that was given"}
}

// elicits asks the user and tells what came of it.
func elicits(message, schema string) provider.Handler {
	return asks("", map[string]provider.Request{"answer": provider.Elicit(message, json.RawMessage(schema))}, func(c *provider.Call) (provider.Result, bool) {
		a, ok := elicited(c.Responses["answer"])
		return provider.Text("Elicitation completed: " + a.String()), ok
	})
}

func elicitUser(ctx context.Context, call *provider.Call) (provider.Result, error) {
	var in struct{ Message string }
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	request := provider.Elicit(in.Message, json.RawMessage(`{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`))
	return asks("", map[string]provider.Request{"user": request}, func(c *provider.Call) (provider.Result, bool) {
		a, ok := elicited(c.Responses["user"])
		return provider.Text("User response: " + a.String()), ok
	})(ctx, call)
}

func samplePrompt(ctx context.Context, call *provider.Call) (provider.Result, error) {
	var in struct{ Prompt string }
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	return asks("", map[string]provider.Request{"answer": provider.Sample(in.Prompt, 100)}, func(c *provider.Call) (provider.Result, bool) {
		text, ok := sampled(c.Responses["answer"])
		return provider.Text("LLM response: " + text), ok
	})(ctx, call)
}

func severalInputs(c *provider.Call) (provider.Result, bool) {
	name, okName := hello(c.Responses["user_name"])
	greeting, okGreeting := sampled(c.Responses["greeting"])
	list, okRoots := roots(c.Responses["client_roots"])
	if !okName || !okGreeting || !okRoots {
		return provider.Result{}, false
	}
	return provider.Blocks(append(append(name.Content, provider.TextContent(greeting)), list.Content...)...), true
}

// The states of twoRounds. The second one carries the first answer.
const (
	firstRound  = "first"
	secondRound = "second:"
)

func twoRounds(_ context.Context, call *provider.Call) (provider.Result, error) {
	first := map[string]provider.Request{"step1": provider.Elicit("Step 1: What is your name?", json.RawMessage(nameSchema))}
	second := map[string]provider.Request{"step2": provider.Elicit("Step 2: What is your favorite color?",
		json.RawMessage(`{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`))}
	if call.Responses == nil {
		return provider.Ask(firstRound, first), nil
	}
	if call.State == firstRound {
		a, ok := elicited(call.Responses["step1"])
		if !ok {
			return provider.Ask(firstRound, first), nil
		}
		return provider.Ask(secondRound+a.String(), second), nil
	}
	before, ok := strings.CutPrefix(call.State, secondRound)
	if !ok {
		return provider.Result{}, badState()
	}
	a, ok := elicited(call.Responses["step2"])
	if !ok {
		return provider.Ask(call.State, second), nil
	}
	return provider.Text("First " + before + ", then " + a.String() + "."), nil
}

func asksWhatThereIs(_ context.Context, call *provider.Call) (provider.Result, error) {
	if call.Responses != nil {
		return provider.Text(fmt.Sprintf("The client gave %d answers.", len(call.Responses))), nil
	}
	var can map[string]json.RawMessage
	if call.Capabilities != nil {
		if err := json.Unmarshal(call.Capabilities, &can); err != nil {
			return provider.Result{}, err
		}
	}
	requests := map[string]provider.Request{}
	for capability, request := range map[string]provider.Request{
		"elicitation": askName,
		"sampling":    provider.Sample("Say hello.", 50),
		"roots":       provider.Roots(),
	} {
		if can[capability] != nil {
			requests[capability] = request
		}
	}
	if len(requests) == 0 {
		return provider.Text("The client cannot be asked for anything."), nil
	}
	return provider.Ask("", requests), nil
}

// elicitation is what a user answered.
type elicitation struct {
	Action  string          `json:"action"` // accept, decline or cancel
	Content json.RawMessage `json:"content"`
}

func (e elicitation) String() string {
	if e.Content == nil {
		return "action=" + e.Action
	}
	return "action=" + e.Action + ", content=" + string(e.Content)
}

// elicited reads the answer to an elicitation; false where it is none.
func elicited(raw json.RawMessage) (e elicitation, ok bool) {
	if raw == nil || json.Unmarshal(raw, &e) != nil {
		return elicitation{}, false
	}
	return e, e.Action == "accept" || e.Action == "decline" || e.Action == "cancel"
}

func hello(raw json.RawMessage) (provider.Result, bool) {
	e, ok := elicited(raw)
	if !ok {
		return provider.Result{}, false
	}
	var content struct{ Name string }
	if e.Action != "accept" {
		return provider.Text("Hello, whoever you are!"), true
	}
	if e.Content == nil || json.Unmarshal(e.Content, &content) != nil || content.Name == "" {
		return provider.Result{}, false
	}
	return provider.Text("Hello, " + content.Name + "!"), true
}

// sampled is the text of a model's answer.
func sampled(raw json.RawMessage) (string, bool) {
	var message struct {
		Content struct{ Type, Text string }
	}
	if raw == nil || json.Unmarshal(raw, &message) != nil || message.Content.Type != "text" {
		return "", false
	}
	return message.Content.Text, true
}

func roots(raw json.RawMessage) (provider.Result, bool) {
	var list struct {
		Roots []struct{ URI, Name string }
	}
	if raw == nil || json.Unmarshal(raw, &list) != nil || list.Roots == nil {
		return provider.Result{}, false
	}
	r := provider.Text(fmt.Sprintf("The client has %d roots.", len(list.Roots)))
	for _, root := range list.Roots {
		r.Content = append(r.Content, provider.TextContent(root.URI+" "+root.Name))
	}
	return r, true
}
