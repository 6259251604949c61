package api_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A quirk is something in what published servers answer that has broken somebody's
// client or proxy. The corpus's index names those that a machine found; here is what
// becomes of each in dialect mcp.

// handling is what becomes of a tool with a quirk.
type handling struct {
	// shielded is what clients that need the shield see instead, as a change of the
	// definition's text; both empty when they see what everybody does.
	from, to string
	warning  string  // in the log; empty for none
	tries    []tried // calls that show what the schema still holds
}

// tried is a call of one tool, and part of what is said of its arguments; empty when
// they pass.
type tried struct{ tool, arguments, refusal string }

// asItIs is how most quirks are handled: everybody gets the provider's own bytes.
var asItIs = handling{}

var toolQuirks = map[string]handling{
	"root schema not object (type undefined)": {
		from: `{"$schema":"http://json-schema.org/draft-07/schema#"}`, to: `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{}}`,
		warning: `inputSchema has no \"type\" at its root`,
		// It is checked as it came: what it does not say is not asked.
		tries: []tried{{"create_repository", `{"anything":1}`, ""}},
	},
	// No warning where it has a type: the specification recommends such a schema.
	"root without properties": {
		from: `"inputSchema":{"type":"object"}`, to: `"inputSchema":{"type":"object","properties":{}}`,
		tries: []tried{{"get_user_context", `{"anything":1}`, ""}},
	},
	"$ref local": {tries: []tried{
		{"API-post-page", `{"parent":{"page_id":"p"},"properties":{}}`, ""},
		{"API-post-page", `{"parent":{"page_id":7},"properties":{}}`, "at /parent"},
	}},
	"$defs or definitions": asItIs,
	"$ref into #/properties": {tries: []tried{
		{"searchPostmanElements", `{"q":"x","filters":{"$and":[{"publisherIsVerified":{"$eq":true}}]}}`, ""},
		{"searchPostmanElements", `{"q":"x","filters":{"$and":[{"publisherIsVerified":{"$eq":1}}]}}`, "at /filters/$and/0/publisherIsVerified/$eq"},
	}},
	"const": {tries: []tried{
		{"move-page", `{"page_id":"p","parent":{"type":"workspace"}}`, ""},
		{"move-page", `{"page_id":"p","parent":{"type":"attic"}}`, "at /parent"},
	}},
	"nested oneOf": {tries: []tried{{"move-page", `{"page_id":"p","parent":{"type":"page_id"}}`, "at /parent"}}},
	"nested anyOf": {tries: []tried{{"patchCollection", `{"collectionId":"c","collection":{"variable":[{"value":1.5}]}}`, "at /collection"}}},
	"nested allOf": {tries: []tried{
		{"patchCollection", `{"collectionId":"c","collection":{"info":{"name":"n"}}}`, ""},
		{"patchCollection", `{"collectionId":"c","collection":{"info":{"name":1}}}`, "at /collection"},
	}},
	"type is a list": {tries: []tried{
		{"get_board_items_page", `{"boardId":1,"filters":[{"columnId":"c","compareValue":["a",1]}]}`, ""},
		{"get_board_items_page", `{"boardId":1,"filters":[{"columnId":"c","compareValue":[true]}]}`, "at /filters/0/compareValue"},
	}},
	"propertyNames": {tries: []tried{{"webmcp_call_tool", `{"name":"x","arguments":{"é":1}}`, ""}}},
	"additionalProperties is {}": {tries: []tried{
		{"call-actor", `{"actor":"a","input":{"x":[1,{"y":null}]}}`, ""},
		{"call-actor", `{"actor":"a","input":[]}`, "at /input"},
	}},
	"additionalProperties is a schema": asItIs,                                                      // of an output schema, which is not checked
	"format uuid":                      {tries: []tried{{"get-user", `{"user_id":"no uuid"}`, ""}}}, // formats only describe
	"format date":                      {tries: []tried{{"getAuditLogs", `{"since":"yesterday"}`, ""}}},
	"format uri":                       {tries: []tried{{"createSdkGitConnection", `{"source":{"type":"spec","id":"i"},"language":"go","repositoryUrl":"::"}`, ""}}},
	"format date-time": {tries: []tried{ // but a pattern beside one holds
		{"query_logs", `{"project_id":"p","sql":"s","iso_timestamp_start":"2026-02-28T00:00:00Z"}`, ""},
		{"query_logs", `{"project_id":"p","sql":"s","iso_timestamp_start":"2026-02-30T00:00:00Z"}`, "at /iso_timestamp_start"},
	}},
	"format email": asItIs, "format int32": asItIs, "format json": asItIs,
	"pattern that RE2 refuses": {tries: []tried{ // it says nothing, and all else holds
		{"getWorkspace", `{"workspaceId":"w","include":"team,team"}`, ""},
		{"getWorkspace", `{"workspaceId":"w","include":7}`, "at /include"},
	}},
	"required names a property that is not defined": {tries: []tried{
		{"worker_put", `{"name":"n","script":"s"}`, ""},
		{"worker_put", `{"name":"n"}`, "script"},
	}},
	"required is []":          {tries: []tried{{"session_show_defaults", `{}`, ""}}},
	"property without a type": {tries: []tried{{"webmcp_call_tool", `{"name":"x","arguments":{}}`, ""}}},
	"inputSchema deeper than 16": {tries: []tried{
		{"createCollection", `{"workspace":"w","collection":{"info":{"name":7}}}`, "at /collection"},
	}},
	"property name outside [A-Za-z0-9_.-]{1,64}": {tries: []tried{
		{"createFolderComment", `{"collectionId":"c","folderId":"f","body":"b","tags":{"{{userName}}":{"type":"user","id":"u"}}}`, ""},
		{"createFolderComment", `{"collectionId":"c","folderId":"f","body":"b","tags":{"{{userName}}":{"type":"user"}}}`, "at /tags/{{userName}}"},
	}},
	"if/then/else": asItIs, "outputSchema": asItIs, "outputSchema root oneOf": asItIs, // for whoever reads the results
	"$schema draft-07": asItIs, "$schema 2020-12": asItIs,
	"vendor field x-parameter-location": asItIs, "vendor field x-content-type": asItIs,
	"annotations": asItIs, "annotation explicitly false": asItIs, "title": asItIs, "title only in annotations": asItIs,
	`unknown annotation "category"`: asItIs, `unknown annotation "conditions"`: asItIs,
	"execution.taskSupport=forbidden": asItIs, "execution.taskSupport=optional": asItIs, // what becomes of their calls: task_test.go
	"name with capitals": asItIs, "name mixes - and _": asItIs,
	"description with leading or trailing space": asItIs, "description longer than 4,000": asItIs, "angle-bracket markup in description": asItIs,
	// The tail of an emoji: no warning, which would be wrong.
	"hidden or control character in description (U+FE0F)": asItIs,
	`unknown tool member "tags"`:                          asItIs, `unknown tool member "httpMethod"`: asItIs, `unknown tool member "resourceName"`: asItIs,
	`unknown tool member "originalPath"`: asItIs, `unknown tool member "x-original-path"`: asItIs,
	"_meta": asItIs, `_meta key "ui"`: asItIs, `_meta key "ui/resourceUri"`: asItIs, `_meta key "LocalRequiredHint"`: asItIs, `_meta key "SecretHint"`: asItIs,
	`_meta key "io.kubernetes-mcp-server/rbac"`: asItIs, `_meta key "openai/outputTemplate"`: asItIs, `_meta key "openai/widgetAccessible"`: asItIs,
}

