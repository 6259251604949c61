package mcp

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// ownCapabilities is what the bridge can do, whoever is connected to it, so that
// clients that keep it are not misled.
const ownCapabilities = `"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}`

// unclaimed are the extensions and experimental capabilities of providers that the
// bridge does not declare.
var unclaimed = []string{
	tasksExtension, // the bridge's own: a provider's tasks would be known to it alone
	// How clients get tokens is settled between them and the bridge.
	"io.modelcontextprotocol/oauth-client-credentials",
	"io.modelcontextprotocol/enterprise-managed-authorization",
	// Events for the model, and prompts for permission sent to whoever the provider
	// likes: notifications of their own, which no provider sends to somebody else's client.
	"claude/channel",
	"claude/channel/permission",
}

// capabilities is the member of that name: the bridge's own, and the extensions and
// experimental capabilities that its providers declare. The first provider of a key
// wins.
func capabilities(c *session.Catalog, modern bool) []byte {
	b := []byte(ownCapabilities)
	extensions, experimental := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for _, p := range slices.Backward(c.Profiles) {
		_ = json.Unmarshal(p.About.Extensions, &extensions) // absent, or checked when it came
		_ = json.Unmarshal(p.About.Experimental, &experimental)
	}
	for _, key := range unclaimed {
		delete(extensions, key)
		delete(experimental, key)
	}
	if modern {
		extensions[tasksExtension] = json.RawMessage("{}")
	}
	b = appendMembers(b, "extensions", extensions)
	b = appendMembers(b, "experimental", experimental)
	return append(b, '}')
}

// forProviders are a client's capabilities, checked, as providers hear of them: without
// tasks, for one that was told of them might answer with a task of its own, which the
// client would ask the bridge for.
func forProviders(caps json.RawMessage) json.RawMessage {
	if len(caps) <= len(tasksExtension) {
		return caps
	}
	var out []byte
	done := 0 // bytes of caps that are in out
	s := wire.Reread(caps)
	_ = s.Object(func(name []byte) error { // what has been checked has no errors
		if string(name) != "extensions" || s.Kind() != '{' {
			_, err := s.Raw()
			return err
		}
		from, kept, found := s.Offset(), map[string]json.RawMessage{}, false
		err := s.Object(func(name []byte) error {
			key := string(name)
			v, err := s.Raw()
			if key == tasksExtension {
				found = true
			} else {
				kept[key] = v
			}
			return err
		})
		if found {
			out = appendObject(append(out, caps[done:from]...), kept)
			done = s.Offset()
		}
		return err
	})
	if done == 0 {
		return caps
	}
	return append(out, caps[done:]...)
}

func appendMembers(b []byte, name string, members map[string]json.RawMessage) []byte {
	if len(members) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendObject(b, members)
}

func appendObject(b []byte, members map[string]json.RawMessage) []byte {
	b = append(b, '{')
	for i, key := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendText(b, key), ':'), members[key]...)
	}
	return append(b, '}')
}

// maxInstructions is the longest text that is given to clients, in bytes; one that was
// longer ends with instructionsCut.
const (
	maxInstructions = 64 << 10
	instructionsCut = "\n\n(The instructions were longer and are cut here.)"
)

// instructions is a comma and the member of that name, or nil: what the providers say,
// each under its name where there are several.
func instructions(c *session.Catalog) []byte {
	var parts []string
	for _, p := range c.Profiles {
		if p.About.Instructions == "" {
			continue
		}
		name := strings.Join(strings.Fields(p.Title), " ") // a heading is one line
		if name == "" {
			name = string(p.Provider)
		}
		parts = append(parts, "# "+name+"\n\n"+p.About.Instructions)
	}
	if len(parts) == 1 {
		_, parts[0], _ = strings.Cut(parts[0], "\n\n")
	}
	text := strings.Join(parts, "\n\n")
	if text == "" {
		return nil
	}
	if len(text) > maxInstructions {
		text = strings.ToValidUTF8(text[:maxInstructions-len(instructionsCut)], "") + instructionsCut
	}
	return appendText([]byte(`,"instructions":`), text)
}
