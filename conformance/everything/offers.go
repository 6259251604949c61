package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mcpbridge/clients/provider"
)

// prompt is one that the server offers.
type prompt struct {
	name, title, description string
	arguments                []string // all required
	get                      func(ctx context.Context, in map[string]string, call *provider.Call) (provider.Result, error)
}

// prompts is the whole set; mu is held.
func (f *fixtures) prompts() []prompt {
	all := []prompt{
		{
			name: "test_simple_prompt", title: "Simple prompt", description: "Is a text.",
			get: says(provider.TextContent("This is a simple prompt for testing.")),
		},
		{
			name: "test_prompt_with_arguments", title: "Prompt with arguments", description: "Is a text with two arguments in it.",
			arguments: []string{"arg1", "arg2"},
			get: func(_ context.Context, in map[string]string, _ *provider.Call) (provider.Result, error) {
				return messages(provider.TextContent(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", in["arg1"], in["arg2"]))), nil
			},
		},
		{
			name: "test_prompt_with_embedded_resource", title: "Prompt with a resource", description: "Is a resource, and a text about it.",
			arguments: []string{"resourceUri"},
			get: func(_ context.Context, in map[string]string, _ *provider.Call) (provider.Result, error) {
				return messages(
					provider.ResourceContent(in["resourceUri"], "text/plain", "Embedded resource content for testing."),
					provider.TextContent("Please process the embedded resource above."),
				), nil
			},
		},
		{
			name: "test_prompt_with_image", title: "Prompt with an image", description: "Is a PNG image of one red pixel, and a text about it.",
			get: says(provider.ImageContent("image/png", redPixel()), provider.TextContent("Please analyze the image above.")),
		},
		{
			name: "test_input_required_result_prompt", title: "Prompt that asks", description: "Asks the user for a context, and is a text with it.",
			get: asksContext,
		},
	}
	if f.guest {
		all = append(all, prompt{
			name: "test_visiting_prompt", title: "Visitor", description: "Comes and goes with test_trigger_prompt_change.",
			get: says(provider.TextContent("Here for now.")),
		})
	}
	return all
}

// messages is a prompt of the user's messages.
func messages(content ...json.RawMessage) provider.Result {
	all := make([]members, len(content))
	for i, c := range content {
		all[i] = members{"role": "user", "content": c}
	}
	raw, err := encode(members{"messages": all})
	if err != nil {
		panic(err) // of content that package provider made
	}
	return provider.Result{Raw: raw}
}

func says(content ...json.RawMessage) func(context.Context, map[string]string, *provider.Call) (provider.Result, error) {
	r := messages(content...)
	return func(context.Context, map[string]string, *provider.Call) (provider.Result, error) { return r, nil }
}

func asksContext(ctx context.Context, _ map[string]string, call *provider.Call) (provider.Result, error) {
	request := provider.Elicit("What context should the prompt use?",
		json.RawMessage(`{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}`))
	return asks("", map[string]provider.Request{"user_context": request}, func(c *provider.Call) (provider.Result, bool) {
		a, ok := elicited(c.Responses["user_context"])
		return messages(provider.TextContent("The user was asked for a context: " + a.String())), ok
	})(ctx, call)
}

func (f *fixtures) promptList() []members {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []members{}
	for _, p := range f.prompts() {
		m := members{"name": p.name, "title": p.title, "description": p.description}
		var arguments []members
		for _, name := range p.arguments {
			arguments = append(arguments, members{"name": name, "description": "Goes into the prompt.", "required": true})
		}
		if arguments != nil {
			m["arguments"] = arguments
		}
		all = append(all, m)
	}
	return all
}

// prompt finds a prompt by its name.
func (f *fixtures) prompt(name string) (prompt, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.prompts()
	i := slices.IndexFunc(all, func(p prompt) bool { return p.name == name })
	if i < 0 {
		return prompt{}, false
	}
	return all[i], true
}

func (p *peer) getPrompt(ctx context.Context, q *request) (any, error) {
	found, ok := p.s.prompt(q.Params.Name)
	if !ok {
		return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "unknown prompt: " + q.Params.Name}
	}
	var in map[string]string
	if q.Params.Arguments != nil && json.Unmarshal(q.Params.Arguments, &in) != nil {
		return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "a prompt's arguments are strings"}
	}
	for _, name := range found.arguments {
		if _, ok := in[name]; !ok {
			return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "argument missing: " + name}
		}
	}
	r, err := found.get(ctx, in, q.call())
	if err != nil {
		return nil, err
	}
	return q.result(r)
}

