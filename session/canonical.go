package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
)

// Canonical returns JSON that has been checked in a form that does not depend on the
// order of members, on white space outside of strings, or on how a string's characters
// are escaped. Everything else is kept: members that repeat, in their order, and numbers
// as they are written. It is for comparing: control characters in it are escaped as JSON
// does not.
func Canonical(raw []byte) []byte {
	c := canon{raw: raw}
	return c.value(make([]byte, 0, len(raw)))
}

// Hash is the SHA-256 of the definition's canonical form.
func (t *Tool) Hash() [32]byte { return sha256.Sum256(Canonical(t.Definition)) }

// alike tells whether whoever reads the definitions finds the same in both.
func (t *Tool) alike(u *Tool) bool {
	return bytes.Equal(t.Definition, u.Definition) || bytes.Equal(Canonical(t.Definition), Canonical(u.Definition))
}

// canon reads what has been checked: its nesting is bounded, its strings end.
type canon struct {
	raw []byte
	at  int
}

// next skips white space and returns the byte that follows; 0 at the end.
func (c *canon) next() byte {
	for ; c.at < len(c.raw); c.at++ {
		switch b := c.raw[c.at]; b {
		case ' ', '\t', '\n', '\r':
		default:
			return b
		}
	}
	return 0
}

// value appends the value that begins at the next byte.
func (c *canon) value(b []byte) []byte {
	switch c.next() {
	case '{':
		return c.object(b)
	case '[':
		c.at++
		b = append(b, '[')
		for n := 0; c.more(']'); n++ {
			if n > 0 {
				b = append(b, ',')
			}
			b = c.value(b)
		}
		return append(b, ']')
	case '"':
		return append(b, c.text()...)
	case 0:
		return b
	default:
		start := c.at
		c.at++
		for c.at < len(c.raw) && !strings.ContainsRune(" \t\n\r,]}", rune(c.raw[c.at])) {
			c.at++
		}
		return append(b, c.raw[start:c.at]...)
	}
}

// more goes on to the next element, or past the end of what it stands in.
func (c *canon) more(end byte) bool {
	switch b := c.next(); b {
	case ',':
		c.at++
	case end, 0:
		c.at++
		return false
	}
	return true
}

func (c *canon) object(b []byte) []byte {
	type member struct{ name, value []byte }
	var members []member
	c.at++
	for c.more('}') {
		c.next()
		name := c.text()
		if c.next() == ':' {
			c.at++
		}
		members = append(members, member{name, c.value(nil)})
	}
	slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	b = append(b, '{')
	for n, m := range members {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, m.name...), ':'), m.value...)
	}
	return append(b, '}')
}

// text reads the string that begins here. Escapes are undone where that is possible: not
// those of half a surrogate pair, which all would become the same.
func (c *canon) text() []byte {
	start := c.at
	for c.at++; c.at < len(c.raw) && c.raw[c.at] != '"'; c.at++ {
		if c.raw[c.at] == '\\' {
			c.at++
		}
	}
	c.at = min(c.at+1, len(c.raw))
	raw := c.raw[start:c.at]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || strings.ContainsRune(text, '\uFFFD') {
		return raw
	}
	plain := append(make([]byte, 0, len(raw)), '"')
	for _, b := range []byte(text) {
		switch {
		case b == '"', b == '\\':
			plain = append(plain, '\\', b)
		case b < ' ':
			plain = append(append(plain, '\\'), b+'@') // no other text has it: \A is no escape
		default:
			plain = append(plain, b)
		}
	}
	return append(plain, '"')
}
