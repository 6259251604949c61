package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// names lists the tools at a URL, in order.
func (w *world) names(url string, headers ...string) (names []string) {
	w.t.Helper()
	a := w.do("POST", url, listTools, headers...)
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(a.body), &list); err != nil {
		w.t.Fatalf("%v in %s", err, a.body)
	}
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// listed is what bridge_list_tools says.
type listed struct {
	Tools      []map[string]json.RawMessage
	NextCursor string
}

// find calls bridge_list_tools; its two forms of the answer must be the same.
func (w *world) find(url, arguments string) (l listed) {
	w.t.Helper()
	a := w.do("POST", url, callBody("1", "bridge_list_tools", arguments))
	var r struct {
		Result struct {
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
			IsError           bool
		}
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || r.Result.IsError || len(r.Result.Content) != 1 {
		w.t.Fatalf("%s: %v in %s", arguments, err, a.body)
	}
	if r.Result.Content[0].Text != string(r.Result.StructuredContent) {
		w.t.Errorf("%s: the text is\n%s, structured\n%s", arguments, r.Result.Content[0].Text, r.Result.StructuredContent)
	}
	if err := json.Unmarshal(r.Result.StructuredContent, &l); err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (l listed) names() (all []string) {
	for _, tool := range l.Tools {
		all = append(all, strings.Trim(string(tool["name"]), `"`))
	}
	return all
}

func TestMetaToolsAreListedWhereTheURLAsks(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"), tool("z"))
	for query, want := range map[string][]string{
		"":           {"a", "z"},
		"?meta=0":    {"a", "z"},
		"?meta=1":    {"bridge_call_tool", "bridge_list_tools", "a", "z"},
		"?meta=only": {"bridge_call_tool", "bridge_list_tools"},
	} {
		if got := w.names(w.mcpURL("b") + query); !slices.Equal(got, want) {
			t.Errorf("%s lists %v, want %v", query, got, want)
		}
	}
	if got := w.names(w.mcpURL("empty") + "?meta=1"); len(got) != 2 {
		t.Errorf("an empty bridge lists %v", got)
	}
	if a := w.post("b", callBody("1", "bridge_list_tools", "{}")); !strings.Contains(a.body, `"code":-32602`) {
		t.Errorf("called without being asked for: %s", a.body)
	}
	// A revision without output schemas gets none, and no structured content.
	h := w.open("b", "2025-03-26", "test")
	if a := w.do("POST", w.mcpURL("b")+"?meta=1", listTools, h...); strings.Contains(a.body, "outputSchema") {
		t.Errorf("an output schema for 2025-03-26: %s", a.body)
	}
	if a := w.do("POST", w.mcpURL("b")+"?meta=1", callBody("1", "bridge_list_tools", ""), h...); strings.Contains(a.body, "structuredContent") {
		t.Errorf("structured content for 2025-03-26: %s", a.body)
	}
	// A provider's tools have the names.
	p.register(tool("bridge_call_tool"))
	if got := w.names(w.mcpURL("b") + "?meta=1"); !slices.Equal(got, []string{"bridge_list_tools", "a", "bridge_call_tool", "z"}) {
		t.Errorf("beside a provider's own: %v", got)
	}
	p.answers(func(f frame) string { return `{"content":[],"was":"` + f.Name + `"}` })
	if a := w.do("POST", w.mcpURL("b")+"?meta=1", callBody("1", "bridge_call_tool", `{"name":"a"}`)); !strings.Contains(a.body, `"was":"bridge_call_tool"`) {
		t.Errorf("a provider's own answers %s", a.body)
	}
}

func TestMetaListFindsByWordsAndPages(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	definition := `{"name":"a.find","title":"Größe","description":"<Seeks> é","inputSchema":{"type":"object","x":9007199254740993},"icons":[{"src":"data:,x"}],"_meta":{"k":1},"annotations":{"readOnlyHint":false}}`
	all := []string{definition}
	for i := range 120 {
		all = append(all, tool(fmt.Sprintf("t%03d", i)))
	}
	p.register(all...)
	url := w.mcpURL("b") + "?meta=1"
	l := w.find(url, `{"filter":"SEEKS größe"}`)
	if len(l.Tools) != 1 || string(l.Tools[0]["inputSchema"]) != `{"type":"object","x":9007199254740993}` || string(l.Tools[0]["annotations"]) != `{"readOnlyHint":false}` {
		t.Fatalf("found %v", l)
	}
	if l.Tools[0]["icons"] != nil || l.Tools[0]["_meta"] != nil {
		t.Errorf("a model is told %v", l.Tools[0])
	}
	if l := w.find(url, `{"filter":"seeks t001","cursor":null}`); len(l.Tools) != 0 || l.NextCursor != "" {
		t.Errorf("found %v", l)
	}
	var names []string
	pages := 0
	for next := `{}`; next != ""; pages++ {
		l := w.find(url, next)
		names = append(names, l.names()...)
		if next = ""; l.NextCursor != "" {
			next = `{"cursor":"` + l.NextCursor + `"}`
		}
	}
	if pages != 3 || len(names) != 121 || !slices.IsSorted(names) {
		t.Errorf("%d pages of %d tools: %v", pages, len(names), names)
	}
	// A page ends where it would be too much for a model, too.
	q := w.provider("large", "p", "")
	for i := range 3 {
		q.register(fmt.Sprintf(`{"name":"l%d","description":"%s","inputSchema":{}}`, i, strings.Repeat("x", 100_000)))
	}
	if l := w.find(w.mcpURL("large")+"?meta=1", `{}`); len(l.Tools) != 1 || l.NextCursor == "" {
		t.Errorf("a page of large tools has %v", l.names())
	}
	for arguments, want := range map[string]string{
		`{"cursor":"x"}`: "The cursor is not one", `{"filter":7}`: "at /filter: must be a string", `{"cursor":{}}`: "at /cursor",
		`{"filter":"a","filter":"b"}`: "filter",
	} {
		if a := w.do("POST", url, callBody("1", "bridge_list_tools", arguments)); !strings.Contains(a.body, want) || !strings.Contains(a.body, `"isError":true`) {
			t.Errorf("%s: %s", arguments, a.body)
		}
	}
}

// TestMetaCallAnswersWhatTheToolDoes: each call through bridge_call_tool is answered,
// byte for byte, as the same call of the tool itself.
func TestMetaCallAnswersWhatTheToolDoes(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(`{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"n":{"type":"integer"},"who":{"type":"string","x-mcp-header":"Who"}}}}`)
	result := `{ "content":[{"type":"text","text":"<&>"}],"structuredContent":{"n":9007199254740993},"later":1e400}`
	p.answers(func(f frame) string {
		return strings.Replace(result, "<&>", strings.ReplaceAll(string(f.Params), `"`, `'`), 1)
	})
	url := w.mcpURL("b") + "?meta=only"
	session := w.initialize("b")
	for _, arguments := range []string{`{"n":9007199254740993, "é":1.0}`, `{}`, `{"n":"x"}`, `null`, ""} {
		through, beside := `{"name":"a"}`, `"name":"a"`
		if arguments != "" {
			through, beside = `{"arguments":`+arguments+` , "name":"a"}`, `"name":"a","arguments":`+arguments
		}
		direct := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + beside + `}}`
		for era, h := range map[string][]string{"session": session, "stateless": nil} {
			want := w.do("POST", w.mcpURL("b"), direct, h...)
			if got := w.do("POST", url, callBody("1", "bridge_call_tool", through), h...); got.body != want.body || got.status != want.status {
				t.Errorf("%s %s:\n%s, want\n%s", era, arguments, got.body, want.body)
			}
		}
		want := w.modern("b", "tools/call", "a", beside)
		body, h := modernRequest("tools/call", "bridge_call_tool", `"name":"bridge_call_tool","arguments":`+through)
		if got := w.do("POST", url, body, h...); got.body != want.body || got.status != want.status {
			t.Errorf("modern %s:\n%s, want\n%s", arguments, got.body, want.body)
		}
	}
	// What a header would have to say is in no header of this call.
	body, h := modernRequest("tools/call", "bridge_call_tool", `"name":"bridge_call_tool","arguments":{"name":"a","arguments":{"who":"me"}}`)
	if got := w.do("POST", url, body, h...); got.status != http.StatusOK || !strings.Contains(got.body, `{'who':'me'}`) {
		t.Errorf("with a parameter of a header: %s", got.body)
	}
	for arguments, want := range map[string]string{
		`{"name":"nope"}`: `There is no tool \"nope\"`, `{"name":"bridge_call_tool"}`: "There is no tool", `{"name":7}`: "at /name: must be a string",
		`{}`: `\"name\" is missing`, `{"name":"a","arguments":[]}`: "at /arguments: must be an object", `{"name":"a","Name":"b"}`: "Name",
	} {
		if a := w.do("POST", url, callBody("1", "bridge_call_tool", arguments)); !strings.Contains(a.body, want) || !strings.Contains(a.body, `"isError":true`) {
			t.Errorf("%s: %s", arguments, a.body)
		}
	}
}

func TestMetaCallHasProgressCancellationAndQuestions(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	url := w.mcpURL("b") + "?meta=1"
	session := w.initialize("b")
	call := `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"bridge_call_tool","arguments":{"name":"a","arguments":{"x":1}},"_meta":{"progressToken":0}}}`
	opened := make(chan *events, 1)
	go func() { opened <- w.stream("POST", url, call, session...) }()
	f := p.want("callTool")
	if f.Name != "a" || string(f.Params) != `{"x":1}` {
		t.Fatalf("the provider was asked %s", f.raw)
	}
	p.send(`{"type":"progress","callId":"` + f.CallID + `","progress":1,"total":2}`)
	e := <-opened
	e.want(`"progressToken":0,"progress":1,"total":2`)
	if a := w.post("b", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`, session...); a.status != http.StatusAccepted {
		t.Fatalf("cancelled: %d %s", a.status, a.body)
	}
	if c := p.want("cancelCall"); c.CallID != f.CallID {
		t.Errorf("cancelled %s", c.raw)
	}
	e.want(`"code":-32800`)

	asks(p)
	ask := func(more string) answer {
		body, h := modernRequest("tools/call", "bridge_call_tool", `"name":"bridge_call_tool","arguments":{"name":"a","arguments":{"x":1}}`+more)
		return w.do("POST", url, strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1), h...)
	}
	a := ask("")
	var asked struct{ Result struct{ RequestState string } }
	if err := json.Unmarshal([]byte(a.body), &asked); err != nil || asked.Result.RequestState == "" {
		t.Fatalf("asked with %s", a.body)
	}
	if a := ask(`,"inputResponses":{"who":{"action":"accept"}},"requestState":"` + asked.Result.RequestState + `"`); !strings.Contains(a.body, `"responses":{"who":{"action":"accept"}}`) {
		t.Errorf("answered with %s", a.body)
	}
}

// TestMetaCallBecomesATask: a call through bridge_call_tool is kept as the tool's own
// would be.
func TestMetaCallBecomesATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(taskTool)
		body, h := taskRequest("tools/call", "bridge_call_tool", `"name":"bridge_call_tool","arguments":{"name":"slow","arguments":{"n":1}}`)
		call := w.later(func() answer { return w.do("POST", w.mcpURL("b")+"?meta=only", body, h...) })
		f := p.want("callTool")
		k := readTask(t, <-call)
		if k.ResultType != "task" || k.Status != "working" {
			t.Fatalf("the call became %+v", k)
		}
		p.result(f.CallID, done)
		synctest.Wait()
		if k := w.getTask("b", k.TaskID); k.Status != "completed" || !strings.Contains(string(k.Result), `"done"`) {
			t.Errorf("the task is %+v", k)
		}
		w.end()
	})
}

func TestMetaToolsReachOlderClientsAndRooms(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(tool("a"))
	p.answers(func(f frame) string { return `{"content":[],"was":"` + f.Name + `"}` })
	if got := w.names(w.url("/mcp?room=b&meta=1")); !slices.Equal(got, []string{"bridge_call_tool", "bridge_list_tools", "a"}) {
		t.Errorf("a room lists %v", got)
	}
	e, url := w.pair("/b/b/sse?meta=only")
	w.tell(url, listTools)
	if list := e.want("bridge_list_tools"); strings.Contains(list, `"name":"a"`) || strings.Contains(list, "outputSchema") {
		t.Errorf("2024-11-05 is listed %s", list)
	}
	w.tell(url, callBody("2", "bridge_call_tool", `{"name":"a"}`))
	e.want(`"was":"a"`)
	// In a batch each call is its own.
	h := w.initializeAs("b", "2025-03-26", "{}")
	a := w.do("POST", w.mcpURL("b")+"?meta=1", `[`+callBody("1", "bridge_call_tool", `{"name":"a"}`)+`,`+callBody("2", "bridge_call_tool", `{"name":"z"}`)+`]`, h...)
	if !strings.Contains(a.body, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"was":"a"}}`) || !strings.Contains(a.body, "There is no tool") {
		t.Errorf("a batch: %s", a.body)
	}
}
