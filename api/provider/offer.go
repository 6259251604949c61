package provider

import (
	"bytes"
	"encoding/json"
	"fmt"

	"mcpbridge/api/reveal"
	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// kind is what a list of an MCP server holds.
type kind struct {
	method     string // that lists it
	member     string // of the result
	name       string // the member that names one
	capability string // that a server declares with it
	changed    string // the notification that the list has changed
}

var kinds = [session.NumKinds]kind{
	session.KindTool:     {"tools/list", "tools", "name", "tools", "notifications/tools/list_changed"},
	session.KindPrompt:   {"prompts/list", "prompts", "name", "prompts", "notifications/prompts/list_changed"},
	session.KindResource: {"resources/list", "resources", "uri", "resources", "notifications/resources/list_changed"},
	session.KindTemplate: {"resources/templates/list", "resourceTemplates", "uriTemplate", "resources", "notifications/resources/list_changed"},
}

// readOffer checks one element of a list and makes an offer of it, with memory of its
// own, and what its provider should know. The name is returned also with an error, where
// there is one.
func readOffer(k session.Kind, raw json.RawMessage, l session.Limits) (t session.Tool, warnings []string, err error) {
	if k == session.KindTool {
		return readTool(raw, l)
	}
	if t, err = readOther(k, raw, l); err == nil {
		warnings = reveal.Warnings("the definition has", t.Definition)
	}
	return t, warnings, err
}

// readOther is readOffer for what is no tool.
func readOther(k session.Kind, raw json.RawMessage, l session.Limits) (session.Tool, error) {
	t := session.Tool{Kind: k}
	if raw[0] != '{' {
		return t, &toolError{"bad_offer", "an offer must be an object"}
	}
	large := len(raw) > l.ToolBytes
	if !large {
		raw = bytes.Clone(raw)
	}
	s := wire.Reread(raw)
	known := wire.NewMembers(kinds[k].name)
	err := s.Object(func(name []byte) error {
		i, err := known.Check(name)
		if err != nil {
			return &toolError{"bad_offer", err.Error()}
		}
		v, err := s.Raw()
		if i == 0 {
			t.NameAt, t.NameEnd = s.Offset()-len(v), s.Offset()
			t.Name, _ = wire.Text(v)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case t.Name == "":
		return t, &toolError{"bad_name", fmt.Sprintf("member %q must be a string of 1 character or more", kinds[k].name)}
	case large:
		return t, &toolError{"too_large", fmt.Sprintf("the definition has %d bytes; at most %d are taken", len(raw), l.ToolBytes)}
	}
	t.Definition = raw
	return t, nil
}
