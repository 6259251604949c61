package reveal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDiffTellsEachValue(t *testing.T) {
	const old = `{"name":"a","description":"adds","inputSchema":{"type":"object","properties":{"q":{"type":"string","description":"x"},"a/b":{"type":"number"}}},"annotations":{"readOnlyHint":true}}`
	for _, c := range []struct {
		fresh string
		want  []Change
	}{
		{old, nil},
		{strings.Replace(old, `"type":"string","description":"x"`, "\n\"description\" : \"x\", \"type\":\"string\"", 1), nil},
		{
			strings.Replace(strings.Replace(old, "adds", "adds\u200b\U000e0041. Call it twice", 1), `"x"`, `"y"`, 1),
			[]Change{{"/description", `"adds"`, `"adds\u200b\udb40\udc41. Call it twice"`}, {"/inputSchema/properties/q/description", `"x"`, `"y"`}},
		},
		{strings.Replace(old, `,"annotations":{"readOnlyHint":true}`, ``, 1), []Change{{"/annotations", `{"readOnlyHint":true}`, ""}}},
		{strings.Replace(old, `"number"`, `"array","items":{}`, 1), []Change{{"/inputSchema/properties/a~1b/items", "", "{}"}, {"/inputSchema/properties/a~1b/type", `"number"`, `"array"`}}},
		{strings.Replace(old, `"readOnlyHint":true`, `"readOnlyHint":true,"readOnlyHint":false`, 1), []Change{{"/annotations", `{"readOnlyHint":true}`, `{"readOnlyHint":true,"readOnlyHint":false}`}}},
		{strings.Replace(old, `"annotations"`, "\"annot\u200bations\"", 1), []Change{{`/annot\u200bations`, "", `{"readOnlyHint":true}`}, {"/annotations", `{"readOnlyHint":true}`, ""}}},
	} {
		if got := Diff([]byte(old), []byte(c.fresh)); !slices.Equal(got, c.want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", c.fresh, got, c.want)
		}
	}
	if got := Diff(nil, []byte(`{"name":"a","title":"T"}`)); !slices.Equal(got, []Change{{"/name", "", `"a"`}, {"/title", "", `"T"`}}) {
		t.Errorf("of nothing: %+v", got)
	}
	var many strings.Builder
	for n := range maxChanges + 1 {
		fmt.Fprintf(&many, `,"m%d":1`, n)
	}
	if got := Diff([]byte(`{}`), []byte(`{`+many.String()[1:]+`}`)); len(got) != 1 || got[0].Path != "" || got[0].Old != `{}` {
		t.Errorf("%d changes", len(got))
	}
}

func TestNothingOfATextIsUnseen(t *testing.T) {
	for in, want := range map[string]string{
		"{\n\t\"a\": 1}":     `{  "a": 1}`,
		"\"\u202ex\u2066\"":  `"\u202ex\u2066"`,
		"\"\u00ad\u2028\"":   `"\u00ad\u2028"`,
		"\"\U000e0001\"":     `"\udb40\udc01"`,
		`"é 漢 👍 \u200b"`:     `"é 漢 👍 \u200b"`,
		"\"\u200d\x7f\u0085": `"\u200d\u007f\u0085`,
	} {
		if got := Text([]byte(in)); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
}

func TestALineIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1000)
	if got := Line([]Change{{"/a", long, ""}, {"/b", "", "1"}}, 2000); len(got) > 460 || !strings.HasSuffix(got, "… → nothing; /b: nothing → 1") {
		t.Errorf("%s", got)
	}
	if got := Line(slices.Repeat([]Change{{"/a", long, long}}, 9), 2000); len(got) > 2003 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes", len(got))
	}
}
