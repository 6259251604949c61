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
// have one: emoji, Persian and Hebrew need them.
func findHidden(raw []byte) (rune, bool) {
	for len(raw) > 0 {
		r, n := character(raw)
		if isHidden(r) {
			return r, true
		}
		raw = raw[n:]
	}
	return 0, false
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
	case r == 0x200b, 0x2060 <= r && r <= 0x2064, r == 0xfeff: // without width
	case 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069: // that turn text around
	case 0xe0000 <= r && r <= 0xe007f: // tags
	default:
		return false
	}
	return true
}
