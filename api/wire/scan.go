package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// SyntaxError says where a message stops being JSON (RFC 8259).
type SyntaxError struct {
	Offset int    // in bytes from the start of the message
	Want   string // what should have been there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not JSON at byte %d: expected %s", e.Offset, e.Want)
}

// DepthError says that a message is nested too deeply.
type DepthError struct{ Max int }

func (e *DepthError) Error() string {
	return fmt.Sprintf("nested too deeply: at most %d levels", e.Max)
}

// MemberError says that a member of a message's envelope came twice, or in
// another case, so that two readers could understand the message differently.
type MemberError struct {
	Name string // as it should be
	Got  string // the second or variant one
}

func (e *MemberError) Error() string {
	if e.Name == e.Got {
		return fmt.Sprintf("member %q is given twice", e.Name)
	}
	return fmt.Sprintf("member %q must be written %q", e.Got, e.Name)
}

// ErrUTF8 says that a message is not UTF-8, so not JSON (RFC 8259, section 8.1).
var ErrUTF8 = errors.New("not valid UTF-8")

// Scanner walks over one JSON text once, front to back, checks its syntax on the
// way, and hands out the values it is asked for as sub-slices of the text. The
// values it passes over it only checks. After an error it must not be used.
type Scanner struct {
	data    []byte
	pos     int
	depth   int
	max     int
	trusted bool
}

// NewScanner checks that data is UTF-8 and returns a Scanner at its start. Values
// nested in more than maxDepth objects and arrays are a [DepthError].
func NewScanner(data []byte, maxDepth int) (Scanner, error) {
	if !utf8.Valid(data) {
		return Scanner{}, ErrUTF8
	}
	return Scanner{data: data, max: maxDepth}, nil
}

// Reread returns a Scanner at the start of data that a Scanner has passed over
// before: it does not check strings again, which is where the bytes are.
func Reread(data []byte) Scanner {
	return Scanner{data: data, max: math.MaxInt, trusted: true}
}

func (s *Scanner) fail(want string) error { return &SyntaxError{s.pos, want} }

