package api_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/session"
)

// flood sends what f sends until the connection is closed, and returns what the peer
// was told.
func flood(t *testing.T, p *peer, f func(n int) error) (told string, code websocket.StatusCode) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := p.tryNext(t.Context())
			if err != nil {
				code = websocket.CloseStatus(err)
				return
			}
			told += m.raw
		}
	}()
	for n := range 1000 {
		if f(n) != nil {
			break
		}
		select {
		case <-ended:
			return told, code
		default:
		}
	}
	<-ended
	return told, code
}

func TestFloodsOfAProviderAreBounded(t *testing.T) {
	for name, send := range map[string]func(*peer) func(int) error{
		"messages": func(p *peer) func(int) error {
			return func(int) error { return p.ws.Write(p.t.Context(), websocket.MessageText, []byte(`{"type":"pong"}`)) }
		},
		"pings": func(p *peer) func(int) error {
			return func(int) error {
				ctx, cancel := context.WithTimeout(p.t.Context(), time.Second) // those beyond it are not answered
				defer cancel()
				return p.ws.Ping(ctx)
			}
		},
		"pieces": func(p *peer) func(int) error {
			m, err := p.ws.Writer(p.t.Context(), websocket.MessageText)
			if err != nil {
				p.t.Fatal(err)
			}
			return func(int) error { _, err := m.Write([]byte(" ")); return err }
		},
		"registrations": func(p *peer) func(int) error {
			return func(n int) error {
				if n > 3 { // each counts as 20, and 40 may come at once
					p.t.Errorf("registration %d was taken", n)
				}
				return p.ws.Write(p.t.Context(), websocket.MessageText, []byte(`{"type":"registerTools","tools":[`+tool("a")+`]}`))
			}
		},
		"results of no call": func(p *peer) func(int) error {
			return func(n int) error {
				return p.ws.Write(p.t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"toolResult","callId":"%d","result":{}}`, n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble, withLimits(session.Limits{Messages: 20}))
				victim := w.provider("b", "victim", "")
				victim.register(tool("v"))
				victim.answers(func(frame) string { return done })
				p := w.provider("b", "p", "")
				told, code := flood(t, p, send(p))
				if code != 4429 || !strings.Contains(told, `"code":"flood","message":"limit reached: at most 20 messages a second on one connection"`) {
					t.Errorf("closed with %d, told %s", code, told)
				}
				if a := w.post("b", callBody("1", "v", "{}")); !strings.Contains(a.body, "done") {
					t.Errorf("the other provider: %s", a.body)
				}
				_ = victim.ws.CloseNow()
				w.end()
			})
		})
	}
}

// TestWhoFloodsMayComeBackLessOften: each flood counts as a second's connections.
func TestWhoFloodsMayComeBackLessOften(t *testing.T) {
	for name, limits := range map[string]session.Limits{
		"token":              {TokenDials: 5, AddressDials: -1, Messages: 10},
		"address":            {TokenDials: -1, AddressDials: 5, Messages: 10},
		"messages to refuse": {TokenDials: 5, AddressDials: -1, Messages: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble, behindProxy, withLimits(limits))
				b := w.accounts(2)
				dial := func(i int, from string) (*peer, error) {
					return w.tryDial("/b/"+b[i].id+"/provider", "Authorization", b[i].provider, "X-Forwarded-For", from)
				}
				offence := []byte(map[bool]string{true: `{"type":"pong"}`, false: `{}`}[limits.Messages > 0])
				floods := func() (n int) {
					for ; n < 100; n++ {
						p, err := dial(0, "192.0.2.1")
						if err != nil {
							if !strings.Contains(err.Error(), "429") {
								t.Error(err)
							}
							return n
						}
						_, code := flood(t, p, func(int) error {
							return p.ws.Write(t.Context(), websocket.MessageText, offence)
						})
						if code != 4429 {
							t.Fatalf("closed with %d", code)
						}
						synctest.Wait()
					}
					return n
				}
				// The bucket holds those of ten seconds, and each flood takes 1 and 5.
				if n := floods(); n != 9 {
					t.Errorf("%d floods at once", n)
				}
				time.Sleep(10 * time.Second)
				if n := floods(); n < 8 || n > 9 {
					t.Errorf("%d floods after ten seconds", n)
				}
				p, err := dial(1, "192.0.2.2")
				if err != nil {
					t.Fatalf("another: %v", err)
				}
				_ = p.ws.CloseNow()
				w.end()
			})
		})
	}
}

// wsRequest opens a provider's WebSocket of bridge b.
const wsRequest = "GET /b/b/provider HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// First bytes of frames, and a frame whose mask changes nothing (RFC 6455, section 5.2).
const textFrame, binaryFrame, pingFrame = 0x81, 0x82, 0x89

func masked(first byte, payload string) string {
	return string(append([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...))
}

// TestWhoIsClosedForAnOffenceIsNoInstance: though it does not answer the close frame, and
// keeps its connection.
func TestWhoIsClosedForAnOffenceIsNoInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Instances: 1}))
		for n := range 3 {
			conn := w.connect()
			if _, err := io.WriteString(conn, wsRequest); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = io.WriteString(conn, masked(textFrame, `{"type":"hello","protocol":1,"provider":"p"}`)+masked(binaryFrame, "x"))
			}()
			var told string
			for b := make([]byte, 4096); !strings.Contains(told, "only text frames"); {
				m, err := conn.Read(b)
				if told += string(b[:m]); err != nil {
					t.Fatalf("connection %d was told %q", n, told)
				}
			}
		}
		w.end()
	})
}

// TestWhoIsClosedForAnOffenceIsHardlyReadAnyMore: though it goes on as fast as it can.
func TestWhoIsClosedForAnOffenceIsHardlyReadAnyMore(t *testing.T) {
	gibibyte := string([]byte{textFrame, 0x80 | 127, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0})
	for name, c := range map[string]struct{ first, more string }{
		"messages":            {"", masked(textFrame, `{"type":"pong"}`)},
		"messages to refuse":  {"", masked(textFrame, "x")},
		"pings":               {"", masked(pingFrame, "")},
		"a frame without end": {gibibyte, "x"},
		"binary":              {"", masked(binaryFrame, "x")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, inBubble, withLimits(session.Limits{Messages: 200, FrameBytes: 64 << 10}))
				conn := w.connect()
				if _, err := io.WriteString(conn, wsRequest); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				many := []byte(strings.Repeat(c.more, 4096/len(c.more)))
				sent, err := io.WriteString(conn, c.first)
				for n := 0; err == nil && sent < 16<<20; sent += n {
					n, err = conn.Write(many)
				}
				if sent > 1<<20 {
					t.Errorf("%d bytes were read", sent)
				}
				_ = conn.Close()
				w.end()
			})
		})
	}
}

// The results of calls are as many as clients ask for: they do not count.
func TestResultsAreNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Messages: 20}))
		p := w.provider("b", "p", "")
		p.register(tool("a"))
		p.answers(func(frame) string { return done })
		for i := range 100 {
			if a := w.post("b", callBody("1", "a", "{}")); !strings.Contains(a.body, "done") {
				t.Fatalf("the %d.: %s", i+1, a.body)
			}
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}
