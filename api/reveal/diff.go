package reveal

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// Change is one value that differs between two definitions. Old and New are JSON in
// which [Text] has made everything visible; the empty text means that there is none.
type Change struct {
	Path string `json:"path" doc:"Which value: a JSON Pointer (RFC 6901), empty for the whole."`
	Old  string `json:"old,omitempty" doc:"What it was, as JSON in which characters without a shape are escaped. Absent where there was none."`
	New  string `json:"new,omitempty" doc:"What it is now, likewise."`
}

// maxChanges is how many values are told apart; beyond it the whole is one change.
const maxChanges = 200

// Diff tells what has changed from one definition, checked JSON, to another: values
// within objects one by one, in the order of their paths. The order of members and white
// space are no change. old may be nil.
func Diff(old, fresh []byte) []Change {
	if old == nil {
		old = []byte("{}")
	}
	d := differ{}
	d.value("", old, fresh)
	if len(d.changes) > maxChanges {
		return []Change{{Old: Text(old), New: Text(fresh)}}
	}
	slices.SortStableFunc(d.changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) value(path string, old, fresh []byte) {
	if len(d.changes) > maxChanges || old != nil && fresh != nil && bytes.Equal(session.Canonical(old), session.Canonical(fresh)) {
		return
	}
	was, ok := members(old)
	is, alsoOK := members(fresh)
	if !ok || !alsoOK {
		d.changes = append(d.changes, Change{path, Text(old), Text(fresh)})
		return
	}
	for name, v := range was {
		d.value(path+pointer(name), v, is[name])
	}
	for name, v := range is {
		if _, ok := was[name]; !ok {
			d.value(path+pointer(name), nil, v)
		}
	}
}

// members are those of an object whose members have distinct names.
func members(raw []byte) (map[string][]byte, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	all := map[string][]byte{}
	distinct := true
	s := wire.Reread(raw)
	err := s.Object(func(name []byte) error {
		v, err := s.Raw()
		_, again := all[string(name)]
		distinct = distinct && !again
		all[string(name)] = v
		return err
	})
	return all, distinct && err == nil
}

// pointer is one step of a JSON Pointer, visible.
func pointer(name string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(Text([]byte(name)))
}

// Text is checked JSON on one line in which every character can be seen: what has no
// shape of its own is escaped as JSON does.
func Text(raw []byte) string {
	var b strings.Builder
	b.Grow(len(raw))
	for _, r := range string(raw) {
		switch {
		case r == '\n', r == '\r', r == '\t': // between values: within strings they are escaped
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			escape(&b, 0xd800+r>>10)
			escape(&b, 0xdc00+r&0x3ff)
		default:
			escape(&b, r)
		}
	}
	return b.String()
}

func escape(b *strings.Builder, r rune) {
	digits := strconv.FormatInt(int64(r), 16)
	b.WriteString(`\u` + strings.Repeat("0", 4-len(digits)) + digits)
}

// Line is a Diff on one line of at most n bytes, for a log.
func Line(changes []Change, n int) string {
	var b strings.Builder
	for i, c := range changes {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(c.Path + ": " + short(c.Old) + " → " + short(c.New))
		if b.Len() > n {
			return strings.ToValidUTF8(b.String()[:n], "") + "…"
		}
	}
	return b.String()
}

func short(text string) string {
	const most = 400
	switch {
	case text == "":
		return "nothing"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + "…"
	default:
		return text
	}
}
