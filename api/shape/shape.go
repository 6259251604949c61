// Package shape makes of a provider's definitions and results what a client can
// digest, where its revision or its own faults leave no choice. Every change is
// deterministic and touches only what must change: all other bytes stay.
package shape

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"mcpbridge/api/wire"
)

// Profile is what is known of a client.
type Profile struct {
	// Era is the negotiated revision as far as it matters.
	Era Era
	// Shield repairs what model APIs and popular clients refuse, though it is valid.
	Shield bool
}

// Era is a range of revisions with the same abilities.
type Era uint8

// The eras, newest first.
const (
	Modern     Era = iota // 2026-07-28: everything passes
	Structured            // 2025-06-18 and 2025-11-25: output schemas and structured content are objects
	Annotated             // 2025-03-26: no output schema, structured content or resource link
	First                 // 2024-11-05: no audio either
)

// EraOf is the era of a revision's date.
func EraOf(revision string) Era {
	switch {
	case revision >= "2026-07-28":
		return Modern
	case revision >= "2025-06-18":
		return Structured
	case revision >= "2025-03-26":
		return Annotated
	default:
		return First
	}
}

// shielded are the clients known to refuse valid schemas, by clientInfo.name or
// User-Agent: whole servers, in some cases, for one tool.
var shielded = regexp.MustCompile(`(?i)claude|anthropic|cursor|visual studio code|vscode|copilot|openai|chatgpt|codex|gemini`)

// Shielded tells whether a client of that name needs the shield.
func Shielded(name string) bool { return shielded.MatchString(name) }

// Plain tells whether the profile leaves everything as it is.
func (p Profile) Plain() bool { return p.Era == Modern && !p.Shield }

// Tool shapes a checked tool definition; the same slice when nothing changes.
func (p Profile) Tool(definition []byte) []byte {
	return edit(definition, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "outputSchema":
			if p.Era >= Annotated || p.Era == Structured && member(v, "type") != `"object"` {
				return nil, false
			}
		case "inputSchema":
			if p.Shield {
				return Input(v), true
			}
		}
		return v, true
	})
}

// Result shapes a checked tool result; the same slice when nothing changes.
func (p Profile) Result(raw []byte) []byte {
	if p.Era == Modern {
		return raw
	}
	hasContent, lost := false, json.RawMessage(nil)
	shaped := edit(raw, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "structuredContent":
			if p.Era >= Annotated || v[0] != '{' {
				lost = v
				return nil, false
			}
		case "content":
			hasContent = len(elements(v)) > 0
			if p.Era >= Annotated && v[0] == '[' {
				return p.content(v), true
			}
		}
		return v, true
	})
	if lost != nil && !hasContent { // the model must still see what the tool said
		shaped = edit(shaped, func(name string, v json.RawMessage) (json.RawMessage, bool) { return v, name != "content" })
		shaped = add(shaped, `"content":[`+text(string(lost))+`]`)
	}
	return shaped
}

// content replaces the blocks that an era does not know by text.
func (p Profile) content(list json.RawMessage) json.RawMessage {
	changed := false
	var out [][]byte
	for _, block := range elements(list) {
		kind := member(block, "type")
		switch {
		case kind == `"resource_link"`:
			name, _ := wire.Text([]byte(member(block, "name")))
			uri, _ := wire.Text([]byte(member(block, "uri")))
			block = []byte(text(strings.TrimSpace(name + " " + uri)))
			changed = true
		case kind == `"audio"` && p.Era == First:
			mime, _ := wire.Text([]byte(member(block, "mimeType")))
			block = []byte(text("[audio, " + mime + ", which this client's revision cannot carry]"))
			changed = true
		}
		out = append(out, block)
	}
	if !changed {
		return list
	}
	return append(append([]byte{'['}, bytes.Join(out, []byte{','})...), ']')
}

func text(s string) string {
	quoted, _ := json.Marshal(s) // a string always encodes
	return `{"type":"text","text":` + string(quoted) + `}`
}

// Input repairs an input schema for clients that refuse: a root without type or
// properties, a union at the root, arrays without items.
func Input(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 || schema[0] != '{' {
		return schema
	}
	schema = flatten(schema)
	schema = deep(schema)
	if member(schema, "type") == "" {
		schema = add(schema, `"type":"object"`)
	}
	if member(schema, "properties") == "" {
		schema = add(schema, `"properties":{}`)
	}
	return schema
}

