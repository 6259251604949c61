package api_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

const parkFor = 25 * time.Second

// TestCallsWaitForAProviderThatComesBack: 200 calls arrive while it is away for three
// seconds; all are answered, each was delivered once, and in the order in which they came.
func TestCallsWaitForAProviderThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Park: parkFor}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		_ = p.ws.CloseNow()
		synctest.Wait()
		const calls = 200
		answers := make(chan answer, calls)
		for n := range calls {
			go func() { answers <- w.post("b", callBody(fmt.Sprint(n), "a", fmt.Sprintf(`{"n":%d}`, n))) }()
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		p = w.provider("b", "p", "")
		seen := p.frames()
		p.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
		for n := range calls {
			f := <-seen
			for f.Type != "callTool" {
				f = <-seen
			}
			if want := fmt.Sprintf(`{"n":%d}`, n); string(f.Params) != want {
				t.Fatalf("delivered %s, want %s", f.Params, want)
			}
			p.result(f.CallID, `{"content":[],"n":`+string(f.Params)+`}`)
		}
		for range calls {
			if a := <-answers; strings.Contains(a.body, "isError") || !strings.Contains(a.body, `"n":{"n":`) {
				t.Errorf("answered %s", a.body)
			}
		}
		synctest.Wait()
		for len(seen) > 0 {
			if f := <-seen; f.Type == "callTool" {
				t.Errorf("delivered once more: %s", f.raw)
			}
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestACallWhoseProviderStaysAwaySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Park: parkFor}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		_ = p.ws.CloseNow()
		synctest.Wait()
		left := time.Now().UTC().Format(time.RFC3339)
		want := `provider \"p\" is not connected since ` + left + `; the call was not delivered`
		begun := time.Now()
		if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, want) || !strings.Contains(a.body, `"isError":true`) || time.Since(begun) != parkFor {
			t.Errorf("after %v: %s", time.Since(begun), a.body)
		}
		begun = time.Now()
		if a := w.do("POST", w.mcpURL("b")+"?timeout=5", callBody("1", "a", "{}"), "Content-Type", "application/json"); !strings.Contains(a.body, want) || time.Since(begun) != 5*time.Second {
			t.Errorf("with a deadline of 5 s, after %v: %s", time.Since(begun), a.body)
		}
		// Who asked for progress hears that it waits, to its deadline.
		begun = time.Now()
		headers := w.initialize("b")
		e := w.stream("POST", w.mcpURL("b"), progressCall("5", `"t"`), headers...)
		heard := 0
		for data := e.want(""); ; data = e.want("") {
			if strings.Contains(data, `"id":5`) {
				if !strings.Contains(data, want) || time.Since(begun) != time.Minute {
					t.Errorf("after %v: %s", time.Since(begun), data)
				}
				break
			}
			if !strings.Contains(data, "waiting for the provider") {
				t.Errorf("told %s", data)
			}
			heard++
		}
		if heard < 5 {
			t.Errorf("heard %d signs of progress in a minute", heard)
		}
		e.close()
		w.end()
	})
}

// TestCallsWaitAcrossARestart: calls wait for their provider when the process is told to
// stop. Nobody has them yet, so their clients are told to come again; the next process
// gives each of them to the provider once, in the order in which they came back.
func TestCallsWaitAcrossARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Park: parkFor}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		_ = p.ws.CloseNow()
		synctest.Wait()
		const calls = 200
		told, answers := make(chan answer, calls), make(chan answer, calls)
		var again [calls]chan struct{}
		for n := range calls {
			again[n] = make(chan struct{})
			go func() {
				body := callBody(fmt.Sprint(n), "a", fmt.Sprintf(`{"n":%d}`, n))
				told <- w.post("b", body)
				<-again[n]
				answers <- w.post("b", body)
			}()
			synctest.Wait()
		}
		w.server.Drain()
		for range calls {
			if a := <-told; a.status != 503 || a.header.Get("Retry-After") != "2" {
				t.Fatalf("told %d %v %s", a.status, a.header, a.body)
			}
		}
		w.restart()
		for n := range calls {
			close(again[n])
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		p = w.provider("b", "p", "")
		p.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
		seen := p.frames()
		for n := range calls {
			f := <-seen
			for f.Type != "callTool" {
				f = <-seen
			}
			if want := fmt.Sprintf(`{"n":%d}`, n); string(f.Params) != want {
				t.Fatalf("delivered %s, want %s", f.Params, want)
			}
			p.result(f.CallID, `{"content":[],"n":`+string(f.Params)+`}`)
		}
		for range calls {
			if a := <-answers; strings.Contains(a.body, "isError") || !strings.Contains(a.body, `"n":{"n":`) {
				t.Errorf("answered %s", a.body)
			}
		}
		synctest.Wait()
		for len(seen) > 0 {
			if f := <-seen; f.Type == "callTool" {
				t.Errorf("delivered once more: %s", f.raw)
			}
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

// TestCallsWaitWhileASilentProviderIsClosed: it need not answer the close frame, and calls
// that come meanwhile are for the next connection.
func TestCallsWaitWhileASilentProviderIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Park: parkFor}))
		conn := w.connect()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		if _, err := io.WriteString(conn, wsRequest+masked(textFrame, `{"type":"hello","protocol":1,"provider":"p"}`)+
			masked(textFrame, `{"type":"registerTools","tools":[`+tool("a")+`]}`)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !strings.Contains(w.log.String(), "two ping intervals"); time.Sleep(time.Second) {
			if time.Now().After(end) {
				t.Fatalf("the silent provider is not given up: %s", w.log)
			}
		}
		got := w.later(func() answer { return w.post("b", callBody("1", "a", "{}")) })
		time.Sleep(time.Second)
		p := w.provider("b", "p", "")
		p.send(`{"type":"registerTools","tools":[` + tool("a") + `]}`)
		p.answers(func(frame) string { return done }) // the call may come before the registration is told
		if a := <-got; !strings.Contains(a.body, "done") {
			t.Errorf("answered %s", a.body)
		}
		_ = conn.Close()
		_ = p.ws.CloseNow()
		w.end()
	})
}
