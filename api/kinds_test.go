package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"mcpbridge/session"
)

// actor is a provider that offers every kind, attached to the session itself: it
// stands for one of a dialect that carries more than tools.
type actor struct {
	i      *session.Instance
	answer func(c *session.Call) (string, error)
}

func (a *actor) Deliver(d session.Delivery, _ int) session.Room {
	d.Claim()
	result, err := a.answer(d.Call)
	id := d.Call.AppendID(nil)
	d.Written()
	if err != nil {
		_ = a.i.Fail(id, err)
	} else {
		_ = a.i.Finish(id, session.Result{Raw: []byte(result)})
	}
	return session.HasRoom
}
func (*actor) Start()                               {}
func (*actor) Cancel(*session.Call, session.Reason) {}
func (*actor) Close(error)                          {}

func offer(kind session.Kind, member, name string) session.Tool {
	head := `{"` + member + `":`
	return session.Tool{
		Kind: kind, Name: name, NameAt: len(head), NameEnd: len(head) + len(name) + 2,
		Definition: []byte(head + `"` + name + `","description":"d"}`),
	}
}

// actor attaches a provider with some of every kind.
func (w *world) actor(bridge session.BridgeID, name session.ProviderID, offers ...session.Tool) *actor {
	w.t.Helper()
	s, err := w.dir.Session(w.t.Context(), bridge)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &actor{answer: func(c *session.Call) (string, error) {
		return fmt.Sprintf(`{"by":%q,"method":%q,"name":%q,"arguments":%q,"extra":%q}`, name, c.Method, c.Name(), c.Arguments, c.Extra), nil
	}}
	if a.i, err = s.Attach(session.Hello{Provider: name, Retain: -1}, a, time.Now()); err != nil {
		w.t.Fatal(err)
	}
	told := make(chan session.Registered, 1)
	if err := a.i.Register(offers, func(r session.Registered) { told <- r }); err != nil {
		w.t.Fatal(err)
	}
	<-told
	return a
}

func everything() []session.Tool {
	return []session.Tool{
		offer(session.KindTool, "name", "a"), offer(session.KindPrompt, "name", "a"),
		offer(session.KindResource, "uri", "test://r"), offer(session.KindTemplate, "uriTemplate", "test://t/{id}/x"),
	}
}

func rpc(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`
}

func TestEveryKindIsListed(t *testing.T) {
	w := start(t)
	w.actor("b", "p", everything()...)
	for method, want := range map[string]string{
		"tools/list":               `"tools":[{"name":"a","description":"d"}]`,
		"prompts/list":             `"prompts":[{"name":"a","description":"d"}]`,
		"resources/list":           `"resources":[{"uri":"test://r","description":"d"}]`,
		"resources/templates/list": `"resourceTemplates":[{"uriTemplate":"test://t/{id}/x","description":"d"}]`,
	} {
		if a := w.post("b", rpc(method, "")); a.body != `{"jsonrpc":"2.0","id":1,"result":{`+want+`}}` {
			t.Errorf("%s: %s", method, a.body)
		}
		if a := w.modern("b", method, "", ""); !strings.Contains(a.body, `"result":{`+want+`,"ttlMs":1000,"cacheScope":"private","resultType":"complete"`) {
			t.Errorf("modern %s: %s", method, a.body)
		}
		if a := w.post("empty", rpc(method, "")); !strings.Contains(a.body, `":[]}`) {
			t.Errorf("%s of a bridge without: %s", method, a.body)
		}
	}
}

