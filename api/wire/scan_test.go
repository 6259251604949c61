package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"mcpbridge/api/wire"
)

// scan passes over one whole text.
func scan(data []byte, depth int) ([]byte, error) {
	s, err := wire.NewScanner(data, depth)
	if err != nil {
		return nil, err
	}
	raw, err := s.Raw()
	if err != nil {
		return nil, err
	}
	return raw, s.End()
}

func nesting(data []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
			deepest = max(deepest, depth)
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
	}
	return deepest
}

// FuzzScanner holds the scanner against encoding/json: both take the same texts,
// but for UTF-8, which only the scanner insists on, and depth.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0.5e+10,"x\u00e9\"",true,false,null,{}],"b":""}`, ` [ ] `, `"`, `"\u12g4"`, `01`, `1.`, `-`, `{"a"}`, `{"a":1,}`,
		`[1,]`, "\"\x01\"", "\"\xff\"", `nul`, `{"a":1}{`, `"12345678\\"`, `"1234567é"`, `1e400`, `[[[[[[[[[[]]]]]]]]]]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := scan(data, 8)
		want := json.Valid(data) && utf8.Valid(data) && nesting(data) <= 8
		if (err == nil) != want {
			t.Fatalf("scan(%q) = %v, want valid %v", data, err, want)
		}
		if err != nil {
			return
		}
		again := wire.Reread(raw)
		if got, err := again.Raw(); err != nil || !bytes.Equal(got, raw) || again.End() != nil {
			t.Fatalf("read again, %q is %q, %v", raw, got, err)
		}
		if !bytes.Equal(raw, bytes.Trim(data, " \t\r\n")) {
			t.Fatalf("scan(%q) = %q", data, raw)
		}
	})
}

func TestScannerVisitsMembersByUnescapedName(t *testing.T) {
	s, err := wire.NewScanner([]byte(`{"\u0061":1, "b":{"c":[ 2 ]}, "long name with more than eight bytes":"v"}`), 8)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = s.Object(func(name []byte) error {
		key := string(name)
		raw, err := s.Raw()
		got[key] = string(raw)
		return err
	})
	if err != nil || s.End() != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "1", "b": `{"c":[ 2 ]}`, "long name with more than eight bytes": `"v"`}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("member %q = %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d members, want %d", len(got), len(want))
	}
}

func TestScannerBoundsDepth(t *testing.T) {
	deep := strings.Repeat("[", 256) + strings.Repeat("]", 256)
	if _, err := scan([]byte(deep), 256); err != nil {
		t.Errorf("256 levels: %v", err)
	}
	_, err := scan([]byte("["+deep+"]"), 256)
	if e, ok := errors.AsType[*wire.DepthError](err); !ok || e.Max != 256 {
		t.Errorf("257 levels: %v, want a DepthError of 256", err)
	}
}

func TestMembersComeOnceAndInOneCase(t *testing.T) {
	for _, c := range []struct {
		names []string
		bad   string
	}{
		{[]string{"id", "method", "other", "Other", "other"}, ""},
		{[]string{"id", "method", "id"}, "id"},
		{[]string{"Method"}, "Method"},
		{[]string{"me\u017fhod", "met\u0068od", "\u212ad"}, ""},
		{[]string{"params\u017f", "param\u017f"}, "param\u017f"}, // a long s folds to s
	} {
		m := wire.NewMembers("id", "method", "params")
		bad := ""
		for _, n := range c.names {
			if _, err := m.Check([]byte(n)); err != nil {
				bad = n
				break
			}
		}
		if bad != c.bad {
			t.Errorf("%q: refused at %q, want %q", c.names, bad, c.bad)
		}
	}
}

func TestBufferReadsUpToItsLimit(t *testing.T) {
	for _, n := range []int{0, 1, 2047, 2048, 2049, 10_000, 10_001} {
		for _, size := range []int{0, n, n + 1} {
			b := wire.NewBuffer(size)
			err := b.Fill(strings.NewReader(strings.Repeat("x", n)), 10_000, nil)
			if n > 10_000 {
				if !errors.Is(err, wire.ErrTooLong) {
					t.Errorf("%d bytes of 10,000: %v, want ErrTooLong", n, err)
				}
			} else if err != nil || len(b.B) != n {
				t.Errorf("%d bytes: read %d, %v", n, len(b.B), err)
			}
			b.Release()
		}
	}
}

func BenchmarkScan(b *testing.B) {
	data := []byte(`{"type":"toolResult","callId":"x","result":{"content":[{"type":"text","text":"` + strings.Repeat("abcdefghij", 10_000) + `"}]}}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := scan(data, 256); err != nil {
			b.Fatal(err)
		}
	}
}
