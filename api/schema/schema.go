// Package schema checks arguments against the JSON Schemas that providers
// declare: 2020-12 unless $schema names an older draft, nothing ever loaded from
// a file or the network (MCP 2026-07-28 basic, "JSON Schema Usage").
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"mcpbridge/api/wire"
)

// Schema is a schema that values can be checked against. It may be used by many at
// once. Where the quick check is enough, which is most of the time, the library's
// form of it, some kilobytes, is made only for a value that may be refused.
type Schema struct {
	raw      json.RawMessage
	quick    *quick // nil where it cannot help
	once     sync.Once
	compiled *jsonschema.Schema
}

// ErrUnsupported says that a schema may be valid, but is one that the bridge
// cannot check arguments with: it refers to another document, or is of a dialect
// that is not known.
var ErrUnsupported = errors.New("schema cannot be used for checking")

// sealed is the loader of a schema's references: it has nothing.
type sealed struct{}

// errUnsure stops a quick check.
var errUnsure = errors.New("unsure")

var errSealed = errors.New("references to other documents are not followed")

func (sealed) Load(string) (any, error) { return nil, errSealed }

// anything stands for a pattern that Go's RE2 cannot compile: what it would say
// is unknown, so it says nothing against a value.
type anything string

func (anything) MatchString(string) bool { return true }
func (p anything) String() string        { return string(p) }

func compilePattern(p string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(p)
	if err != nil {
		return anything(p), nil //nolint:nilerr // the tool stays callable
	}
	return re, nil
}

// formats are those that drafts before 2019-09 leave to the checker: it says nothing
// against a value, as in the drafts since, where a format describes. Whoever wrote the
// schema may take more than the library's idea of an URI or a date.
var formats = []string{
	"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "iri", "iri-reference", "json-pointer", "period",
	"regex", "relative-json-pointer", "semver", "time", "uri", "uri-reference", "uri-template", "uuid",
}

func anyFormat(any) error { return nil }

const location = "mem:///schema"

// Compile checks one raw schema, which a wire.Scanner has checked as JSON.
// [ErrUnsupported] for one that the bridge cannot use; any other error says what is
// wrong with the schema. The Schema keeps raw's memory, which must not change.
func Compile(raw json.RawMessage) (*Schema, error) {
	doc, err := value(raw)
	if err != nil {
		return nil, err
	}
	if q := newQuick(doc); q != nil {
		return &Schema{raw: raw, quick: q}, nil
	}
	compiled, err := compile(doc)
	return &Schema{raw: raw, compiled: compiled}, err
}

func compile(doc any) (s *jsonschema.Schema, err error) {
	defer func() {
		if r := recover(); r != nil { // a bug of the library must not harm the bridge
			s, err = nil, fmt.Errorf("%w: %v", ErrUnsupported, r)
		}
	}()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(sealed{})
	c.UseRegexpEngine(compilePattern)
	for _, name := range formats {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: anyFormat})
	}
	if err := c.AddResource(location, doc); err != nil {
		return nil, unsupported(err)
	}
	if s, err = c.Compile(location); err != nil {
		return nil, unsupported(err)
	}
	return s, nil
}

// library is the library's form of the schema; nil for one that it cannot compile.
func (s *Schema) library() *jsonschema.Schema {
	s.once.Do(func() {
		if s.compiled == nil {
			if doc, err := value(s.raw); err == nil {
				s.compiled, _ = compile(doc) // what it cannot compile is not checked
			}
		}
	})
	return s.compiled
}

// unsupported tells a schema that breaks its own dialect's rules from one that
// the bridge has no means to compile.
func unsupported(err error) error {
	if bad, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return describe(bad.Err, "at ")
	}
	return fmt.Errorf("%w: %s", ErrUnsupported, strings.ReplaceAll(err.Error(), location, ""))
}

// Validate checks a raw value, which a wire.Scanner has checked; nil stands for {}. The error
// names the path of the first faults and what was expected there; it holds no
// part of the value but names of members.
func (s *Schema) Validate(raw json.RawMessage) (err error) {
	defer func() {
		if r := recover(); r != nil { // what cannot be judged is not refused
			err = nil
		}
	}()
	var v any = map[string]any{}
	if raw != nil {
		if scanner := wire.Reread(raw); s.quick != nil && s.quick.fits(&scanner) {
			return nil
		}
		if v, err = value(raw); err != nil {
			return err
		}
	}
	if library := s.library(); library != nil {
		return describe(library.Validate(v), "at ")
	}
	return nil
}

// maxFaults is how many faults one error names.
const maxFaults = 5

var printer = message.NewPrinter(language.English)

// describe turns the library's tree of causes into one line.
func describe(err error, at string) error {
	if err == nil {
		return nil
	}
	tree, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var faults []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(faults) > maxFaults {
			return
		}
		if len(e.Causes) == 0 {
			faults = append(faults, at+pointer(e.InstanceLocation)+": "+e.ErrorKind.LocalizedString(printer))
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(tree)
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults], "and more")
	}
	return errors.New(strings.Join(faults, "; "))
}

// pointer is the JSON Pointer (RFC 6901) of a path; the root is "/".
func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// value decodes raw JSON as the validator wants it: numbers keep their text. Its
// strings share raw's memory: a value that is checked is gone before its buffer
// is used again, and a schema's definition never changes. So a payload of 100 KB
// costs no copy.
func value(raw json.RawMessage) (any, error) {
	s := wire.Reread(raw)
	return next(&s)
}

func next(s *wire.Scanner) (any, error) {
	switch s.Kind() {
	case '{':
		m := map[string]any{}
		err := s.Object(func(name []byte) error {
			key := string(name)
			v, err := next(s)
			m[key] = v
			return err
		})
		return m, err
	case '[':
		a := []any{}
		err := s.Array(func() error {
			v, err := next(s)
			a = append(a, v)
			return err
		})
		return a, err
	}
	raw, err := s.Raw()
	if err != nil {
		return nil, err
	}
	switch raw[0] {
	case '"':
		if text := raw[1 : len(raw)-1]; len(text) > 0 && bytes.IndexByte(text, '\\') < 0 {
			return unsafe.String(&text[0], len(text)), nil
		}
		text, _ := wire.Text(raw)
		return text, nil
	case 't', 'f':
		return raw[0] == 't', nil
	case 'n':
		return nil, nil
	default:
		return number(raw), nil
	}
}

// maxNumber is the longest number, and the greatest exponent, that is judged exactly.
const maxNumber = 400

// number keeps a number's text, unless exact arithmetic with it could take the
// library long: then it counts as the nearest float64, or as 1e400 beyond all of them.
func number(raw json.RawMessage) json.Number {
	exponent := 0
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(raw[e+1:])); err != nil {
			exponent = math.MaxInt
		}
	}
	if len(raw) <= maxNumber && -maxNumber <= exponent && exponent <= maxNumber {
		return json.Number(raw)
	}
	f, _ := strconv.ParseFloat(string(raw), 64) // what is out of range is infinite
	switch {
	case math.IsInf(f, 1):
		return "1e400"
	case math.IsInf(f, -1):
		return "-1e400"
	default:
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
}