// flatten replaces a union at the root by the union of its branches' properties: a
// wider schema, which the provider itself still narrows.
func flatten(schema json.RawMessage) json.RawMessage {
	var branches []json.RawMessage
	rest := edit(schema, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "anyOf", "oneOf", "allOf":
			branches = append(branches, elements(v)...)
			return nil, false
		}
		return v, true
	})
	if len(branches) == 0 {
		return schema
	}
	seen := map[string]bool{}
	var properties [][]byte
	collect := func(from json.RawMessage) {
		each(json.RawMessage(member(from, "properties")), func(name string, v json.RawMessage) {
			if !seen[name] {
				seen[name] = true
				quoted, _ := json.Marshal(name) // a string always encodes
				properties = append(properties, append(append(quoted, ':'), v...))
			}
		})
	}
	collect(rest)
	for _, b := range branches {
		collect(b)
	}
	rest = edit(rest, func(name string, v json.RawMessage) (json.RawMessage, bool) { return v, name != "properties" })
	return add(rest, `"properties":{`+string(bytes.Join(properties, []byte{','}))+`}`)
}

// deep gives every array schema in properties and items its items.
func deep(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 || schema[0] != '{' {
		return schema
	}
	out := edit(schema, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "properties", "$defs", "definitions":
			return edit(v, func(_ string, sub json.RawMessage) (json.RawMessage, bool) { return deep(sub), true }), true
		case "items", "additionalProperties":
			return deep(v), true
		}
		return v, true
	})
	if member(out, "type") == `"array"` && member(out, "items") == "" && member(out, "prefixItems") == "" {
		out = add(out, `"items":{}`)
	}
	return out
}

// Warnings tells a provider what the shield repairs in a tool's input schema.
func Warnings(schema json.RawMessage) (all []string) {
	if member(schema, "type") == "" {
		all = append(all, `inputSchema has no "type" at its root; some clients refuse it, so they are shown "object"`)
	}
	for _, union := range []string{"anyOf", "oneOf", "allOf"} {
		if member(schema, union) != "" {
			all = append(all, "inputSchema has "+union+" at its root, which some clients refuse; they are shown its properties together")
		}
	}
	if !bytes.Equal(deep(schema), schema) {
		all = append(all, "inputSchema has an array without items, which some clients refuse; they are shown any items")
	}
	return all
}

// edit rebuilds an object from its members as change returns them; the same slice
// when none changed.
func edit(raw []byte, change func(name string, v json.RawMessage) (out json.RawMessage, keep bool)) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	changed := false
	out := []byte{'{'}
	each(raw, func(name string, v json.RawMessage) {
		w, keep := change(name, v)
		if !keep {
			changed = true
			return
		}
		changed = changed || len(w) != len(v) || len(w) > 0 && &w[0] != &v[0]
		if len(out) > 1 {
			out = append(out, ',')
		}
		quoted, _ := json.Marshal(name) // a string always encodes
		out = append(append(append(out, quoted...), ':'), w...)
	})
	if !changed {
		return raw
	}
	return append(out, '}')
}

// each visits the members of a checked object; nothing else has any.
func each(raw json.RawMessage, visit func(name string, v json.RawMessage)) {
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	s := wire.Reread(raw)
	_ = s.Object(func(name []byte) error { // what has been checked has no errors
		key := string(name)
		v, err := s.Raw()
		visit(key, v)
		return err
	})
}

// member is the raw value of an object's member; empty when it has none.
func member(raw json.RawMessage, name string) (value string) {
	each(raw, func(n string, v json.RawMessage) {
		if n == name {
			value = string(v)
		}
	})
	return value
}

func elements(raw json.RawMessage) (all []json.RawMessage) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	s := wire.Reread(raw)
	_ = s.Array(func() error { // what has been checked has no errors
		v, err := s.Raw()
		all = append(all, v)
		return err
	})
	return all
}

// add puts a member at the end of an object.
func add(object []byte, member string) []byte {
	body := bytes.TrimRight(object[:len(object)-1], " \t\r\n")
	out := append(make([]byte, 0, len(object)+len(member)+1), body...)
	if len(body) > 1 {
		out = append(out, ',')
	}
	return append(append(out, member...), '}')
}
