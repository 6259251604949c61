package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// connections numbers the providers' connections of a run.
var connections atomic.Int64

// line is how a provider reaches the bridge: it knows the connection that is open,
// records its end, and can break it.
type line struct {
	h            *History
	bridge, name string
	dial         *net.Dialer

	mu   sync.Mutex
	open *wire // the newest; nil before the first
}

// client is an HTTP client that dials through the line.
func (l *line) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: l.connect, DisableKeepAlives: true}}
}

func (l *line) connect(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := l.dial.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		// What was not sent when the connection ends is never sent: a registration must
		// not arrive after those of the next connection.
		_ = tcp.SetLinger(0)
	}
	w := &wire{Conn: c, line: l, n: int(connections.Add(1))}
	l.mu.Lock()
	l.open = w
	l.mu.Unlock()
	return w, nil
}

// number is the newest connection's; 0 before the first.
func (l *line) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return 0
	}
	return l.open.n
}

// cut breaks the newest connection.
func (l *line) cut() {
	l.mu.Lock()
	w := l.open
	l.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}

// ready records that the newest connection's tools are registered.
func (l *line) ready(conn int) {
	l.h.Add(Event{Kind: Ready, Bridge: l.bridge, Who: l.name, Conn: conn})
}

// wire is one connection of a line.
type wire struct {
	net.Conn
	line *line
	n    int
	down sync.Once
}

func (w *wire) ended() {
	w.down.Do(func() { w.line.h.Add(Event{Kind: Down, Bridge: w.line.bridge, Who: w.line.name, Conn: w.n}) })
}

// Read implements [net.Conn].
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.ended()
	}
	return n, err
}

// Close implements [net.Conn].
func (w *wire) Close() error {
	w.ended()
	return w.Conn.Close()
}