func TestRequestsReachWhoOffersWhatTheyName(t *testing.T) {
	w := start(t)
	w.actor("b", "p", everything()...)
	w.actor("b", "q", offer(session.KindPrompt, "name", "a"), offer(session.KindResource, "uri", "test://r"),
		offer(session.KindTemplate, "uriTemplate", "test://t/{id}/x"))
	for _, c := range []struct{ method, params, want string }{
		{"prompts/get", `"name":"a","arguments":{"x":"1"}`, `"by":"p","method":"prompts/get","name":"a","arguments":"{\"x\":\"1\"}"`},
		{"prompts/get", `"name":"a-8e35"`, `"by":"q","method":"prompts/get","name":"a"`},
		{"prompts/get", `"name":"z"`, `"code":-32602,"message":"unknown prompt"`},
		{"resources/read", `"uri":"test://r"`, `"by":"p","method":"resources/read","name":"test://r"`},
		{"resources/read", `"uri":"test://r#bridge-8e35"`, `"by":"q","method":"resources/read","name":"test://r"`},
		{"resources/read", `"uri":"test://t/7/x"`, `"by":"p","method":"resources/read","name":"test://t/7/x"`},
		{"resources/read", `"uri":"test://t/7/x#bridge-8e35"`, `"by":"q","method":"resources/read","name":"test://t/7/x"`},
		{"resources/read", `"uri":"test://nowhere"`, `"code":-32002,"message":"unknown resource","data":{"uri":"test://nowhere"}`},
		{
			"completion/complete", `"ref":{"type":"ref/prompt","name":"a-8e35"},"argument":{"name":"x","value":"v"},"context":{"arguments":{}}`,
			`"by":"q","method":"completion/complete","name":"a","arguments":"","extra":"\"argument\":{\"name\":\"x\",\"value\":\"v\"},\"context\":{\"arguments\":{}}"`,
		},
		{"completion/complete", `"ref":{"type":"ref/resource","uri":"test://t/{id}/x"},"argument":{"name":"id","value":""}`, `"by":"p","method":"completion/complete","name":"test://t/{id}/x"`},
		{"completion/complete", `"ref":{"type":"ref/prompt","name":"z"},"argument":{}`, `"code":-32602`},
		{"completion/complete", `"ref":{"type":"ref/other"},"argument":{}`, `"code":-32602`},
	} {
		if a := w.post("b", rpc(c.method, c.params)); !strings.Contains(a.body, c.want) {
			t.Errorf("%s %s\n got %s\nwant %s", c.method, c.params, a.body, c.want)
		}
	}
	if a := w.modern("b", "resources/read", "test://nowhere", `"uri":"test://nowhere"`); !strings.Contains(a.body, `"code":-32602,"message":"unknown resource","data":{"uri":"test://nowhere"}`) {
		t.Errorf("modern: %s", a.body)
	}
	if a := w.modern("b", "resources/read", "test://r", `"uri":"test://r"`); !strings.Contains(a.body, `"resultType":"complete","ttlMs":1000,"cacheScope":"private"`) {
		t.Errorf("modern read: %s", a.body)
	}
	if a := w.modern("b", "resources/read", "test://other", `"uri":"test://r"`); a.status != 400 || !strings.Contains(a.body, "-32020") {
		t.Errorf("another Mcp-Name: %d %s", a.status, a.body)
	}
	// A bridge with one provider of resources need not list them all.
	w.actor("c", "p", offer(session.KindResource, "uri", "test://r"))
	if a := w.post("c", rpc("resources/read", `"uri":"ui://unlisted"`)); !strings.Contains(a.body, `"name":"ui://unlisted"`) {
		t.Errorf("unlisted: %s", a.body)
	}
}