// indexed is an entry of the corpus's index. What it says of a quirk is a number of
// tools, their names, or some of the names.
type indexed struct {
	Prefix                 string
	ToolQuirks, WireQuirks map[string]json.RawMessage
}

func corpusIndex(t *testing.T) []indexed {
	t.Helper()
	var index struct{ Entries []indexed }
	read(t, "testdata/corpus/index.json", &index)
	if len(index.Entries) != 26 {
		t.Fatalf("%d servers in the index, want 26", len(index.Entries))
	}
	return index.Entries
}

// examples are the names that an entry of the index gives.
func examples(raw json.RawMessage) (names []string) {
	var some struct{ Examples []string }
	if json.Unmarshal(raw, &names) != nil && json.Unmarshal(raw, &some) == nil {
		names = some.Examples
	}
	return names
}

// TestQuirksOfToolsAreHandled: each quirk of the tools of published servers, as
// providers in dialect mcp: what plain clients see, what clients with the shield see
// (O20), what the log warns of, and that arguments are checked as far as they can be.
func TestQuirksOfToolsAreHandled(t *testing.T) {
	unused := map[string]bool{}
	tries := map[tried]bool{}
	for name, h := range toolQuirks {
		unused[name] = true
		for _, c := range h.tries {
			tries[c] = true
		}
	}
	for _, e := range corpusIndex(t) {
		t.Run(e.Prefix, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				var hello, list struct{ Result json.RawMessage }
				read(t, "testdata/corpus/"+e.Prefix+".initialize.json", &hello)
				read(t, "testdata/corpus/"+e.Prefix+".tools-list.json", &list)
				var own struct{ Tools []json.RawMessage }
				if err := json.Unmarshal(list.Result, &own); err != nil {
					t.Fatal(err)
				}
				w.mcpServer(provider, answers{
					"initialize": always(string(hello.Result)), "tools/list": always(string(list.Result)),
					"tools/call": always(done), "logging/setLevel": always("{}"),
				})
				time.Sleep(time.Second)
				plain := byName(t, w.all("b", "tools/list"))
				shielded := byName(t, w.all("b", "tools/list", w.open("b", "2025-11-25", "claude-code")...))
				want := map[string]string{}
				for name, raw := range byName(t, own.Tools) {
					want[name] = raw
					if plain[name] != raw {
						t.Errorf("%s is listed as %.200s", name, plain[name])
					}
				}
				warnings := 0
				for quirk, where := range e.ToolQuirks {
					h, known := toolQuirks[quirk]
					if !known {
						t.Errorf("nothing is said of the quirk %q", quirk)
					}
					delete(unused, quirk)
					for name, raw := range want {
						if h.from != "" {
							want[name] = strings.Replace(raw, h.from, h.to, 1)
						}
					}
					for _, name := range examples(where) {
						name, _, _ = strings.Cut(name, " (output)")
						if plain[name] == "" {
							t.Errorf("%s: no tool %q", quirk, name)
						}
						if h.warning != "" && !strings.Contains(w.log.String(), `msg="offer taken with a warning" bridge=b list=tools name=`+name+` warning="`+h.warning) {
							t.Errorf("%s: no warning of %s", quirk, name)
						}
					}
					if h.warning != "" {
						warnings += len(plain)
					}
				}
				for name, raw := range want {
					if shielded[name] != raw {
						t.Errorf("with the shield %s is\n%.300s, want\n%.300s", name, shielded[name], raw)
					}
				}
				if n := strings.Count(w.log.String(), "offer taken with a warning"); n != warnings {
					t.Errorf("%d warnings, want %d: %s", n, warnings, w.log)
				}
				for c := range tries {
					if plain[c.tool] == "" {
						continue
					}
					delete(tries, c)
					a := w.post("b", callBody("1", c.tool, c.arguments))
					switch passed := strings.HasSuffix(a.body, `"result":`+done+`}`); {
					case c.refusal == "" && !passed:
						t.Errorf("%s %s: %s", c.tool, c.arguments, a.body)
					case c.refusal != "" && (passed || !strings.Contains(a.body, c.refusal) || !strings.Contains(a.body, `"isError":true`)):
						t.Errorf("%s %s: %s, want %q", c.tool, c.arguments, a.body, c.refusal)
					}
				}
				w.end()
			})
		})
	}
	for name := range unused {
		t.Errorf("no server has the quirk %q", name)
	}
	for c := range tries {
		t.Errorf("no server has the tool %q", c.tool)
	}
}

