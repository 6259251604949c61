package api_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestMcpNameIsDecodedBeforeItIsCompared holds O17: names that a header cannot carry as
// they are come in Base64, on every method that has the header.
func TestMcpNameIsDecodedBeforeItIsCompared(t *testing.T) {
	coded := func(name string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?=" }
	const looksCoded, upper = "=?base64?eA==?=", "=?BASE64?eA==?="
	names := []string{"été", " leading", "trailing\t", "line\nend", looksCoded, upper, "plain", "😀"}
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		list := func(member, rest string) string {
			var all []string
			for _, name := range names {
				quoted, _ := json.Marshal(name)
				all = append(all, `{"`+member+`":`+string(quoted)+rest+`}`)
			}
			return strings.Join(all, ",")
		}
		w.mcpServer(provider, answers{
			"resources/list": always(`{"resources":[` + list("uri", `,"name":"r"`) + `]}`),
			"resources/read": func(q rpcMessage) string {
				quoted, _ := json.Marshal(q.Params.URI)
				return q.reply(`{"contents":[],"was":` + string(quoted) + `}`)
			},
			"tools/call": always(done),
		})
		time.Sleep(time.Second)
		for _, c := range []struct{ method, member string }{{"prompts/get", "name"}, {"resources/read", "uri"}, {"tasks/get", "taskId"}, {"tasks/cancel", "taskId"}, {"tasks/update", "taskId"}} {
			ask := func(header, name string) answer {
				quoted, _ := json.Marshal(name)
				return w.tasker("b", c.method, header, `"inputResponses":{},"`+c.member+`":`+string(quoted))
			}
			for _, name := range names {
				quoted, _ := json.Marshal(name)
				a := ask(coded(name), name)
				switch found := strings.Contains(a.body, `"was":`+string(quoted)); {
				case c.method == "resources/read" && !found:
					t.Errorf("%s %q: %d %s", c.method, name, a.status, a.body)
				case !found && !strings.Contains(a.body, `"code":-32602`): // nobody has it, which is found out behind the header
					t.Errorf("%s %q: %d %s", c.method, name, a.status, a.body)
				}
			}
			if a := ask(upper, upper); strings.Contains(a.body, "-32020") {
				t.Errorf("%s: an upper-case marker is no marker, but %s", c.method, a.body)
			}
			for header, name := range map[string]string{
				looksCoded:           looksCoded,                                        // which says x
				"=?base64?w6l0w6k?=": "été", "=?base64?!?=": "x", "=?base64?eA=?=": "x", // bad padding, bad alphabet
				coded("été"): "ete", upper: "x", "eA==": "x", "": "x", coded(""): "x",
			} {
				if a := ask(header, name); a.status != http.StatusBadRequest || !strings.Contains(a.body, `"code":-32020`) {
					t.Errorf("%s %q for %q: %d %s", c.method, header, name, a.status, a.body)
				}
			}
		}
		if a := w.modern("b", "tools/call", coded("a"), `"name":"a"`); a.status != http.StatusOK || !strings.Contains(a.body, `"done"`) {
			t.Errorf("tools/call: %d %s", a.status, a.body)
		}
		w.end()
	})
}
