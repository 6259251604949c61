package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What the questions of a server of 2025-11-25 look like, and what is needed to be
// asked them.
var questionKinds = []struct{ caps, method, params, result string }{
	{`{"elicitation":{}}`, "elicitation/create", `{"message":"Who?","requestedSchema":{"type":"object"},"n":9007199254740993}`, `{"action":"accept","content":{"n":1.0}}`},
	{`{"sampling":{}}`, "sampling/createMessage", `{"messages":[],"maxTokens":5}`, `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`},
	{`{"roots":{}}`, "roots/list", `{}`, `{"roots":[{"uri":"file:///x"}]}`},
}

// ask sends a request of the server's own.
func (m *mcpPeer) ask(id, method, params string) {
	m.t.Helper()
	m.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
}

// wantReply is the server's next message, which must answer its request.
func (m *mcpPeer) wantReply(want string) {
	m.t.Helper()
	if q := m.next(""); q.raw != want {
		m.t.Errorf("the server is answered %s, want %s", q.raw, want)
	}
}

func questionsOf(t *testing.T, body string) (requests map[string]json.RawMessage, state string) {
	t.Helper()
	var m struct {
		Result struct {
			ResultType    string
			InputRequests map[string]json.RawMessage
			RequestState  string
		}
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.Result.ResultType != "input_required" || m.Result.RequestState == "" {
		t.Fatalf("%v: %s, want input_required", err, body)
	}
	return m.Result.InputRequests, m.Result.RequestState
}

func TestALegacyServersQuestionsReachModernClients(t *testing.T) {
	for _, k := range questionKinds {
		t.Run(k.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				s := w.mcpServer(provider, nil)
				w.listed("b", "tools/list")
				body, h := withCaps(k.caps, "")
				first := w.later(func() answer { return w.post("b", body, h...) })
				q := s.next("tools/call")
				s.ask(`"q1"`, k.method, k.params)
				s.ask(`2`, k.method, k.params)
				requests, state := questionsOf(t, (<-first).body)
				want := `{"method":"` + k.method + `","params":` + k.params + `}`
				if string(requests["ask-1"]) != want {
					t.Fatalf("asked %s, want %s", requests, want)
				}
				time.Sleep(5 * time.Minute) // a person thinks
				again := func(state, responses string) <-chan answer {
					body, h := withCaps(k.caps, `,"requestState":"`+state+`","inputResponses":`+responses)
					return w.later(func() answer { return w.post("b", body, h...) })
				}
				if len(requests) == 1 { // the second question came a moment later
					second := again(state, `{"ask-1":`+k.result+`}`)
					requests, state = questionsOf(t, (<-second).body)
					s.wantReply(`{"jsonrpc":"2.0","id":"q1","result":` + k.result + `}`)
				}
				last := again(state, `{"ask-1":`+k.result+`,"ask-2":`+k.result+`}`)
				if len(requests) == 2 {
					s.wantReply(`{"jsonrpc":"2.0","id":"q1","result":` + k.result + `}`)
				}
				s.wantReply(`{"jsonrpc":"2.0","id":2,"result":` + k.result + `}`)
				s.send(q.reply(done))
				if a := <-last; !strings.Contains(a.body, `"text":"done"`) || !strings.Contains(a.body, `"resultType":"complete"`) {
					t.Errorf("the call ended with %s", a.body)
				}
				if a := <-again(state, `{}`); !strings.Contains(a.body, "outcome is unknown") || !strings.Contains(a.body, `"isError":true`) {
					t.Errorf("the same state a second time: %s", a.body)
				}
				changed := []byte(state)
				if changed[10] = 'A'; state[10] == 'A' {
					changed[10] = 'B'
				}
				body, h = withCaps(k.caps, `,"requestState":"`+string(changed)+`","inputResponses":{}`)
				if a := w.post("b", body, h...); !strings.Contains(a.body, `"code":-32602`) {
					t.Errorf("a changed state: %s", a.body)
				}
				_ = s.ws.CloseNow()
				w.end()
			})
		})
	}
}

// all reads the stream until its end, so that the bridge is never kept from writing.
func (e *events) all() <-chan string {
	c := make(chan string, 100)
	go func() {
		defer close(c)
		for {
			data, err := e.next()
			if err != nil {
				return
			}
			c <- data
		}
	}()
	return c
}

func TestALegacyServersQuestionsReachLegacyClients(t *testing.T) {
	for _, k := range questionKinds {
		t.Run(k.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				s := w.mcpServer(provider, nil)
				w.listed("b", "tools/list")
				headers := w.initializeAs("b", "2025-11-25", k.caps)
				stream := make(chan *events, 1)
				go func() { stream <- w.stream("POST", w.mcpURL("b"), progressCall("5", `"t"`), headers...) }()
				q := s.next("tools/call")
				s.ask(`1`, k.method, k.params)
				s.ask(`"1"`, k.method, k.params)
				e := <-stream
				all := e.all()
				want := func(substring string) string {
					t.Helper()
					data := <-all
					if !strings.Contains(data, substring) {
						t.Fatalf("event %q, want one with %q", data, substring)
					}
					return data
				}
				var one, two rpcMessage
				read := func(m *rpcMessage) {
					if err := json.Unmarshal([]byte(want(k.method)), m); err != nil {
						t.Fatal(err)
					}
				}
				read(&one)
				read(&two)
				var token string
				_ = json.Unmarshal(q.Params.Meta["progressToken"], &token)
				s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` + token + `","progress":1}}`)
				want("notifications/progress") // the questions hold nothing up
				time.Sleep(5 * time.Minute)
				if a := w.post("b", `{"jsonrpc":"2.0","id":`+string(two.ID)+`,"result":`+k.result+`}`, headers...); a.status != 202 {
					t.Errorf("the answer: %d %s", a.status, a.body)
				}
				s.wantReply(`{"jsonrpc":"2.0","id":"1","result":` + k.result + `}`)
				const refusal = `{"code":-1,"message":"no","data":[1]}`
				w.post("b", `{"jsonrpc":"2.0","id":`+string(one.ID)+`,"error":`+refusal+`}`, headers...)
				s.wantReply(`{"jsonrpc":"2.0","id":1,"error":` + refusal + `}`)
				s.send(q.reply(done))
				for data := want(""); !strings.Contains(data, `"id":5,"result":`+done); data = want("") {
					if !strings.Contains(data, "notifications/progress") {
						t.Fatalf("told %s", data)
					}
				}
				e.close()
				_ = s.ws.CloseNow()
				w.end()
			})
		})
	}
}

func TestClientsThatCannotBeAskedAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		legacy := w.initializeAs("b", "2025-11-25", `{"sampling":{}}`)
		body, modern := withCaps(`{"sampling":{}}`, "")
		calls := []func() answer{
			func() answer { return w.post("b", callBody("1", "a", "{}")) },
			func() answer { return w.post("b", callBody("1", "a", "{}"), legacy...) },
			func() answer { return w.post("b", body, modern...) },
		}
		for n, call := range calls {
			got := w.later(call)
			q := s.next("tools/call")
			s.ask(`1`, "elicitation/create", `{"message":"m"}`)
			m := s.next("")
			if m.Error == nil || m.Error.Code != -32601 || n > 0 && !strings.Contains(m.raw, "did not declare elicitation") {
				t.Errorf("client %d: the server is answered %s", n, m.raw)
			}
			s.ask(`2`, "roots/list", `{}`)
			s.wantReply(`{"jsonrpc":"2.0","id":2,"result":{"roots":[]}}`)
			s.ask(`3`, "elicitation/create", `[]`)
			if m := s.next(""); m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("params that are no object: %s", m.raw)
			}
			s.send(q.reply(done))
			if a := <-got; !strings.Contains(a.body, `"text":"done"`) {
				t.Errorf("client %d: %s", n, a.body)
			}
		}
		s.ask(`4`, "elicitation/create", `{}`) // with no call in flight
		if m := s.next(""); m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("without a call: %s", m.raw)
		}
		s.ask(`5`, "roots/list", `{}`) // who is told "none" might never ask again
		if m := s.next(""); m.Error == nil || !strings.Contains(m.raw, "no call is in flight") {
			t.Errorf("roots without a call: %s", m.raw)
		}
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestQuestionsNeverReachAnothersClient: the server does not say for which call it
// asks, so with several in flight it is not guessed.
func TestQuestionsNeverReachAnothersClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		body, h := withCaps(`{"elicitation":{}}`, "")
		call := func() (<-chan answer, rpcMessage) {
			got := w.later(func() answer { return w.post("b", body, h...) })
			return got, s.next("tools/call")
		}
		first, q1 := call()
		second, q2 := call()
		s.ask(`1`, "elicitation/create", `{"of":"second"}`)
		synctest.Wait()
		s.send(q1.reply(done))
		if a := <-first; !strings.Contains(a.body, `"text":"done"`) {
			t.Fatalf("the first call ended with %s", a.body)
		}
		if requests, _ := questionsOf(t, (<-second).body); !strings.Contains(string(requests["ask-1"]), "second") {
			t.Fatalf("the second was asked %s", requests)
		}
		s.send(q2.reply(done)) // and now wants no answer any more
		if m := s.next(""); m.Error == nil || !strings.Contains(m.raw, "has ended") {
			t.Errorf("the server is answered %s", m.raw)
		}
		first, q1 = call()
		second, q2 = call()
		s.ask(`2`, "elicitation/create", `{}`)
		time.Sleep(11 * time.Second)
		if m := s.next(""); m.Error == nil || m.Error.Code != -32603 || !strings.Contains(m.raw, "does not say for which it asks") {
			t.Errorf("nobody knows whose: %s", m.raw)
		}
		s.send(q1.reply(done))
		s.send(q2.reply(done))
		<-first
		<-second
		_ = s.ws.CloseNow()
		w.end()
	})
}

func TestAHeldCallEnds(t *testing.T) {
	for name, end := range map[string]func(w *world, s *mcpPeer){
		"when nobody answers": func(_ *world, s *mcpPeer) {
			time.Sleep(11 * time.Minute)
			if q := s.next("notifications/cancelled"); q.Params.RequestID == "" {
				s.t.Errorf("the server is told %s", q.raw)
			}
		},
		"with its server":  func(_ *world, s *mcpPeer) { _ = s.ws.CloseNow() },
		"with the process": func(w *world, _ *mcpPeer) { w.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble)
				s := w.mcpServer(provider, nil)
				w.listed("b", "tools/list")
				body, h := withCaps(`{"elicitation":{}}`, "")
				first := w.later(func() answer { return w.post("b", body, h...) })
				s.next("tools/call")
				s.ask(`1`, "elicitation/create", `{}`)
				_, state := questionsOf(t, (<-first).body)
				end(w, s)
				synctest.Wait()
				body, h = withCaps(`{"elicitation":{}}`, fmt.Sprintf(`,"requestState":%q,"inputResponses":{"ask-1":{}}`, state))
				if a := w.post("b", body, h...); !strings.Contains(a.body, "outcome is unknown") || !strings.Contains(a.body, `"isError":true`) {
					t.Errorf("the answer comes too late: %s", a.body)
				}
				_ = s.ws.CloseNow()
				w.end()
			})
		})
	}
}