func byName(t *testing.T, definitions []json.RawMessage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, raw := range definitions {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		all[tool.Name] = string(raw)
	}
	return all
}

// wireQuirks tells for each quirk of what servers say beside their tools what a client
// gets for the file that has it: "same" for the same bytes, a code for an error, and
// "" for what is the bridge's own to say or to take in.
var wireQuirks = map[string]string{
	`envelope starts with "result"`: "same", `envelope starts with "error"`: "", "raw < > & in strings": "same", "raw non-ASCII": "same", `\u escapes`: "same",
	"structuredContent": "same", "structuredContent without text": "same", "isError explicitly false": "same", "result _meta": "same", "content annotations": "same",
	"base64 inside text": "same", "hidden or control character in result text": "same",
	"result without content (members: toolResult)": "same", "toolResult instead of content": "same",
	"JSON-RPC error -32602": "-32602", "JSON-RPC error -32603": "-32603",
	"JSON-RPC error -32600": "-32603", "JSON-RPC error -32601": "-32603", // reserved: the bridge's own to say
	// Lists, which TestCorpusServersAsProviders reads whole, and handshakes.
	"line longer than 64 KiB": "", "message deeper than 16": "", "resources without description": "", "prompts with _meta": "", "resource blob": "",
	"resources declared, resources/templates/list answers -32601": "",
	`list result member "ttlMs"`:                                  "", `list result member "cacheScope"`: "", `list result member "resultType"`: "", `list result member "_meta"`: "",
	"serverInfo.title": "", "serverInfo.websiteUrl": "", "serverInfo.description": "", "instructions": "",
	"writes non-JSON lines to stdout": "", // mcpbridge run shows them; no provider sends them
}

