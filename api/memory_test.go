package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// nothingHeld waits until what earlier tests left has been collected.
func nothingHeld(t *testing.T) {
	t.Helper()
	for range 100 {
		runtime.GC() // the cleanups run behind it
		if wire.Held() == 0 {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%d bytes are held by nobody", wire.Held())
}

// raw sends a request as it is, in a bubble, and returns its connection.
func (w *world) raw(head, body string) net.Conn {
	w.t.Helper()
	conn := w.connect()
	go func() { // whom the server refuses may not be read to the end
		if _, err := io.WriteString(conn, head); err == nil {
			_, _ = io.WriteString(conn, body)
		}
	}()
	return conn
}

func posting(size int) string {
	return fmt.Sprintf("POST /b/b/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n", size)
}

// TestRequestsShareTheirMemory: forty bodies of a mebibyte, all but the end of which has
// come, want five times what there is.
func TestRequestsShareTheirMemory(t *testing.T) {
	nothingHeld(t)
	synctest.Test(t, func(t *testing.T) {
		const budget, size = 16 << 20, 1 << 20
		w := start(t, inBubble, withLimits(session.Limits{MemoryBytes: budget}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		p.answers(func(frame) string { return done })
		refused, held := 0, 0
		answers := make(chan string, 40)
		for range cap(answers) {
			conn := w.raw(posting(size), strings.Repeat(" ", size-1))
			go func() {
				text, _ := io.ReadAll(conn)
				answers <- string(text)
			}()
			synctest.Wait()
			held = max(held, wire.Held())
		}
		time.Sleep(2 * time.Second) // those that were refused are closed
		for ; len(answers) > 0; refused++ {
			if text := <-answers; !strings.HasPrefix(text, "HTTP/1.1 429") || !strings.Contains(text, "Retry-After: 1") ||
				!strings.Contains(text, "limit reached: at most 16777216 bytes of all messages that are under way in the server") {
				t.Errorf("one was answered %s", text)
			}
		}
		if held > budget/2+(64<<10) || held < budget/4 || refused < 20 || refused > 35 {
			t.Errorf("%d bytes were held, %d of %d refused", held, refused, cap(answers))
		}
		if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "done") {
			t.Errorf("a small call beside them: %d %s", a.status, a.body)
		}
		large := callBody("1", "a", `{"x":"`+strings.Repeat("x", size)+`"}`)
		if a := w.post("b", large); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" {
			t.Errorf("a large one: %d %s", a.status, a.body)
		}
		time.Sleep(40 * time.Second) // the slow ones are cut
		if a := w.post("b", large); !strings.Contains(a.body, "done") {
			t.Errorf("a large one behind them: %d %.200s", a.status, a.body)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
	nothingHeld(t)
}

// TestAnswersWaitForMemory: results of three mebibytes for clients that do not read are
// more than there is. None is lost, and none is read before there is room; requests are
// refused meanwhile, but the answers to those that were taken come.
func TestAnswersWaitForMemory(t *testing.T) {
	nothingHeld(t)
	synctest.Test(t, func(t *testing.T) {
		const budget, calls = 16 << 20, 8
		w := start(t, inBubble, withLimits(session.Limits{MemoryBytes: budget}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		call := callBody("1", "a", "{}")
		var conns []net.Conn
		for range calls {
			conns = append(conns, w.raw(posting(len(call)), call))
			synctest.Wait()
		}
		text := strings.Repeat("x", 3<<20)
		written := make(chan struct{}, calls)
		go func() {
			for range calls {
				p.result(p.want("callTool").CallID, `{"content":[{"type":"text","text":"`+text+`"}]}`)
				written <- struct{}{}
			}
		}()
		time.Sleep(2 * time.Second)
		if n := len(written); n == 0 || n == calls {
			t.Errorf("%d of %d results were read", n, calls)
		}
		if held := wire.Held(); held > 2*budget {
			t.Errorf("%d bytes are held", held)
		}
		if a := w.post("b", call); a.status != http.StatusTooManyRequests {
			t.Errorf("one more call: %d %.200s", a.status, a.body)
		}
		for i, conn := range conns {
			got := make([]byte, 0, len(text)+1000)
			for b := make([]byte, 1<<20); !strings.HasSuffix(string(got), `}]}}`); {
				n, err := conn.Read(b)
				if got = append(got, b[:n]...); err != nil {
					t.Fatalf("call %d: %v behind %d bytes", i, err, len(got))
				}
			}
			if !strings.Contains(string(got), text) {
				t.Errorf("call %d was answered %.300s", i, got)
			}
			_ = conn.Close()
		}
		_ = p.ws.CloseNow()
		w.end()
	})
	nothingHeld(t)
}
