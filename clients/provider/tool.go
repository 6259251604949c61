package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Handler runs one call. Its context ends when nobody waits any more: see
// [context.Cause] and this package's errors.
//
// An error that is an [*Error] reaches the client as a JSON-RPC error; any other
// one as a result with isError and the error's text, for the model to read. A
// handler that panics is answered with an internal error, and the panic is
// logged.
//
// Handlers run concurrently, each on its own goroutine.
type Handler func(ctx context.Context, call *Call) (Result, error)

// Tool is one offer.
type Tool struct {
	// Name is 1 to 128 of [A-Za-z0-9_.-]; clients cope best with at most 48.
	Name        string
	Title       string
	Description string
	// InputSchema and OutputSchema are JSON Schema 2020-12, sent byte for byte.
	// A nil InputSchema takes any object; a nil OutputSchema is left out.
	InputSchema, OutputSchema json.RawMessage
	Annotations               *Annotations
	// TaskSupport tells whether calls may become tasks (MCP extension
	// io.modelcontextprotocol/tasks). Empty leaves that to the bridge: those that last do.
	TaskSupport TaskSupport
	// Timeout is the deadline of a call of this tool; zero keeps the bridge's.
	Timeout time.Duration
	// Raw, if set, is the whole definition, a JSON object sent byte for byte.
	// Name may be left empty then, and the other fields but Handle are ignored.
	Raw json.RawMessage
	// Handle answers calls. Required.
	Handle Handler
}

// TaskSupport is what a tool says of tasks, to clients that know them.
type TaskSupport string

// The values of TaskSupport.
const (
	TaskForbidden TaskSupport = "forbidden" // a call never becomes a task
	TaskOptional  TaskSupport = "optional"  // a call becomes one unless it is answered at once
	TaskRequired  TaskSupport = "required"  // as optional; clients of 2026-07-28 that do not know tasks are refused
)

// Annotations are hints about what a tool does. Nil leaves a hint out, and
// clients then assume the MCP default that its comment names. new(true) is
// handy.
type Annotations struct {
	ReadOnly    *bool // changes nothing; default false
	Destructive *bool // may destroy, not only add; default true
	Idempotent  *bool // a repeated call has no further effect; default false
	OpenWorld   *bool // deals with the outside world; default true
}

func (a *Annotations) encode() []byte {
	var o object
	for _, hint := range []struct {
		name  string
		value *bool
	}{
		{"readOnlyHint", a.ReadOnly},
		{"destructiveHint", a.Destructive},
		{"idempotentHint", a.Idempotent},
		{"openWorldHint", a.OpenWorld},
	} {
		if hint.value != nil {
			o.raw(hint.name, fmt.Append(nil, *hint.value))
		}
	}
	return o.end()
}

// definition is the tool's name, and its JSON as registerTools carries it.
func (t *Tool) definition() (string, json.RawMessage, error) {
	if t.Raw != nil {
		var named struct {
			Name string `json:"name"`
		}
		if !isObject(t.Raw) {
			return "", nil, fmt.Errorf("provider: Raw of tool %q is not a JSON object", t.Name)
		}
		if err := json.Unmarshal(t.Raw, &named); err != nil || named.Name == "" {
			return "", nil, fmt.Errorf("provider: Raw of tool %q has no name", t.Name)
		}
		if t.Name != "" && t.Name != named.Name {
			return "", nil, fmt.Errorf("provider: Raw of tool %q is named %q", t.Name, named.Name)
		}
		return named.Name, t.Raw, nil
	}
	if t.Name == "" {
		return "", nil, fmt.Errorf("provider: a tool has no name")
	}
	var o object
	o.text("name", t.Name)
	o.optional("title", t.Title)
	o.optional("description", t.Description)
	if t.InputSchema == nil {
		o.raw("inputSchema", []byte(`{"type":"object"}`))
	} else if isObject(t.InputSchema) {
		o.raw("inputSchema", t.InputSchema)
	} else {
		return "", nil, fmt.Errorf("provider: InputSchema of tool %q is not a JSON object", t.Name)
	}
	if t.OutputSchema != nil {
		if !isObject(t.OutputSchema) {
			return "", nil, fmt.Errorf("provider: OutputSchema of tool %q is not a JSON object", t.Name)
		}
		o.raw("outputSchema", t.OutputSchema)
	}
	if t.Annotations != nil {
		o.raw("annotations", t.Annotations.encode())
	}
	switch t.TaskSupport {
	case "":
	case TaskForbidden, TaskOptional, TaskRequired:
		o.raw("execution", []byte(`{"taskSupport":"`+string(t.TaskSupport)+`"}`))
	default:
		return "", nil, fmt.Errorf("provider: TaskSupport of tool %q is %q, want forbidden, optional or required", t.Name, string(t.TaskSupport))
	}
	if t.Timeout > 0 {
		o.number("timeoutSeconds", t.Timeout.Seconds())
	}
	return t.Name, o.end(), nil
}

// toolSet is one whole set of tools, ready to be registered.
type toolSet struct {
	id       string // of the registerTools message
	frame    []byte // the registerTools message
	handlers map[string]Handler
}

func newToolSet(id string, tools []Tool) (*toolSet, error) {
	s := &toolSet{id: id, handlers: make(map[string]Handler, len(tools))}
	definitions := make([]json.RawMessage, 0, len(tools))
	for i := range tools {
		name, definition, err := tools[i].definition()
		if err != nil {
			return nil, err
		}
		if tools[i].Handle == nil {
			return nil, fmt.Errorf("provider: tool %q has no Handle", name)
		}
		if s.handlers[name] != nil {
			return nil, fmt.Errorf("provider: two tools are named %q", name)
		}
		s.handlers[name] = tools[i].Handle
		definitions = append(definitions, definition)
	}
	var o object
	o.text("type", "registerTools")
	o.text("id", id)
	o.raw("replace", []byte("true"))
	o.raw("tools", array(definitions))
	s.frame = o.end()
	return s, nil
}

// Registration is what the bridge made of a set of tools. It is durable there.
type Registration struct {
	Revision uint64 // of the bridge's catalog
	Tools    []RegisteredTool
	Rejected []RejectedTool
	Held     []HeldTool
}

// RegisteredTool is one tool that clients now see.
type RegisteredTool struct {
	Name      string   // ours
	ExposedAs string   // what clients see; differs where another provider had the name first
	Warnings  []string // what may trouble some clients
}

// HeldTool is one tool whose changed definition waits for the approval of the bridge's
// owner. Where clients see an earlier one meanwhile, it is in Tools too.
type HeldTool struct {
	Name      string
	ExposedAs string // what clients see; empty where they see none
	Hash      string // names the definition that waits
	Message   string // what happens and what to do, for people
}

// RejectedTool is one tool that the bridge did not take; the others stand.
type RejectedTool struct {
	Name    string
	Code    string // the bridge's stable word for it
	Message string
}
