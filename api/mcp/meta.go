package mcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"mcpbridge/api/shape"
	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// Some clients read the list of tools once and ignore list_changed: what a provider
// registers later does not exist for them. With ?meta=1 in the URL two tools of the
// bridge's own are listed before the providers' (and with ?meta=only instead of them),
// by which a model finds and calls whatever is there now.

const (
	metaList = "bridge_list_tools"
	metaCall = "bridge_call_tool"
)

// A page of bridge_list_tools has at most this many tools, and ends before they have
// more than metaPageBytes: a model reads all of it.
const (
	metaPageTools = 50
	metaPageBytes = 128 << 10
)

// metaTools are the definitions, in the order in which they are listed.
var metaTools = []struct{ name, definition string }{
	{metaCall, `{"name":"` + metaCall + `","title":"Call a tool","description":"Calls one of the tools that ` + metaList +
		` lists, and answers what that tool answers.","inputSchema":{"type":"object","properties":{` +
		`"name":{"type":"string","description":"The tool's name, as ` + metaList + ` has it."},` +
		`"arguments":{"type":"object","properties":{},"description":"The tool's arguments, as its inputSchema says."}},` +
		`"required":["name"]}}`},
	{metaList, `{"name":"` + metaList + `","title":"List tools","description":"Lists the tools that are there now, with their ` +
		`descriptions and schemas. They come and go: list again when one is not there. Call them by ` + metaCall +
		`.","inputSchema":{"type":"object","properties":{` +
		`"filter":{"type":"string","description":"Words that a tool's name, title or description must all have, in any letter case."},` +
		`"cursor":{"type":"string","description":"The nextCursor of the page before."}}},` +
		`"outputSchema":{"type":"object","properties":{"tools":{"type":"array","items":{"type":"object"}},` +
		`"nextCursor":{"type":"string"}},"required":["tools"]},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`},
}

// metaWanted tells whether the URL asks for the bridge's own tools, and for them alone.
func (x *exchange) metaWanted() (wanted, only bool) {
	if x.r.URL.RawQuery == "" {
		return false, false
	}
	v := x.r.URL.Query().Get("meta")
	return v == "1" || v == "only", v == "only"
}

// metaPage are the definitions of the bridge's own tools that come before a page of
// tools/list, and where the page then starts. A provider's tool of the same name has
// the name. Most clients read the first page alone, so that is where they are.
func (x *exchange) metaPage(c *session.List, from int) (own []byte, start int) {
	wanted, only := x.metaWanted()
	if !wanted {
		return nil, from
	}
	if only {
		from = len(c.Offers)
	}
	if x.q.cursor != nil {
		return nil, from
	}
	for _, m := range metaTools {
		if c.Find(m.name) == nil {
			own = append(append(own, x.profile().Tool([]byte(m.definition))...), ',')
		}
	}
	if from == len(c.Offers) {
		own = bytes.TrimSuffix(own, []byte{','})
	}
	return own, from
}

// metaTool answers a call of one of the bridge's own tools. False when the call is
// none, or not where the URL asks for them.
func (x *exchange) metaTool(s *session.Session) bool {
	if x.through || x.q.name != metaList && x.q.name != metaCall {
		return false
	}
	if wanted, _ := x.metaWanted(); !wanted {
		return false
	}
	a, err := readMeta(x.q.name, x.q.arguments)
	if err != nil {
		x.told("The arguments do not fit the tool's input schema: " + err.Error())
		return true
	}
	c := s.Catalog().Of(session.KindTool)
	if x.q.name == metaList {
		x.listForModel(c, a)
		return true
	}
	if c.Find(a.name) == nil { // the model chose the name, and should read that it is wrong
		x.told("There is no tool " + clip(a.name) + " here now; " + metaList + " lists what there is.")
		return true
	}
	x.through = true
	x.q.name, x.q.arguments = a.name, a.arguments
	x.call()
	return true
}

// metaArguments are the arguments of one of the bridge's own tools.
type metaArguments struct {
	filter, name      string
	cursor, arguments json.RawMessage // nil when absent
}

// metaError is a member of the wrong type.
type metaError string

func (e metaError) Error() string { return string(e) }

// readMeta reads arguments that have been checked as JSON. A member that is null
// counts as absent: some models fill in all that there are.
func readMeta(tool string, raw json.RawMessage) (a metaArguments, err error) {
	wanted := []string{"filter", "cursor"}
	if tool == metaCall {
		wanted = []string{"name", "arguments"}
	}
	named := false
	if raw != nil {
		names := wire.NewMembers(wanted...)
		s := wire.Reread(raw)
		err = s.Object(func(name []byte) error {
			i, err := names.Check(name)
			if err != nil {
				return err
			}
			v, err := s.Raw()
			if err != nil || i < 0 || string(v) == "null" {
				return err
			}
			text, isText := wire.Text(v)
			switch wanted[i] {
			case "arguments":
				if v[0] != '{' {
					return metaError("at /arguments: must be an object")
				}
				a.arguments = v
				return nil
			case "filter":
				a.filter = text
			case "cursor":
				a.cursor = v
			case "name":
				a.name, named = text, isText
			}
			if !isText {
				return metaError("at /" + wanted[i] + ": must be a string")
			}
			return nil
		})
	}
	if err == nil && tool == metaCall && !named {
		err = metaError(`"name" is missing`)
	}
	return a, err
}

// listForModel answers bridge_list_tools.
func (x *exchange) listForModel(c *session.List, a metaArguments) {
	if p := x.profile(); !p.Plain() {
		c = c.Shaped(p, p.Tool)
	}
	from := 0
	if a.cursor != nil {
		name, ok := readCursor(a.cursor)
		if !ok {
			x.told("The cursor is not one of this bridge's; leave it out for the first page.")
			return
		}
		from = c.After(name, false)
	}
	words := strings.Fields(strings.ToLower(a.filter))
	page := []byte(`{"tools":[`)
	count, last, next := 0, "", ""
	for i := from; i < len(c.Offers); i++ {
		d, matches := forModel(c.JSON(i, i+1), words)
		if !matches {
			continue
		}
		if count == metaPageTools || count > 0 && len(page)+len(d) > metaPageBytes {
			next = cursor(last)
			break
		}
		if count > 0 {
			page = append(page, ',')
		}
		page = append(page, d...)
		count, last = count+1, c.Offers[i].Tool.Exposed
	}
	page = append(page, ']')
	if next != "" {
		page = appendText(append(page, `,"nextCursor":`...), next)
	}
	page = append(page, '}')
	content := append(appendText([]byte(`"content":[{"type":"text","text":`), string(page)), "}]"...)
	if x.era() >= shape.Annotated && !x.rawWanted() {
		x.result(content)
		return
	}
	x.result(content, []byte(`,"structuredContent":`), page)
}

// modelMembers are the members of a definition that a model has a use for.
var modelMembers = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations"}

// forModel is what a model needs of a checked definition, and whether it has all the
// words, which are in lower case.
func forModel(definition []byte, words []string) (out []byte, matches bool) {
	out = []byte{'{'}
	var text strings.Builder
	s := wire.Reread(definition)
	_ = s.Object(func(name []byte) error { // what has been checked has no errors
		member := string(name)
		v, err := s.Raw()
		if !slices.Contains(modelMembers, member) {
			return err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), member...), `":`...), v...)
		if said, ok := wire.Text(v); ok && len(words) > 0 {
			text.WriteString(strings.ToLower(said) + "\n")
		}
		return err
	})
	for _, word := range words {
		if !strings.Contains(text.String(), word) {
			return nil, false
		}
	}
	return append(out, '}'), true
}
