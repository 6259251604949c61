package provider

import (
	"encoding/json"
	"maps"
	"slices"
)

// Request is something that a tool asks of the client before it can answer: see
// [Ask].
type Request struct {
	// Method is elicitation/create, sampling/createMessage or roots/list.
	Method string
	// Params are the request's params as MCP defines them, a JSON object.
	Params json.RawMessage
}

// Elicit asks the user for what the schema describes: a JSON Schema object with
// properties of primitive types.
func Elicit(message string, schema json.RawMessage) Request {
	var o object
	o.text("message", message)
	o.raw("requestedSchema", schema)
	return Request{Method: "elicitation/create", Params: o.end()}
}

// Sample asks the client's model to go on from one message of the user's, in at
// most maxTokens tokens.
func Sample(prompt string, maxTokens int) Request {
	var m object
	m.text("role", "user")
	m.raw("content", TextContent(prompt))
	var o object
	o.raw("messages", array([]json.RawMessage{m.end()}))
	o.number("maxTokens", float64(maxTokens))
	return Request{Method: "sampling/createMessage", Params: o.end()}
}

// Roots asks for the client's roots.
func Roots() Request { return Request{Method: "roots/list", Params: json.RawMessage("{}")} }

// Ask is a result that asks the client for something first. The tool is then
// called anew, with the same arguments, the answers in Call.Responses and state
// in Call.State; nothing else is remembered for it, and the call may reach
// another instance of the provider. The bridge seals state, so that clients
// neither read nor change it.
//
// A client that did not declare the capability is not asked: the call ends with
// an error that says so.
func Ask(state string, requests map[string]Request) Result {
	var asked object
	for _, key := range slices.Sorted(maps.Keys(requests)) {
		var o object
		o.text("method", requests[key].Method)
		if requests[key].Params != nil {
			o.raw("params", requests[key].Params)
		}
		asked.raw(key, o.end())
	}
	var o object
	o.text("resultType", "input_required")
	if len(requests) > 0 {
		o.raw("inputRequests", asked.end())
	}
	o.optional("requestState", state)
	return Result{Raw: o.end()}
}
