package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// recorded is one server of the corpus.
type recorded struct {
	name  string
	tools []json.RawMessage
	calls map[string]json.RawMessage // answer by file
}

func corpus(t testing.TB) (all []recorded) {
	t.Helper()
	lists, err := filepath.Glob("testdata/corpus/*.tools-list.json")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range lists {
		var list struct {
			Result struct{ Tools []json.RawMessage }
		}
		read(t, file, &list)
		r := recorded{strings.TrimSuffix(filepath.Base(file), ".tools-list.json"), list.Result.Tools, map[string]json.RawMessage{}}
		answers, _ := filepath.Glob("testdata/corpus/" + r.name + ".call-*.json")
		for _, file := range answers {
			if !strings.HasSuffix(file, ".request.json") {
				var answer struct{ Result json.RawMessage }
				read(t, file, &answer)
				if answer.Result != nil {
					r.calls[filepath.Base(file)] = answer.Result
				}
			}
		}
		all = append(all, r)
	}
	return all
}

func read(t testing.TB, file string, v any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestCorpusPassesByteEqual: every tool that published servers list is taken and
// listed as it came, and so is every result they gave.
func TestCorpusPassesByteEqual(t *testing.T) {
	w := start(t)
	tools, calls := 0, 0
	for _, r := range corpus(t) {
		bridge := fmt.Sprintf("b%d", tools)
		p := w.provider(bridge, "p", "")
		var texts []string
		for _, raw := range r.tools {
			texts = append(texts, string(raw))
		}
		var ack struct {
			Tools    []struct{ Name, ExposedAs string }
			Rejected []any
		}
		if err := json.Unmarshal([]byte(p.register(texts...).raw), &ack); err != nil {
			t.Fatal(err)
		}
		if len(ack.Rejected) != 0 || len(ack.Tools) != len(texts) {
			t.Errorf("%s: %d of %d tools taken, rejected %v", r.name, len(ack.Tools), len(texts), ack.Rejected)
			continue
		}
		var list struct {
			Result struct{ Tools []json.RawMessage }
		}
		if err := json.Unmarshal([]byte(w.post(bridge, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).body), &list); err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, raw := range list.Result.Tools {
			listed[string(raw)] = true
		}
		for _, text := range texts {
			if !listed[text] {
				t.Errorf("%s: not listed as it was registered: %.100s", r.name, text)
			}
		}
		tools += len(listed)

		p.register(tool("replay"))
		var mu sync.Mutex
		var reply string
		p.answers(func(frame) string { mu.Lock(); defer mu.Unlock(); return reply })
		for file, result := range r.calls {
			mu.Lock()
			reply = string(result)
			mu.Unlock()
			if a := w.post(bridge, callBody("1", "replay", "{}")); a.body != `{"jsonrpc":"2.0","id":1,"result":`+reply+`}` {
				t.Errorf("%s: changed on the way", file)
			}
			calls++
		}
	}
	if tools != 952 {
		t.Errorf("%d tools listed, want 952", tools)
	}
	t.Logf("%d tools, %d results", tools, calls)
}

// TestNothingOfAPayloadIsRewritten: what no revision knows, and numbers that no
// float64 holds, pass both ways.
func TestNothingOfAPayloadIsRewritten(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	definition := `{"x-vendor":{"n":9007199254740993,"s":"<&>` + "\u2028" + `"} , "name":"a","description":"d","inputSchema":{"type":"object","$defs":{"z":{"$anchor":"q"}},"properties":{"b":{"$ref":"#/$defs/z"}}},"annotations":{"readOnlyHint":false,"vendor":1.0},"inputExamples":[{}],"icons":[],"execution":{"taskSupport":"x"}}`
	p.register(definition)
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); a.body != `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+definition+`]}}` {
		t.Errorf("listed %s", a.body)
	}
	arguments := `{"id":9007199254740993,"f":1.0,"e":1e400,"s":"<&>` + "\u2028" + `", "é":"\ud83d\ude00" , "nested":[[[{}]]]}`
	result := `{ "content":[{"type":"video","data":"x","vendor":{"n":12345678901234567890123}},{"type":"text","text":"<&>` + "\u2028" + `","annotations":{"audience":[],"priority":0.10},"_meta":{"k":null}}], "structuredContent":` + arguments + `,"isError":false,"later":1e400}`
	p.answers(func(f frame) string {
		if string(f.Params) != arguments {
			t.Errorf("arguments arrived as %s", f.Params)
		}
		return result
	})
	if a := w.post("b", callBody("1", "a", arguments)); a.body != `{"jsonrpc":"2.0","id":1,"result":`+result+`}` {
		t.Errorf("result %s", a.body)
	}
	if a := w.modern("b", "tools/call", "a", `"name":"a","arguments":`+arguments); !strings.Contains(a.body, `"result":`+strings.TrimSuffix(result, "}")+`,"resultType":"complete"`) {
		t.Errorf("modern result %s", a.body)
	}
}

// TestHintsStayAsTheyAre: present stays, absent stays absent (O14).
func TestHintsStayAsTheyAre(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	all := `{"name":"all","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`
	none := tool("none")
	p.register(all, none)
	if a := w.post("b", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); a.body != `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+all+`,`+none+`]}}` {
		t.Errorf("listed %s", a.body)
	}
}
