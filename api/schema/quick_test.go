package schema

import (
	"encoding/json"
	"testing"

	"mcpbridge/api/wire"
)

// FuzzQuickOnlyAgrees: what the quick check takes, the library takes.
func FuzzQuickOnlyAgrees(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":"object","properties":{"n":{"type":"string"},"i":{"type":["integer","null"]}},"required":["n"],"additionalProperties":false}`, `{"n":"x","i":1}`},
		{`{"type":"object","properties":{"n":{"enum":["a","b\n"]}},"x-vendor":1}`, `{"n":"b\n"}`},
		{`{"type":"array","items":{"type":"boolean","description":"d"}}`, `[true,false]`},
		{`{"type":"object","properties":{"a":true,"b":{"minimum":3}}}`, `{"b":1}`},
		{`{"type":"integer"}`, `1.0`},
		{`{"title":1,"description":"d","examples":[1],"default":{},"readOnly":true,"$comment":"c"}`, `1`},
		{`{"type":["string","string"],"required":["a","a"]}`, `"x"`},
		{`{"required":["a","a","b"],"properties":{"a":{"type":"number"}}}`, `{"a":1,"b":2,"a":"x"}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		if !json.Valid([]byte(schema)) || !json.Valid([]byte(value)) {
			return
		}
		if _, err := wire.NewScanner([]byte(schema+value), 64); err != nil {
			return
		}
		s, err := Compile([]byte(schema))
		if err != nil || s.quick == nil {
			return
		}
		if s.library() == nil {
			t.Fatalf("schema %s has a quick check, but breaks its dialect's rules", schema)
		}
		scanner := wire.Reread([]byte(value))
		if !s.quick.fits(&scanner) {
			return
		}
		s.quick = nil
		if err := s.Validate([]byte(value)); err != nil {
			t.Fatalf("schema %s, value %s: the quick check takes it, but %v", schema, value, err)
		}
	})
}

func TestQuickTakesWhatCallsMostlyBring(t *testing.T) {
	s, err := Compile([]byte(`{"type":"object","properties":{"n":{"type":"string","description":"d"},"k":{"enum":["a"]},"l":{"type":"array","items":{"type":"integer"}}},"required":["n"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{
		`{"n":"x","k":"a","l":[1,2]}`: true, `{"n":1}`: false, `{"k":"a"}`: false, `{"n":"x","z":1}`: false,
		`{"n":"x","k":"b"}`: false, `{"n":"x","l":["a"]}`: false, `[]`: false,
	} {
		scanner := wire.Reread([]byte(value))
		if got := s.quick.fits(&scanner); got != want {
			t.Errorf("%s: %v, want %v", value, got, want)
		}
	}
}
