package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"mcpbridge/clients/provider"
)

// request is a request or notification of the bridge's: the members of all methods.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta struct {
			Version       *string         `json:"io.modelcontextprotocol/protocolVersion"`
			Capabilities  json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
			Client        provider.Client `json:"io.modelcontextprotocol/clientInfo"`
			LogLevel      string          `json:"io.modelcontextprotocol/logLevel"`
			ProgressToken json.RawMessage `json:"progressToken"`
			Traceparent   string          `json:"traceparent"`
		} `json:"_meta"`
		Name      string                     `json:"name"`
		URI       string                     `json:"uri"`
		Arguments json.RawMessage            `json:"arguments"`
		Responses map[string]json.RawMessage `json:"inputResponses"`
		State     string                     `json:"requestState"`
		Cursor    *string                    `json:"cursor"`
		Ref       struct {
			Type string `json:"type"`
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
		Notifications *filter         `json:"notifications"`
		RequestID     json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// members are those of a JSON object.
type members map[string]any

// identity is the _meta of every result.
var identity = members{"io.modelcontextprotocol/serverInfo": members{
	"name": "everything", "title": "MCP conformance fixtures", "version": "1.0.0",
}}

func complete(m members) members {
	m["resultType"] = "complete"
	m["_meta"] = identity
	return m
}

// lasting is a complete result that anybody may keep for some time.
func lasting(ttlMs int, m members) members {
	m["ttlMs"] = ttlMs
	m["cacheScope"] = "public"
	return complete(m)
}

// answer is the result of a request.
func (p *peer) answer(ctx context.Context, q *request) (any, error) {
	method := p.methods()[q.Method]
	if method == nil {
		return nil, &provider.Error{Code: codeUnknownMethod, Message: "unknown method"}
	}
	meta := &q.Params.Meta
	if meta.Version == nil || len(meta.Capabilities) == 0 || meta.Capabilities[0] != '{' {
		return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "_meta must have the protocol version and the client's capabilities"}
	}
	if *meta.Version != revision {
		return nil, &provider.Error{Code: codeVersion, Message: "unsupported protocol version", Data: members{
			"supported": []string{revision}, "requested": *meta.Version,
		}}
	}
	return method(ctx, q)
}

func (p *peer) methods() map[string]func(context.Context, *request) (any, error) {
	return map[string]func(context.Context, *request) (any, error){
		"server/discover":          p.discover,
		"tools/list":               list("tools", p.s.toolList),
		"tools/call":               p.callTool,
		"prompts/list":             list("prompts", p.s.promptList),
		"prompts/get":              p.getPrompt,
		"resources/list":           list("resources", resourceList),
		"resources/templates/list": list("resourceTemplates", templateList),
		"resources/read":           p.readResource,
		"completion/complete":      p.complete,
		"subscriptions/listen":     p.listen,
	}
}

func (p *peer) discover(context.Context, *request) (any, error) {
	return lasting(0, members{
		"supportedVersions": []string{revision},
		"capabilities": members{
			"tools":       members{"listChanged": true},
			"prompts":     members{"listChanged": true},
			"resources":   members{"subscribe": true},
			"completions": members{},
			"logging":     members{},
		},
	}), nil
}

// list answers a list request with all there is, on one page.
func list(member string, all func() []members) func(context.Context, *request) (any, error) {
	return func(_ context.Context, q *request) (any, error) {
		if q.Params.Cursor != nil {
			return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "no such cursor"}
		}
		return lasting(0, members{member: all()}), nil
	}
}

func (f *fixtures) toolList() []members {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []members{}
	for _, t := range f.tools() {
		schema := t.InputSchema
		if schema == nil {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		m := members{"name": t.Name, "title": t.Title, "description": t.Description, "inputSchema": schema}
		if t.TaskSupport != "" {
			m["execution"] = members{"taskSupport": t.TaskSupport}
		}
		all = append(all, m)
	}
	return all
}

func (p *peer) callTool(ctx context.Context, q *request) (any, error) {
	p.s.mu.Lock()
	tools := p.s.tools()
	p.s.mu.Unlock()
	i := slices.IndexFunc(tools, func(t tool) bool { return t.Name == q.Params.Name })
	if i < 0 {
		return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "unknown tool: " + q.Params.Name}
	}
	var r provider.Result
	var err error
	if t := tools[i]; t.report != nil {
		r, err = t.report(ctx, report{p, q})
	} else {
		r, err = t.Handle(ctx, q.call())
	}
	if err != nil {
		if _, protocol := errors.AsType[*provider.Error](err); protocol || ctx.Err() != nil {
			return nil, err
		}
		r = provider.Failure(err.Error())
	}
	return q.result(r)
}

