package api_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// mirror is a provider that answers every call inside the delivering turn, so that
// a benchmark sees the server's own cost alone.
type mirror struct {
	i  *session.Instance
	id []byte
}

var mirrored = []byte(`{"content":[{"type":"text","text":"done"}]}`)

func (m *mirror) Deliver(d session.Delivery, _ int) session.Room {
	d.Claim()
	d.Written()
	m.id = d.Call.AppendID(m.id[:0])
	_ = m.i.Finish(m.id, session.Result{Raw: mirrored})
	return session.HasRoom
}
func (m *mirror) Cancel(*session.Call, session.Reason) {}
func (m *mirror) Close(error)                          {}

// sink is a ResponseWriter that forgets.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// benchServer is a server with one bridge whose provider answers at once.
func benchServer(b *testing.B, tools int, options ...func(*world)) *world {
	w := start(b, options...)
	s, err := w.dir.Session(b.Context(), "b")
	if err != nil {
		b.Fatal(err)
	}
	m := &mirror{}
	if m.i, err = s.Attach(session.Hello{Provider: "p", Retain: -1}, m, time.Now()); err != nil {
		b.Fatal(err)
	}
	var all []session.Tool
	for n := range tools {
		name := "echo" + strings.Repeat("x", n)
		all = append(all, session.Tool{
			Name: name, NameAt: 8, NameEnd: 10 + len(name),
			Definition: []byte(`{"name":"` + name + `","inputSchema":{"type":"object","properties":{"n":{"type":"string"},"b":{"type":"string"},"p":{"type":"string"}},"required":["n"]}}`),
		})
	}
	told := make(chan session.Registered, 1)
	_ = m.i.Register(all, func(r session.Registered) { told <- r })
	<-told
	return w
}

// request serves one prepared request again and again.
func request(b *testing.B, w *world, text string, headers []string) {
	r := httptest.NewRequest(http.MethodPost, w.mcpURL("b"), nil)
	setHeaders(r, headers)
	in := &body{}
	r.Body = in
	r.ContentLength = int64(len(text))
	out := &sink{http.Header{}}
	content := []byte(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		in.Reset(content)
		clear(out.h)
		w.server.ServeHTTP(out, r)
	}
}

var _ io.ReadCloser = (*body)(nil)

func BenchmarkHTTPCall(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "100KB": 100_000} {
		arguments := `{"n":"00112233","b":"b","p":"` + strings.Repeat("x", size) + `"}`
		b.Run("legacy/"+name, func(b *testing.B) {
			w := benchServer(b, 1)
			request(b, w, callBody("123456789012", "echo", arguments), w.initialize("b"))
		})
		b.Run("modern/"+name, func(b *testing.B) {
			w := benchServer(b, 1)
			text, headers := modernRequest("tools/call", "echo", `"name":"echo","arguments":`+arguments)
			request(b, w, text, headers)
		})
	}
}

// BenchmarkHTTPCallWithToken is the call of 100 bytes with authentication on, alone and
// from everywhere at once.
func BenchmarkHTTPCallWithToken(b *testing.B) {
	token, secret := credential.New(store.ClientToken, "b", time.Now())
	closed := func(w *world) {
		withAuth(w)
		if err := w.store.CreateBridge(b.Context(), 1, store.Bridge{ID: "b"}, token); err != nil {
			b.Fatal(err)
		}
	}
	text, headers := modernRequest("tools/call", "echo", `"name":"echo","arguments":{"n":"00112233"}`)
	headers = append(headers, "Authorization", "Bearer "+secret.Reveal())
	b.Run("alone", func(b *testing.B) { request(b, benchServer(b, 1, closed), text, headers) })
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	b.Run("together", func(b *testing.B) {
		w := benchServer(b, 1, closed)
		b.RunParallel(func(pb *testing.PB) {
			r := httptest.NewRequest(http.MethodPost, w.mcpURL("b"), nil)
			setHeaders(r, []string{"Authorization", "Bearer " + secret.Reveal()})
			in, out := &body{}, &sink{http.Header{}}
			r.Body, r.ContentLength = in, int64(len(ping))
			for pb.Next() {
				in.Reset([]byte(ping))
				clear(out.h)
				w.server.ServeHTTP(out, r)
			}
		})
	})
}

func BenchmarkHTTPList(b *testing.B) {
	w := benchServer(b, 100)
	request(b, w, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, w.initialize("b"))
}
