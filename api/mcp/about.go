package mcp

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"mcpbridge/session"
)

// ownCapabilities is what the bridge can do, whoever is connected to it, so that
// clients that keep it are not misled.
const ownCapabilities = `"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}`

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
	// Tasks are the bridge's own: a provider's would be known to it alone.
	delete(extensions, tasksExtension)
	if modern {
		extensions[tasksExtension] = json.RawMessage("{}")
	}
	b = appendMembers(b, "extensions", extensions)
	b = appendMembers(b, "experimental", experimental)
	return append(b, '}')
}

func appendMembers(b []byte, name string, members map[string]json.RawMessage) []byte {
	if len(members) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":{`...)
	for i, key := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendText(b, key), ':'), members[key]...)
	}
	return append(b, '}')
}

// maxInstructions is the longest text that is given to clients, in bytes.
const maxInstructions = 64 << 10

// instructions is a comma and the member of that name, or nil: what the providers say,
// each under its name where there are several.
func instructions(c *session.Catalog) []byte {
	var parts []string
	for _, p := range c.Profiles {
		if p.About.Instructions == "" {
			continue
		}
		name := p.Title
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
		text = strings.ToValidUTF8(text[:maxInstructions], "") + "\n\n(The instructions were longer and are cut here.)"
	}
	return appendText([]byte(`,"instructions":`), text)
}