// call is the request as a handler sees it.
func (q *request) call() *provider.Call {
	c := &provider.Call{
		Name: q.Params.Name, Client: q.Params.Meta.Client, Capabilities: q.Params.Meta.Capabilities,
		Responses: q.Params.Responses, State: q.Params.State, Traceparent: q.Params.Meta.Traceparent,
		LogLevel: q.Params.Meta.LogLevel, WantsProgress: q.Params.Meta.ProgressToken != nil,
	}
	if string(q.Params.Arguments) != "null" {
		c.Arguments = q.Params.Arguments
	}
	return c
}

// result is what a handler returned as the result of the request, or an error where
// it asks for what the client did not say it can give.
func (q *request) result(r provider.Result) (any, error) {
	if r.Raw == nil {
		m := members{"content": r.Content}
		if r.Content == nil {
			m["content"] = []json.RawMessage{}
		}
		if r.IsError {
			m["isError"] = true
		}
		return complete(m), nil
	}
	var own map[string]json.RawMessage
	var asks struct {
		Requests map[string]provider.Request `json:"inputRequests"`
	}
	if err := errors.Join(json.Unmarshal(r.Raw, &own), json.Unmarshal(r.Raw, &asks)); err != nil {
		return nil, err
	}
	m := members{}
	for name, value := range own {
		m[name] = value
	}
	if m["resultType"] == nil {
		return complete(m), nil
	}
	if missing := lacking(q.Params.Meta.Capabilities, asks.Requests); len(missing) > 0 {
		return nil, &provider.Error{
			Code: codeMissingCapability, Message: "the client lacks a capability that this needs",
			Data: members{"requiredCapabilities": missing},
		}
	}
	m["_meta"] = identity
	return m, nil
}

// lacking is what requests need of a client beyond its capabilities.
func lacking(capabilities json.RawMessage, requests map[string]provider.Request) members {
	var can struct {
		Elicitation map[string]json.RawMessage
		Sampling    json.RawMessage
		Roots       json.RawMessage
	}
	_ = json.Unmarshal(capabilities, &can) // what cannot be read is not declared
	missing := members{}
	for r := range maps.Values(requests) {
		switch r.Method {
		case "elicitation/create": // an empty object means forms
			if can.Elicitation == nil || len(can.Elicitation) > 0 && can.Elicitation["form"] == nil {
				missing["elicitation"] = members{"form": members{}}
			}
		case "sampling/createMessage":
			if can.Sampling == nil {
				missing["sampling"] = members{}
			}
		case "roots/list":
			if can.Roots == nil {
				missing["roots"] = members{}
			}
		}
	}
	return missing
}

// report sends what a tool reports of its request, if the client wants it.
type report struct {
	p *peer
	q *request
}

// Progress implements reporter.
func (r report) Progress(progress, total float64, text string) {
	if token := r.q.Params.Meta.ProgressToken; token != nil {
		r.p.notify("notifications/progress", members{"progressToken": token, "progress": progress, "total": total, "message": text})
	}
}

// levels are MCP's log levels, least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Log implements reporter.
func (r report) Log(level, logger string, data any) {
	least := slices.Index(levels, r.q.Params.Meta.LogLevel)
	if least < 0 || slices.Index(levels, level) < least {
		return
	}
	m := members{"level": level, "data": data}
	if logger != "" {
		m["logger"] = logger
	}
	r.p.notify("notifications/message", m)
}

// filter is what a listener wants to be told.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources []string `json:"resourceSubscriptions,omitempty"`
}

const subscriptionID = "io.modelcontextprotocol/subscriptionId"

// listen tells what the request wants to be told, until it is cancelled or the
// server stops.
func (p *peer) listen(ctx context.Context, q *request) (any, error) {
	if q.Params.Notifications == nil {
		return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: `params must have "notifications"`}
	}
	want, id := *q.Params.Notifications, string(q.ID)
	mark := members{subscriptionID: q.ID}
	p.listening.Lock()
	p.notify("notifications/subscriptions/acknowledged", members{"notifications": want, "_meta": mark})
	p.listens[id] = want
	p.listening.Unlock()
	<-ctx.Done()
	p.listening.Lock()
	delete(p.listens, id)
	p.listening.Unlock()
	maps.Copy(mark, identity)
	return members{"resultType": "complete", "_meta": mark}, nil
}

// changed tells listeners that tools or prompts have changed, and the watched
// resource with them.
func (p *peer) changed(kind string) {
	p.listening.Lock()
	defer p.listening.Unlock()
	for id, want := range p.listens {
		mark := members{subscriptionID: json.RawMessage(id)}
		if kind == "tools" && want.Tools || kind == "prompts" && want.Prompts {
			p.notify("notifications/"+kind+"/list_changed", members{"_meta": mark})
		}
		if slices.Contains(want.Resources, watchedURI) {
			p.notify("notifications/resources/updated", members{"uri": watchedURI, "_meta": mark})
		}
	}
}
