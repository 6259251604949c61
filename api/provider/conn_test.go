package provider

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faulty is a dialect that panics where it is told to.
type faulty struct{ at string }

func (f faulty) meet(place string) {
	if f.at == place {
		panic("at " + place)
	}
}

func (f faulty) greet() error   { return nil }
func (f faulty) ended()         { f.meet("ended") }
func (f faulty) cancels() bool  { return false }
func (f faulty) ping(bool)      { f.meet("ping") }
func (faulty) refused(*problem) {}

func (f faulty) handle(*wire.Buffer) (bool, error) {
	f.meet("handle")
	return false, aside(func(struct{}) error { f.meet("aside"); return nil }, struct{}{})
}

func (f faulty) appendCall(b []byte, _ *session.Call, _ time.Time) []byte {
	f.meet("appendCall")
	return b
}

func (faulty) appendCancel(b []byte, _ *session.Call, _ session.Reason) []byte { return b }
func (faulty) reconnect(time.Duration)                                         {}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A fault of ours that one connection meets ends that connection, not the process.
func TestAPanicEndsItsConnectionAlone(t *testing.T) {
	for _, place := range []string{"handle", "aside", "ended", "appendCall", "ping"} {
		t.Run(place, func(t *testing.T) {
			log := &lockedBuffer{}
			e := New(Config{
				Limits: session.Limits{Ping: time.Second}, Log: slog.New(slog.NewTextHandler(log, nil)),
				Fault: func(error) wire.Fault { return wire.Fault{Name: "internal", Close: 1011, Message: "internal error"} },
			})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ws, raw, err := upgrade(w, r, nil)
				if err != nil {
					return
				}
				c := &conn{e: e, ws: ws, raw: raw, d: faulty{place}, born: e.beat.Load(), done: func(bool) {}}
				c.out.c = c
				c.heard.Store(c.born)
				e.add(c)
				go func() { defer e.wg.Done(); c.read() }()
				if place == "appendCall" {
					c.out.Deliver(session.Delivery{Call: new(session.Call)}, 1)
				}
			}))
			defer server.Close()
			defer e.Close(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(server.URL, "http"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ws.CloseNow() }()
			if place == "handle" || place == "aside" {
				_ = ws.Write(ctx, websocket.MessageText, []byte("{}"))
			}
			if place == "ended" {
				_ = ws.Close(websocket.StatusNormalClosure, "")
			}
			if _, _, err := ws.Read(ctx); err == nil || ctx.Err() != nil {
				t.Errorf("the connection goes on: %v", err)
			}
			for e.Connections() > 0 && ctx.Err() == nil {
				<-time.After(time.Millisecond)
			}
			if text := log.String(); !strings.Contains(text, "at "+place) || !strings.Contains(text, "conn_test.go") {
				t.Errorf("log %q", text)
			}
		})
	}
}
