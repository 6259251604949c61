package schema_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpbridge/api/schema"
)

func compile(t *testing.T, raw string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("Compile(%s) = %v", raw, err)
	}
	return s
}

func TestFaultsNameTheirPath(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"a":{"type":"object","properties":{"b/c":{"type":"integer"}}}},"required":["a"]}`)
	for value, want := range map[string]string{
		`{"a":{"b/c":"secret"}}`: "at /a/b~1c: got string, want integer",
		`{}`:                     "at /: missing property 'a'",
		`[]`:                     "at /: got array, want object",
	} {
		err := s.Validate(json.RawMessage(value))
		if err == nil || err.Error() != want {
			t.Errorf("Validate(%s) = %v, want %s", value, err, want)
		}
	}
	for _, value := range []string{`{"a":{"b/c":9007199254740993}}`, `{"a":{},"more":1e400}`} {
		if err := s.Validate(json.RawMessage(value)); err != nil {
			t.Errorf("Validate(%s) = %v", value, err)
		}
	}
	if err := s.Validate(nil); err == nil {
		t.Error("absent arguments lack the required member, but pass")
	}
}

func TestNothingIsLoaded(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"const":"s3cr3t"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file://" + secret, "http://127.0.0.1:1/x", secret, "urn:x"} {
		_, err := schema.Compile(json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"` + ref + `"}}}`))
		if !errors.Is(err, schema.ErrUnsupported) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("$ref %s: %v, want ErrUnsupported without the file's content", ref, err)
		}
	}
}

func TestPatternOutsideRE2LeavesTheToolCallable(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"a":{"type":"string","pattern":"^(?!x).*$"},"b":{"pattern":"^b"}}}`)
	if err := s.Validate(json.RawMessage(`{"a":"anything","b":"b"}`)); err != nil {
		t.Error(err)
	}
	if s.Validate(json.RawMessage(`{"b":"c"}`)) == nil {
		t.Error("the other pattern is not checked")
	}
}

func TestBrokenSchemasAreToldFromUnsupportedOnes(t *testing.T) {
	for _, raw := range []string{`{"type":"strin"}`, `{"type":5}`, `{"properties":[]}`, `{"required":"a"}`} {
		if _, err := schema.Compile(json.RawMessage(raw)); err == nil || errors.Is(err, schema.ErrUnsupported) {
			t.Errorf("Compile(%s) = %v, want what is wrong", raw, err)
		}
	}
	for _, raw := range []string{`{"$schema":"https://example.com/mine"}`, `{"$ref":"#/$defs/missing"}`} {
		if _, err := schema.Compile(json.RawMessage(raw)); !errors.Is(err, schema.ErrUnsupported) {
			t.Errorf("Compile(%s) = %v, want ErrUnsupported", raw, err)
		}
	}
}

func TestHugeNumbersAreCheap(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"n":{"type":"integer","minimum":3,"multipleOf":7}}}`)
	_ = s.Validate(json.RawMessage(`{"n":1e999999999}`)) // must return, whatever it says
	if s.Validate(json.RawMessage(`{"n":8}`)) == nil {
		t.Error("8 passes as a multiple of 7")
	}
}

func BenchmarkValidate(b *testing.B) {
	s, err := schema.Compile(json.RawMessage(`{"type":"object","properties":{"n":{"type":"string"},"b":{"type":"string"},"p":{"type":"string"}},"required":["n"]}`))
	if err != nil {
		b.Fatal(err)
	}
	for name, n := range map[string]int{"100B": 100, "100KB": 100_000} {
		raw := json.RawMessage(`{"n":"00112233","b":"b1","p":"` + strings.Repeat("x", n) + `"}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Validate(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestHugeNumbersAreJudgedAtOnce(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"a":{"type":"array","items":{"type":"number","minimum":-5}},"b":{"type":"integer","maximum":1e999999}}}`)
	const many = 10_000 // exactly, each would take tens of milliseconds
	for number, fits := range map[string]bool{
		"1e999999": true, "-1e999999": false, "1e-999999": true, "1E+99999999999999999999": true,
		"1" + strings.Repeat("0", 5000): true, "-1" + strings.Repeat("0", 5000): false,
	} {
		begun := time.Now()
		err := s.Validate(json.RawMessage(`{"a":[` + strings.Repeat(number+",", many/len(number)) + number + `],"b":1e999999}`))
		if (err == nil) != fits || time.Since(begun) > 5*time.Second {
			t.Errorf("%.10s...: %v after %v", number, err, time.Since(begun))
		}
	}
}

// TestFormatsDescribe: in every draft, a format says nothing against a value.
func TestFormatsDescribe(t *testing.T) {
	for _, draft := range []string{"", `"$schema":"http://json-schema.org/draft-04/schema#",`, `"$schema":"http://json-schema.org/draft-07/schema#",`, `"$schema":"https://json-schema.org/draft/2019-09/schema",`} {
		for _, format := range []string{"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "iri", "json-pointer", "regex", "time", "uri", "uri-reference", "uri-template", "uuid", "x-own"} {
			s, err := schema.Compile([]byte(`{` + draft + `"properties":{"a":{"type":"string","format":"` + format + `"}},"required":["a"]}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate([]byte(`{"a":"( {none% "}`)); err != nil {
				t.Errorf("%s %s: %v", draft, format, err)
			}
			if err := s.Validate([]byte(`{"a":1}`)); err == nil {
				t.Errorf("%s %s: a number passes", draft, format)
			}
		}
	}
}