// words are what test_prompt_with_arguments suggests for arg1.
var words = []string{"paris", "park", "party", "test", "testing"}

func (p *peer) complete(_ context.Context, q *request) (any, error) {
	values := []string{}
	ref, argument := q.Params.Ref, q.Params.Argument
	switch ref.Type {
	case "ref/prompt":
		found, ok := p.s.prompt(ref.Name)
		if !ok || !slices.Contains(found.arguments, argument.Name) {
			return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "no such argument of a prompt"}
		}
		for _, word := range words {
			if argument.Name == "arg1" && strings.HasPrefix(word, argument.Value) {
				values = append(values, word)
			}
		}
	case "ref/resource": // any id will do
		if ref.URI != templateURI || argument.Name != "id" {
			return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "no such variable of a template"}
		}
	default:
		return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "no such kind of reference"}
	}
	return complete(members{"completion": members{"values": values, "total": len(values), "hasMore": false}}), nil
}

const (
	textURI     = "test://static-text"
	binaryURI   = "test://static-binary"
	watchedURI  = "test://watched-resource"
	templateURI = "test://template/{id}/data"
)

func resourceList() []members {
	return []members{
		{"uri": textURI, "name": "static-text", "title": "Static text", "description": "A text that never changes.", "mimeType": "text/plain"},
		{"uri": binaryURI, "name": "static-binary", "title": "Static image", "description": "A PNG image of one red pixel.", "mimeType": "image/png"},
		{"uri": watchedURI, "name": "watched-resource", "title": "Who is here", "description": "Changes as the visiting tool and prompt come and go.", "mimeType": "text/plain"},
	}
}

func templateList() []members {
	return []members{
		{"uriTemplate": templateURI, "name": "template", "title": "Data by id", "description": "Data that has the id in it.", "mimeType": "application/json"},
	}
}

func (p *peer) readResource(_ context.Context, q *request) (any, error) {
	const lastingMs = 60_000
	uri := q.Params.URI
	content := members{"uri": uri, "mimeType": "text/plain"}
	ttl := lastingMs
	switch uri {
	case textURI:
		content["text"] = "This is the content of the static text resource."
	case binaryURI:
		content["mimeType"], content["blob"] = "image/png", redPixel()
	case watchedURI:
		p.s.mu.Lock()
		content["text"] = presence("test_visiting_tool", p.s.visitor) + " " + presence("test_visiting_prompt", p.s.guest)
		p.s.mu.Unlock()
		ttl = 0
	default:
		id, ok := templated(uri)
		if !ok {
			return nil, &provider.Error{Code: provider.CodeInvalidParams, Message: "unknown resource", Data: members{"uri": uri}}
		}
		data, err := encode(members{"id": id, "templateTest": true, "data": "Data for ID: " + id})
		if err != nil {
			return nil, err
		}
		content["mimeType"], content["text"] = "application/json", string(data)
	}
	return lasting(ttl, members{"contents": []members{content}}), nil
}

// templated is the id in a URI of the template's.
func templated(uri string) (id string, ok bool) {
	before, after, _ := strings.Cut(templateURI, "{id}")
	id, ok = strings.CutPrefix(uri, before)
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(id, after)
	return id, ok && id != "" && !strings.Contains(id, "/")
}
