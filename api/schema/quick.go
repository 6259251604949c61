package schema

import (
	"encoding/json"
	"slices"
	"strings"

	"mcpbridge/api/wire"
)

// quick is the part of a schema that can be checked on raw bytes: most tools use
// no more than types, properties, required and enums of strings. It only ever says
// yes; what it cannot judge, or would refuse, is the library's to judge. A call of
// 100 KB is checked without a copy, a small one without an allocation.
type quick struct {
	kinds      uint8 // of the value; 0 takes any
	properties map[string]*quick
	required   map[string]uint64 // a bit for each name
	all        uint64            // every bit of required
	closed     bool              // no other properties
	items      *quick            // nil takes any
	enum       []string          // raw JSON strings; nil takes any
}

// The kinds of value.
const (
	isObject uint8 = 1 << iota
	isArray
	isString
	isNumber
	isInteger
	isBoolean
	isNull
)

var kindNames = map[string]uint8{
	"object": isObject, "array": isArray, "string": isString, "number": isNumber,
	"integer": isInteger, "boolean": isBoolean, "null": isNull,
}

// annotation tells whether a keyword never refuses a value, and is given as it must
// be (JSON Schema 2020-12 validation, section 9, and core, section 8.3).
func annotation(keyword string, v any) (ok bool) {
	switch keyword {
	case "title", "description", "$comment":
		_, ok = v.(string)
	case "deprecated", "readOnly", "writeOnly":
		_, ok = v.(bool)
	case "examples":
		_, ok = v.([]any)
	case "default":
		ok = true
	default:
		ok = strings.HasPrefix(keyword, "x-")
	}
	return ok
}

const dialect202012 = "https://json-schema.org/draft/2020-12/schema"

// newQuick reads a decoded schema; nil when it says more than a quick can check, or
// says it wrongly: one that has a quick keeps the rules of its dialect.
func newQuick(doc any) *quick {
	if doc == true {
		return &quick{}
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	q := &quick{}
	for keyword, v := range m {
		if !q.keyword(keyword, v) {
			return nil
		}
	}
	return q
}

func (q *quick) keyword(keyword string, v any) (ok bool) {
	switch keyword {
	case "$schema":
		return v == dialect202012
	case "type":
		q.kinds, ok = kinds(v)
		return ok
	case "properties":
		m, ok := v.(map[string]any)
		if !ok {
			return false
		}
		q.properties = make(map[string]*quick, len(m))
		for name, sub := range m {
			if q.properties[name] = newQuick(sub); q.properties[name] == nil {
				return false
			}
		}
		return true
	case "required":
		names, ok := v.([]any)
		if !ok || len(names) > 64 {
			return false
		}
		q.required = make(map[string]uint64, len(names))
		for i, n := range names {
			name, ok := n.(string)
			if !ok || q.required[name] != 0 {
				return false
			}
			q.required[name] = 1 << i
			q.all |= 1 << i
		}
		return true
	case "additionalProperties":
		closed, ok := v.(bool)
		q.closed = !closed
		return ok
	case "items":
		q.items = newQuick(v)
		return q.items != nil
	case "enum":
		return q.readEnum(v)
	default:
		return annotation(keyword, v)
	}
}

func kinds(v any) (all uint8, ok bool) {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	for _, k := range list {
		name, _ := k.(string)
		if kindNames[name] == 0 || all&kindNames[name] != 0 {
			return 0, false
		}
		all |= kindNames[name]
	}
	return all, len(list) > 0
}

func (q *quick) readEnum(v any) bool {
	list, _ := v.([]any)
	for _, e := range list {
		text, ok := e.(string)
		if !ok {
			return false
		}
		raw, err := json.Marshal(text)
		if err != nil {
			return false
		}
		q.enum = append(q.enum, string(raw)) // one written in another way is not found, so not judged
	}
	return len(list) > 0
}

// fits tells whether the next value surely fits. After false the scanner is
// somewhere inside it.
func (q *quick) fits(s *wire.Scanner) bool {
	switch s.Kind() {
	case '{':
		return q.takes(isObject) && q.enum == nil && q.object(s)
	case '[':
		return q.takes(isArray) && q.enum == nil && q.array(s)
	}
	raw, err := s.Raw()
	if err != nil {
		return false
	}
	if q.enum != nil && !q.listed(raw) {
		return false
	}
	switch raw[0] {
	case '"':
		return q.takes(isString)
	case 't', 'f':
		return q.takes(isBoolean)
	case 'n':
		return q.takes(isNull)
	default:
		if q.takes(isNumber) {
			return true
		}
		for _, c := range raw {
			if c == '.' || c == 'e' || c == 'E' {
				return false // 1.0 is an integer too; the library knows
			}
		}
		return q.takes(isInteger)
	}
}

func (q *quick) takes(kind uint8) bool { return q.kinds == 0 || q.kinds&kind != 0 }

func (q *quick) listed(raw []byte) bool {
	return slices.Contains(q.enum, string(raw))
}

func (q *quick) object(s *wire.Scanner) bool {
	var seen uint64
	err := s.Object(func(name []byte) error {
		seen |= q.required[string(name)]
		sub, ok := q.properties[string(name)]
		switch {
		case ok:
			if !sub.fits(s) {
				return errUnsure
			}
			return nil
		case q.closed:
			return errUnsure
		default:
			_, err := s.Raw()
			return err
		}
	})
	return err == nil && seen == q.all
}

func (q *quick) array(s *wire.Scanner) bool {
	return s.Array(func() error {
		if q.items == nil {
			_, err := s.Raw()
			return err
		}
		if !q.items.fits(s) {
			return errUnsure
		}
		return nil
	}) == nil
}