func (s *Scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// Kind returns the first byte of the next value: one of {["tfn, a minus or a
// digit where there is a value; zero at the end.
func (s *Scanner) Kind() byte {
	s.space()
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// End checks that nothing but white space is left.
func (s *Scanner) End() error {
	s.space()
	if s.pos != len(s.data) {
		return s.fail("the end of the message")
	}
	return nil
}

// Raw passes over the next value and returns its bytes.
func (s *Scanner) Raw() (json.RawMessage, error) {
	s.space()
	start := s.pos
	if err := s.skip(); err != nil {
		return nil, err
	}
	return s.data[start:s.pos:s.pos], nil
}

// Offset is how many bytes have been passed over.
func (s *Scanner) Offset() int { return s.pos }

// Object walks over the next value, which must be an object. For each member it
// calls member with the name, unescaped; member must pass over the value, by
// Raw, Object or Array.
func (s *Scanner) Object(member func(name []byte) error) error {
	if s.Kind() != '{' {
		return s.fail("an object")
	}
	if err := s.enter(); err != nil {
		return err
	}
	if s.Kind() == '}' {
		return s.leave()
	}
	for {
		if s.Kind() != '"' {
			return s.fail("a member's name")
		}
		start := s.pos + 1
		escaped, err := s.skipString()
		if err != nil {
			return err
		}
		name := s.data[start : s.pos-1]
		if escaped {
			if name, err = unescape(s.data[start-1 : s.pos]); err != nil {
				return err
			}
		}
		if s.Kind() != ':' {
			return s.fail("a colon")
		}
		s.pos++
		if err := member(name); err != nil {
			return err
		}
		switch s.Kind() {
		case ',':
			s.pos++
		case '}':
			return s.leave()
		default:
			return s.fail("a comma or a closing brace")
		}
	}
}

// Array walks over the next value, which must be an array. It calls element
// before each element; element must pass over it.
func (s *Scanner) Array(element func() error) error {
	if s.Kind() != '[' {
		return s.fail("an array")
	}
	if err := s.enter(); err != nil {
		return err
	}
	if s.Kind() == ']' {
		return s.leave()
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.Kind() {
		case ',':
			s.pos++
		case ']':
			return s.leave()
		default:
			return s.fail("a comma or a closing bracket")
		}
	}
}

func (s *Scanner) enter() error {
	s.pos++
	s.depth++
	if s.depth > s.max {
		return &DepthError{s.max}
	}
	return nil
}

func (s *Scanner) leave() error {
	s.pos++
	s.depth--
	return nil
}

// skip passes over one value.
func (s *Scanner) skip() error {
	switch c := s.Kind(); c {
	case '{':
		return s.Object(s.skipMember)
	case '[':
		return s.Array(s.skip)
	case '"':
		_, err := s.skipString()
		return err
	case 't':
		return s.skipWord("true")
	case 'f':
		return s.skipWord("false")
	case 'n':
		return s.skipWord("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return s.skipNumber()
		}
		return s.fail("a value")
	}
}

func (s *Scanner) skipMember([]byte) error { return s.skip() }

func (s *Scanner) skipWord(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.fail(word)
	}
	s.pos += len(word)
	return nil
}

func (s *Scanner) skipNumber() error {
	if s.peek() == '-' {
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
	case '1' <= c && c <= '9':
		s.skipDigits()
	default:
		return s.fail("a digit")
	}
	if s.peek() == '.' {
		s.pos++
		if s.skipDigits() == 0 {
			return s.fail("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if s.skipDigits() == 0 {
			return s.fail("a digit")
		}
	}
	return nil
}

func (s *Scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *Scanner) skipDigits() (n int) {
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
		n++
	}
	return n
}

const (
	lows   = 0x0101010101010101
	highs  = 0x8080808080808080
	quotes = lows * '"'
	slants = lows * '\\'
	blanks = lows * ' '
)

// special has a byte's high bit set where that byte of x is a quote, a backslash
// or below 0x20. False alarms come only behind a true one. The other bits mean
// nothing.
func special(x uint64) uint64 {
	return (((x ^ quotes) - lows) | ((x ^ slants) - lows) | (x - blanks)) &^ x
}

// skipString passes over a string and tells whether it has escapes. A payload is
// mostly long strings, so 32 bytes are looked at in one step.
func (s *Scanner) skipString() (escaped bool, err error) {
	s.pos++
	if s.trusted {
		return s.skipTrusted(), nil
	}
	for {
		for b := s.data[s.pos:]; len(b) >= 32; b = b[32:] {
			if (special(binary.LittleEndian.Uint64(b))|special(binary.LittleEndian.Uint64(b[8:]))|
				special(binary.LittleEndian.Uint64(b[16:]))|special(binary.LittleEndian.Uint64(b[24:])))&highs != 0 {
				break
			}
			s.pos += 32
		}
		for s.pos+8 <= len(s.data) && special(binary.LittleEndian.Uint64(s.data[s.pos:]))&highs == 0 {
			s.pos += 8
		}
		if s.pos == len(s.data) {
			return escaped, s.fail("the end of a string")
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.skipEscape(); err != nil {
				return escaped, err
			}
		case c < 0x20:
			return escaped, s.fail("no control character")
		default:
			s.pos++
		}
	}
}

// skipTrusted passes over a string that has been checked: it only looks for the
// quote that ends it.
func (s *Scanner) skipTrusted() (escaped bool) {
	for {
		i := bytes.IndexByte(s.data[s.pos:], '"')
		slants := 0
		for slants < i && s.data[s.pos+i-1-slants] == '\\' {
			slants++
		}
		escaped = escaped || slants > 0 || bytes.IndexByte(s.data[s.pos:s.pos+i], '\\') >= 0
		s.pos += i + 1
		if slants%2 == 0 {
			return escaped
		}
	}
}

func (s *Scanner) skipEscape() error {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			c := s.peek() | 0x20
			if !('0' <= s.peek() && s.peek() <= '9' || 'a' <= c && c <= 'f') {
				return s.fail("a hexadecimal digit")
			}
			s.pos++
		}
		return nil
	}
	return s.fail("an escape")
}

// unescape is the text of a JSON string that has been checked.
func unescape(quoted []byte) ([]byte, error) {
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// Text returns the text of a raw JSON string; false when raw is no string.
func Text(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	text, err := unescape(raw)
	return string(text), err == nil
}

// Members checks the names of an envelope's members: those it lists may come
// once, and in no other case.
type Members struct {
	names []string
	seen  uint32
}

// NewMembers lists the names that matter, at most 32.
func NewMembers(names ...string) Members { return Members{names: names} }

// Check returns the index of name in the list, or -1 for a name that does not
// matter. A [MemberError] for one that was there before or differs only in case.
func (m *Members) Check(name []byte) (int, error) {
	for i, n := range m.names {
		if string(name) == n {
			if m.seen&(1<<i) != 0 {
				return i, &MemberError{n, n}
			}
			m.seen |= 1 << i
			return i, nil
		}
	}
	for _, n := range m.names {
		if bytes.EqualFold(name, []byte(n)) {
			return -1, &MemberError{n, string(name)}
		}
	}
	return -1, nil
}
