package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// leaver is a server that is about to stop, and refuses new requests once told to.
type leaver struct {
	t        *testing.T
	listener net.Listener
	server   *http.Server
	leaving  *leaveTaking
	refuse   chan struct{} // closed when it does
	begun    chan struct{} // a request to /slow is here
	slow     chan struct{} // closed to end it
	served   chan struct{}
}

func newLeaver(t *testing.T) *leaver {
	t.Helper()
	listener, err := listenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &leaver{
		t: t, listener: listener, refuse: make(chan struct{}),
		begun: make(chan struct{}, 1), slow: make(chan struct{}), served: make(chan struct{}),
	}
	l.server = &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-l.refuse:
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		default:
		}
		if r.URL.Path == "/slow" {
			l.begun <- struct{}{}
			<-l.slow
		}
		fmt.Fprint(w, "done")
	})}
	l.leaving = takesLeave(l.server)
	go func() {
		defer close(l.served)
		_ = l.server.Serve(listener)
	}()
	t.Cleanup(func() { _ = l.server.Close(); <-l.served })
	return l
}

// leave stops it.
func (l *leaver) leave() error {
	err := l.leaving.leave(l.t.Context(), 0, l.listener)
	_ = l.server.Close() // the listener is closed already
	return err
}

// client is one connection, which is written and read by hand.
type client struct {
	net.Conn
	r *bufio.Reader
}

func (l *leaver) dial() *client {
	l.t.Helper()
	conn, err := new(net.Dialer).DialContext(l.t.Context(), "tcp", l.listener.Addr().String())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) ask(path string) error {
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", path)
	return err
}

// answer is the status of the next answer, whose body it reads.
func (c *client) answer() (int, error) {
	resp, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodPost})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func (c *client) want(t *testing.T, status int) {
	t.Helper()
	if got, err := c.answer(); got != status {
		t.Fatalf("answered %d, %v; want %d", got, err, status)
	}
}

func (c *client) wantEnd(t *testing.T) {
	t.Helper()
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("the connection ended with %v, want io.EOF", err)
	}
}

func TestLeavingEndsWhatCarriesNoRequestAndFinishesTheRest(t *testing.T) {
	l := newLeaver(t)
	silent, idle, busy := l.dial(), l.dial(), l.dial()
	_ = idle.ask("/")
	idle.want(t, 200)
	_ = busy.ask("/slow")
	<-l.begun
	close(l.refuse)
	left := make(chan error)
	go func() { left <- l.leave() }()
	for _, c := range []*client{silent, idle} {
		c.want(t, 408)
	}
	close(l.slow)
	silent.wantEnd(t) // it waits for us, but not for long
	busy.want(t, 200)
	busy.want(t, 408)
	busy.wantEnd(t)
	if err := <-left; err != nil {
		t.Error(err)
	}
}

// A request that crosses the end of its connection is answered all the same: nobody
// has to guess whether it was taken.
func TestRequestsThatCrossTheEndAreAnswered(t *testing.T) {
	const rounds, clients = 20, 8
	for range rounds {
		l := newLeaver(t)
		idle := make([]*client, clients)
		for i := range idle {
			idle[i] = l.dial()
			_ = idle[i].ask("/")
			idle[i].want(t, 200)
		}
		close(l.refuse)
		var wg sync.WaitGroup
		for _, c := range idle {
			wg.Go(func() {
				_ = c.ask("/") // may fail: the answer is there already
				if status, err := c.answer(); status != 503 && status != 408 {
					t.Errorf("answered %d, %v", status, err)
				}
				_ = c.Close()
			})
		}
		if err := l.leave(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestServerThatStopsSaysSo(t *testing.T) {
	s, url := serve(t, t.TempDir()+"/data", "--open", "--shutdown-notice", "1h", "--shutdown-grace", "1500ms")
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &client{conn, bufio.NewReader(conn)}
	fmt.Fprint(c, "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	c.want(t, 200)
	s.interrupt(errSignal)
	s.stderr.find(t.Context(), t, `msg=stopping`)
	run(t.Context(), "", "healthcheck", "--server", url).want(t, exitFailed, ``, `mcpbridge: 503 Service Unavailable.*\n`)
	fmt.Fprint(c, "GET /b/x/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 503 || !resp.Close || resp.Header.Get("Retry-After") == "" {
		t.Errorf("while stopping: %d, %v", resp.StatusCode, resp.Header)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	c.wantEnd(t)
	s.stop()
}