// TestQuirksOfAnswersAreHandled: what published servers answer to calls reaches clients
// as it is; refusals keep their text, and codes that are the protocol's own become
// -32603.
func TestQuirksOfAnswersAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		reply := make(chan replayed, 1)
		w.mcpServer(provider, answers{"tools/call": func(q rpcMessage) string { return (<-reply).to(q) }})
		synctest.Wait()
		unused := map[string]bool{}
		for name := range wireQuirks {
			unused[name] = true
		}
		instructions := regexp.MustCompile(`^instructions .*`)
		for _, e := range corpusIndex(t) {
			for quirk, where := range e.WireQuirks {
				quirk = instructions.ReplaceAllString(quirk, "instructions")
				want, known := wireQuirks[quirk]
				if !known {
					t.Errorf("%s: nothing is said of the quirk %q", e.Prefix, quirk)
				}
				delete(unused, quirk)
				if want == "" {
					continue
				}
				for _, file := range examples(where) {
					if !strings.HasPrefix(file, "call") {
						continue
					}
					var r replayed
					read(t, "testdata/corpus/"+e.Prefix+"."+file, &r)
					reply <- r
					a := w.post("b", callBody("1", "a", "{}"))
					switch {
					case want == "same" && r.Result != nil:
						if a.body != `{"jsonrpc":"2.0","id":1,"result":`+string(r.Result)+`}` {
							t.Errorf("%s %s: changed on the way: %.200s", e.Prefix, file, a.body)
						}
					case want != "same":
						var said struct{ Message string }
						if err := json.Unmarshal(r.Error, &said); err != nil {
							t.Fatal(err)
						}
						var told struct {
							Error struct {
								Code    json.Number
								Message string
							}
						}
						if err := json.Unmarshal([]byte(a.body), &told); err != nil || told.Error.Code.String() != want || told.Error.Message != said.Message {
							t.Errorf("%s %s: %v, %.200s, want %s %s", e.Prefix, file, err, a.body, want, said.Message)
						}
					}
				}
			}
		}
		for name := range unused {
			t.Errorf("no server has the quirk %q", name)
		}
		w.end()
	})
}

// TestNothingUnseenIsTakenUnsaid: text that people do not see and models read is told,
// to the provider where the dialect has a way, and to the log where not.
func TestNothingUnseenIsTakenUnsaid(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	hidden := func(description string) string {
		return `{"name":"a","description":"` + description + `","inputSchema":{"type":"object"}}`
	}
	for description, want := range map[string]string{
		"plain text,\\n\\t\\\"quoted\\\" \\\\u200b \\/ é \\u00e9 \U0001F600":                "",
		"❤\uFE0F \U0001F468\u200D\U0001F469 \u200Fעברית\u200E می\u200Cخواهم \\ud83d\\ude00": "",
		"zero\u200Bwidth": "U+200B", "zero\\u200bwidth": "U+200B", "mark \uFEFF": "U+FEFF", "\u202Eturned": "U+202E", "\\u2066turned": "U+2066",
		"tags \U000E0041": "U+E0041", "tags \\udb40\\udc41": "U+E0041", "\\u001b[8mhidden": "U+001B", "\\b": "U+0008", "\u0085": "U+0085",
		"\u3164": "U+3164", "\U0001F600\ufe01\ufe02": "U+FE02", "\U0001F600\U000E0101": "U+E0101", "a\\u200c\\u200d": "U+200D", "\u200e\u200f": "U+200F",
		"a <!-- comment -->": "comment of HTML", "a \\u003C!-- comment -->": "comment of HTML", "a < !b": "",
	} {
		var ack struct{ Tools []struct{ Warnings []string } }
		if err := json.Unmarshal([]byte(p.register(hidden(description)).raw), &ack); err != nil || len(ack.Tools) != 1 {
			t.Fatalf("%s: %v, %v", description, err, ack)
		}
		if told := strings.Join(ack.Tools[0].Warnings, "; "); told == "" != (want == "") || !strings.Contains(told, want) {
			t.Errorf("%s: warned of %q, want %q", description, told, want)
		}
	}
}
