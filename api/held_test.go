package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/store"
)

const elicits = `{"elicitation":{}}`

// asked is a modern client's call that a legacy server's question has reached.
type asked struct {
	call     rpcMessage // as the server has it
	requests map[string]json.RawMessage
	state    string
}

// heldCall makes a call and has the server ask for something under a raw id.
func (w *world) heldCall(s *mcpPeer, id string, headers ...string) asked {
	w.t.Helper()
	body, h := withCaps(elicits, "")
	got := w.later(func() answer { return w.post("b", body, append(h, headers...)...) })
	q := s.next("tools/call")
	s.ask(id, "elicitation/create", `{"message":"Who?"}`)
	synctest.Wait()
	requests, state := questionsOf(w.t.(*testing.T), (<-got).body)
	return asked{q, requests, state}
}

// comeBack answers the question of a held call.
func (w *world) comeBack(state, responses string, headers ...string) <-chan answer {
	body, h := withCaps(elicits, fmt.Sprintf(`,"requestState":%q,"inputResponses":%s`, state, responses))
	return w.later(func() answer { return w.post("b", body, append(h, headers...)...) })
}

// asksLegacy opens a call of a legacy client, has the server ask for something, and returns
// the call's stream from the question on.
func (w *world) asksLegacy(s *mcpPeer, id string, headers ...string) (rpcMessage, *events, <-chan string, rpcMessage) {
	w.t.Helper()
	stream := make(chan *events, 1)
	go func() { stream <- w.stream("POST", w.mcpURL("b"), callBody("5", "a", "{}"), headers...) }()
	q := s.next("tools/call")
	s.ask(id, "elicitation/create", `{"message":"Who?"}`)
	e := <-stream
	all := e.all()
	var m rpcMessage
	if err := json.Unmarshal([]byte(<-all), &m); err != nil || m.Method != "elicitation/create" {
		w.t.Fatalf("%v: the client is asked %+v", err, m)
	}
	return q, e, all, m
}

// shared starts bridge b with a legacy server and two clients of different tokens.
func shared(t *testing.T) (w *world, s *mcpPeer, ann, ben []string) {
	t.Helper()
	w = start(t, inBubble, withAuth)
	var tokens []store.Token
	token := func(kind store.TokenKind) []string {
		token, secret := credential.New(kind, "b", time.Now())
		tokens = append(tokens, token)
		return []string{"Authorization", "Bearer " + secret.Reveal()}
	}
	ann, ben = token(store.ClientToken), token(store.ClientToken)
	provides := token(store.ProviderToken)
	if err := w.store.CreateBridge(t.Context(), 1, store.Bridge{ID: "b", Name: "b"}, tokens...); err != nil {
		t.Fatal(err)
	}
	s = w.mcpServer("/b/b/provider", nil, provides...)
	synctest.Wait()
	return w, s, ann, ben
}

func TestAHeldCallIsItsPrincipalsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, ann, ben := shared(t)
		c := w.heldCall(s, `1`, ann...)
		if a := <-w.comeBack(c.state, `{"ask-1":{"action":"accept"}}`, ben...); !strings.Contains(a.body, `"code":-32602`) {
			t.Errorf("another principal's state: %s", a.body)
		}
		s.nothing()
		got := w.comeBack(c.state, `{"ask-1":{"action":"accept"}}`, ann...)
		s.wantReply(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
		s.send(c.call.reply(done))
		if a := <-got; !strings.Contains(a.body, `"text":"done"`) {
			t.Errorf("the call ended with %s", a.body)
		}
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestWhatACancelledCallAsksReachesNobodyElse: this server goes on with what was
// cancelled, as many do.
func TestWhatACancelledCallAsksReachesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, ann, ben := shared(t)
		body, h := withCaps(elicits, "")
		anns := w.later(func() answer { return w.post("b", body, append(h, ann...)...) })
		q := s.next("tools/call")
		time.Sleep(61 * time.Second)
		<-anns
		s.next("notifications/cancelled")
		bens := w.later(func() answer { return w.post("b", body, append(h, ben...)...) })
		bensCall := s.next("tools/call")
		s.ask(`1`, "elicitation/create", `{"message":"Ann, delete everything?"}`)
		time.Sleep(11 * time.Second)
		if m := s.next(""); m.Error == nil || m.Error.Code != -32603 {
			t.Errorf("the server is answered %s", m.raw)
		}
		s.send(q.reply(done)) // ann's, too late
		s.ask(`2`, "elicitation/create", `{"message":"Ben?"}`)
		requests, _ := questionsOf(t, (<-bens).body)
		if len(requests) != 1 || !strings.Contains(string(requests["ask-1"]), "Ben?") {
			t.Errorf("ben is asked %s", requests)
		}
		s.send(bensCall.reply(done))
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestClientsOfBothErasAtOnceAreNotMixed: each is asked what its own call asks.
func TestClientsOfBothErasAtOnceAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		one, two := w.mcpServer("/b/b/provider?provider=one", nil), w.mcpServer("/b/b/provider?provider=two", answers{"tools/list": always(`{"tools":[` + tool("z") + `]}`)})
		w.listed("b", "tools/list")
		headers := w.initializeAs("b", "2025-06-18", elicits)
		_, e, all, m := w.asksLegacy(one, `1`, headers...)
		body, h := modernRequest("tools/call", "z", `"name":"z","arguments":{}`)
		body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":`+elicits, 1)
		got := w.later(func() answer { return w.post("b", body, h...) })
		q := two.next("tools/call")
		two.ask(`1`, "elicitation/create", `{"message":"z?"}`)
		requests, state := questionsOf(t, (<-got).body)
		if !strings.Contains(string(requests["ask-1"]), "z?") {
			t.Errorf("the modern client is asked %s", requests)
		}
		w.post("b", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"action":"decline"}}`, headers...)
		one.wantReply(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
		two.nothing()
		body = strings.Replace(body, `"arguments":{}`, fmt.Sprintf(`"arguments":{},"requestState":%q,"inputResponses":{"ask-1":{"action":"cancel"}}`, state), 1)
		got = w.later(func() answer { return w.post("b", body, h...) })
		two.wantReply(`{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`)
		one.nothing()
		two.send(q.reply(done))
		<-got
		_ = one.ws.CloseNow()
		if data := <-all; !strings.Contains(data, `"id":5`) || !strings.Contains(data, "unknown") {
			t.Errorf("the legacy call ended with %s", data)
		}
		e.close()
		_ = two.ws.CloseNow()
		w.end()
	})
}

func TestAServerTakesItsQuestionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		headers := w.initializeAs("b", "2025-11-25", elicits)
		q, e, all, m := w.asksLegacy(s, `"x"`, headers...)
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
		if got, want := <-all, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+string(m.ID)+`}}`; got != want {
			t.Errorf("the client is told %s, want %s", got, want)
		}
		w.post("b", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{}}`, headers...)
		s.nothing()
		s.ask(`"x"`, "elicitation/create", `{}`) // its id is free again
		<-all
		s.send(q.reply(done))
		if data := <-all; !strings.Contains(data, "notifications/cancelled") {
			t.Errorf("the call has ended and its client is told %s", data)
		}
		if m := s.next(""); m.Error == nil || !strings.Contains(m.raw, "has ended") {
			t.Errorf("the server is answered %s", m.raw)
		}
		if data := <-all; !strings.Contains(data, `"id":5,"result":`+done) {
			t.Errorf("the call ended with %s", data)
		}
		e.close()

		c := w.heldCall(s, `7`)
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		s.nothing() // it has been read before the client comes back
		got := w.comeBack(c.state, `{"ask-1":{"action":"accept"}}`)
		s.nothing()
		s.send(c.call.reply(done))
		if a := <-got; !strings.Contains(a.body, `"text":"done"`) {
			t.Errorf("the call ended with %s", a.body)
		}
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestAnswersStartTheCallsTimeAnew: a person has ten minutes, and a server after that
// what it has without a question.
func TestAnswersStartTheCallsTimeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		headers := w.initializeAs("b", "2025-11-25", elicits)
		ends := func(all <-chan string, want string) time.Duration {
			t.Helper()
			from := time.Now()
			for data := range all {
				if strings.Contains(data, `"id":5`) {
					if !strings.Contains(data, want) {
						t.Errorf("the call ended with %s", data)
					}
					break
				}
			}
			return time.Since(from)
		}
		_, e, all, m := w.asksLegacy(s, `1`, headers...)
		time.Sleep(time.Minute)
		w.post("b", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{}}`, headers...)
		if took := ends(all, "deadline passed"); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("after the answer the call lasted %v", took)
		}
		e.close()
		s.next("")
		s.next("notifications/cancelled")
		_, e, all, _ = w.asksLegacy(s, `2`, headers...)
		if took := ends(all, "deadline passed"); took < 599*time.Second || took > 601*time.Second {
			t.Errorf("without an answer the call lasted %v", took)
		}
		e.close()
		_ = s.ws.CloseNow()
		w.end()
	})
}

func TestHeldCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		for n := range 64 { // that end while they are held, so that each is the only one in flight
			c := w.heldCall(s, fmt.Sprint(n))
			s.send(c.call.reply(done))
			s.next("")
		}
		body, h := withCaps(elicits, "")
		got := w.later(func() answer { return w.post("b", body, h...) })
		q := s.next("tools/call")
		s.ask(`64`, "elicitation/create", `{}`)
		if m := s.next(""); m.Error == nil || !strings.Contains(m.raw, "at most 64") {
			t.Errorf("the server is answered %s", m.raw)
		}
		s.send(q.reply(done)) // without
		if a := <-got; !strings.Contains(a.body, `"text":"done"`) {
			t.Errorf("the call ended with %s", a.body)
		}
		time.Sleep(11 * time.Minute) // all are given up
		w.heldCall(s, `65`)
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestAHeldCallsArgumentsAreItsOwn: they lie in the memory of a request that has been
// answered, and are read again when the call becomes a task.
func TestAHeldCallsArgumentsAreItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		call := func(arguments, more string) <-chan answer {
			body, h := taskRequest("tools/call", "a", `"name":"a","arguments":`+arguments+more)
			return w.later(func() answer { return w.post("b", body, h...) })
		}
		const arguments = `{"mine":"0123456789"}`
		first := call(arguments, "")
		s.next("tools/call")
		s.ask(`1`, "elicitation/create", `{"message":"Who?"}`)
		_, state := questionsOf(t, (<-first).body)
		for range 20 { // so that the memory would be in use again
			other := call(`{"other":"9999999999"}`, "")
			q := s.next("tools/call")
			s.send(q.reply(done))
			<-other
		}
		// The same, written otherwise, so that it does not read alike where it lies.
		again := call(`{ "mine" : "0123456789" }`, fmt.Sprintf(`,"requestState":%q,"inputResponses":{"ask-1":{}}`, state))
		k := readTask(t, <-again) // after 10 s
		if k.ResultType != "task" {
			t.Fatalf("the call has become %+v", k)
		}
		snap, err := w.store.Load(t.Context(), "b")
		if err != nil || len(snap.Tasks) != 1 || string(snap.Tasks[0].Arguments) != arguments {
			t.Errorf("%v: the task is recorded as %+v", err, snap.Tasks)
		}
		_ = s.ws.CloseNow()
		w.end()
	})
}

func TestHeldCallsEndWhenTheProcessIsToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		c := w.heldCall(s, `1`)
		w.server.Drain()
		if q := s.next("notifications/cancelled"); `"`+q.Params.RequestID+`"` != string(c.call.ID) {
			t.Errorf("the server is told %s", q.raw)
		}
		if m := s.next(""); m.Error == nil {
			t.Errorf("the server is answered %s", m.raw)
		}
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestOnlyRequestsThatMayAskDo: completion is none of them.
func TestOnlyRequestsThatMayAskDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, answers{"prompts/list": always(`{"prompts":[{"name":"q"}]}`)})
		w.listed("b", "prompts/list")
		body, h := modernRequest("completion/complete", "", `"ref":{"type":"ref/prompt","name":"q"},"argument":{"name":"x","value":"y"}`)
		body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":`+elicits, 1)
		got := w.later(func() answer { return w.post("b", body, h...) })
		q := s.next("completion/complete")
		s.ask(`1`, "elicitation/create", `{}`)
		if m := s.next(""); m.Error == nil || m.Error.Code != -32601 {
			t.Errorf("the server is answered %s", m.raw)
		}
		s.send(q.reply(`{"completion":{"values":["z"]}}`))
		if a := <-got; !strings.Contains(a.body, `"values":["z"]`) {
			t.Errorf("answered with %s", a.body)
		}
		_ = s.ws.CloseNow()
		w.end()
	})
}

// TestQuestionsEndWhenTheProcessIsToEnd: nobody can answer any more, but calls go on.
func TestQuestionsEndWhenTheProcessIsToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		s := w.mcpServer(provider, nil)
		w.listed("b", "tools/list")
		headers := w.initializeAs("b", "2025-11-25", elicits)
		q, e, all, _ := w.asksLegacy(s, `1`, headers...)
		w.server.Drain()
		for _, id := range []string{"1", "2"} {
			if m := s.next(""); m.Error == nil || string(m.ID) != id {
				t.Errorf("the server is answered %s", m.raw)
			}
			if data := <-all; !strings.Contains(data, "notifications/cancelled") {
				t.Errorf("the client is told %s", data)
			}
			if id == "1" {
				s.ask(`2`, "elicitation/create", `{}`)
				<-all
			}
		}
		s.send(q.reply(done))
		if data := <-all; !strings.Contains(data, `"id":5,"result":`+done) {
			t.Errorf("the call ended with %s", data)
		}
		e.close()
		_ = s.ws.CloseNow()
		w.end()
	})
}