func TestProvidersFaultsAreErrorsWhereNoModelReads(t *testing.T) {
	w := start(t)
	a := w.actor("b", "p", everything()...)
	a.answer = func(*session.Call) (string, error) {
		return "", &session.ProtocolError{Code: -32601, Message: "no such method"}
	}
	if a := w.post("b", rpc("completion/complete", `"ref":{"type":"ref/prompt","name":"a"},"argument":{}`)); a.body != `{"jsonrpc":"2.0","id":1,"result":{"completion":{"values":[],"total":0,"hasMore":false}}}` {
		t.Errorf("completion: %s", a.body)
	}
	a.answer = func(*session.Call) (string, error) {
		return "", &session.ProtocolError{Code: -32002, Message: "gone"}
	}
	if a := w.post("b", rpc("resources/read", `"uri":"test://r"`)); !strings.Contains(a.body, `"error":{"code":-32002`) {
		t.Errorf("legacy: %s", a.body)
	}
	if a := w.modern("b", "resources/read", "test://r", `"uri":"test://r"`); !strings.Contains(a.body, `"error":{"code":-32602`) {
		t.Errorf("modern: %s", a.body)
	}
	a.i.Detach(time.Now())
	if a := w.post("b", rpc("prompts/get", `"name":"a"`)); !strings.Contains(a.body, `"error":{"code":-32603`) || !strings.Contains(a.body, "is not connected since") {
		t.Errorf("away: %s", a.body)
	}
}

func TestStreamsTellWhatTheyWereAskedFor(t *testing.T) {
	w := start(t)
	p := w.actor("b", "p", everything()...)
	headers := w.initialize("b")
	legacy := w.stream("GET", w.mcpURL("b"), "", headers...)
	if a := w.post("b", rpc("resources/subscribe", `"uri":"test://r"`), headers...); a.body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Fatalf("subscribe: %s", a.body)
	}
	body, h := modernRequest("subscriptions/listen", "", `"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["test://t/1/x"]}`)
	modern := w.stream("POST", w.mcpURL("b"), body, h...)
	modern.want(`"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["test://t/1/x"]}`)

	_ = p.i.Updated("test://r")
	legacy.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://r"}}`)
	_ = p.i.Updated("test://t/1/x")
	modern.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://t/1/x","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
	_ = p.i.Register([]session.Tool{offer(session.KindPrompt, "name", "b")}, nil)
	legacy.want("notifications/prompts/list_changed")
	_ = p.i.Register([]session.Tool{offer(session.KindTemplate, "uriTemplate", "test://u/{id}")}, nil)
	legacy.want("notifications/resources/list_changed")
	modern.want("notifications/resources/list_changed") // and nothing of the prompt
	w.post("b", rpc("resources/unsubscribe", `"uri":"test://r"`), headers...)
	_ = p.i.Updated("test://r")
	_ = p.i.Register([]session.Tool{offer(session.KindTool, "name", "c")}, nil)
	legacy.want("notifications/tools/list_changed") // and nothing of the resource
}

// TestListenersSubscribe: a provider hears which resources clients of 2026-07-28 listen
// to, and when they no longer do.
func TestListenersSubscribe(t *testing.T) {
	w := start(t)
	p := w.actor("b", "p", everything()...)
	told := make(chan string, 4)
	p.answer = func(c *session.Call) (string, error) {
		told <- c.Method + " " + c.Name()
		return `{}`, nil
	}
	body, h := modernRequest("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["test://r","test://t/1/x"]}`)
	s := w.stream("POST", w.mcpURL("b"), body, h...)
	s.want(`"notifications":{"resourceSubscriptions":["test://r","test://t/1/x"]}`)
	for _, method := range []string{"subscribe", "unsubscribe"} {
		for _, uri := range []string{"test://r", "test://t/1/x"} {
			if got, want := <-told, "resources/"+method+" "+uri; got != want {
				t.Errorf("the provider was told %q, want %q", got, want)
			}
		}
		s.close()
	}

	// One that is away holds nobody up.
	p.i.Detach(time.Now())
	s = w.stream("POST", w.mcpURL("b"), body, h...)
	s.want(`"notifications":{"resourceSubscriptions":["test://r","test://t/1/x"]}`)
}

func TestKindsOutliveTheProcess(t *testing.T) {
	w := start(t)
	w.actor("b", "p", everything()...)
	w.restart()
	for method, want := range map[string]string{"prompts/list": `"name":"a"`, "resources/list": "test://r", "resources/templates/list": "test://t/{id}/x"} {
		if a := w.post("b", rpc(method, "")); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s", method, a.body)
		}
	}
}
