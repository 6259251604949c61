package mcp

import (
	"encoding/base64"
	"strconv"
	"strings"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// A page of tools/list ends with this many tools, or before the definitions have
// more than pageBytes. Most clients read only the first page, so it is large.
const (
	pageTools = 500
	pageBytes = 2 << 20
)

// listTTL is how long clients may keep a list, in milliseconds: short, since
// providers come and go.
const listTTL = 1000

// cacheHints are the members that every cacheable result of 2026-07-28 carries.
var cacheHints = []byte(`,"ttlMs":` + strconv.Itoa(listTTL) + `,"cacheScope":"private"`)

// listMembers are the members of list results.
var listMembers = [session.NumKinds]string{"tools", "prompts", "resources", "resourceTemplates"}

// list answers tools/list, prompts/list, resources/list or resources/templates/list.
func (x *exchange) list(kind session.Kind) {
	s, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	c := s.Catalog().Of(kind)
	if p := x.profile(); kind == session.KindTool && !p.Plain() {
		c = c.Shaped(p, p.Tool)
	}
	from := 0
	if x.q.cursor != nil {
		name, ok := readCursor(x.q.cursor)
		if !ok {
			x.fail(&rpcError{status: 200, code: codeInvalidParams, message: "the cursor is not one of this bridge's"})
			return
		}
		from = c.After(name, false)
	}
	var own []byte
	if kind == session.KindTool {
		own, from = x.metaPage(c, from)
	}
	to := page(c, from)
	pieces := [][]byte{[]byte(`"` + listMembers[kind] + `":[`), own, c.JSON(from, to), []byte(`]`), nil, nil}
	if to < len(c.Offers) {
		pieces[4] = []byte(`,"nextCursor":"` + cursor(c.Offers[to-1].Tool.Exposed) + `"`)
	}
	if x.modern {
		pieces[5] = cacheHints
	}
	x.result(pieces...)
}

// page returns where the page that starts at an offer ends.
func page(c *session.List, from int) int {
	to := min(from+pageTools, len(c.Offers))
	for to > from+1 && len(c.JSON(from, to)) > pageBytes {
		to = from + (to-from+1)/2
	}
	return to
}

// cursorMark begins every cursor, so that another's is told from ours.
const cursorMark = "after:"

// cursor is where the next page starts: behind a name, so that it holds while
// tools come and go.
func cursor(name string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorMark + name))
}

func readCursor(raw []byte) (string, bool) {
	text, ok := wire.Text(raw)
	if !ok {
		return "", false
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(plain), cursorMark)
}
