package reveal

import (
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A model reads what people do not see: text in characters without a shape, or in
// comments of HTML, is a way to tell it what its user would not agree to.

// comment is how one begins in JSON.
var comment = regexp.MustCompile(`(<|\\u003[cC])!--`)

// Warnings tells which text in checked JSON people would not see; what has it
// begins the sentence.
func Warnings(what string, raw []byte) (warnings []string) {
	if r, ok := findHidden(raw); ok {
		warnings = append(warnings, fmt.Sprintf(what+" characters that people do not see (%U); models read them", r))
	}
	if comment.Match(raw) {
		warnings = append(warnings, what+" a comment of HTML, which people do not see; models read it")
	}
	return warnings
}

// findHidden finds the first character in checked JSON, escaped or not, that has no
// shape and no part in ordinary text. Joiners, variation selectors and direction marks
// have one: emoji, Persian and Hebrew need them, but not two of a sort in a row, which is
// how bytes are written in them.
func findHidden(raw []byte) (rune, bool) {
	before := 0
	for len(raw) > 0 {
		r, n := character(raw)
		sort := modifier(r)
		if isHidden(r) || sort != 0 && sort == before {
			return r, true
		}
		before = sort
		raw = raw[n:]
	}
	return 0, false
}

// modifier is the sort of a character without a shape that changes how its neighbours
// look, or 0.
func modifier(r rune) int {
	switch {
	case r == 0x200c, r == 0x200d: // joiners
		return 1
	case r == 0x200e, r == 0x200f, r == 0x061c: // direction marks
		return 2
	case 0xfe00 <= r && r <= 0xfe0f: // variation selectors
		return 3
	default:
		return 0
	}
}

// character is the first character of raw, which may be an escape, and how many bytes
// it takes.
func character(raw []byte) (r rune, n int) {
	if raw[0] != '\\' {
		return utf8.DecodeRune(raw)
	}
	switch raw[1] {
	case 'b', 'f':
		return '\b', 2
	case 'u':
		r = escaped(raw)
		if utf16.IsSurrogate(r) && raw[6] == '\\' && raw[7] == 'u' {
			return utf16.DecodeRune(r, escaped(raw[6:])), 12
		}
		return r, 6
	}
	return ' ', 2
}

// escaped is the code of an escape that begins raw.
func escaped(raw []byte) rune {
	code, _ := strconv.ParseUint(string(raw[2:6]), 16, 16) // what has been checked has four digits
	return rune(code)                                      //nolint:gosec // of 16 bits
}

func isHidden(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r':
		return false
	case r < ' ', 0x7f <= r && r < 0xa0: // control characters
	case r == 0x200b, 0x2060 <= r && r <= 0x2065, r == 0xfeff, r == 0x180e: // without width
	case r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0: // fillers
	case 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x206f: // that turn text around, or once did
	case 0xfff9 <= r && r <= 0xfffb, 0x1d173 <= r && r <= 0x1d17a: // annotations, of music too
	case 0xe0000 <= r && r <= 0xe0fff: // tags, further variation selectors, and what is kept for such
	default:
		return false
	}
	return true
}
