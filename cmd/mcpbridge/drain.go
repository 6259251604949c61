package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// How a server that is told to stop takes leave of its clients. A client that was
// told 503, or whose connection was refused, may ask the next process without fear of
// doing something twice; one whose connection broke may not. So none is broken under
// a request that may be on its way.
const (
	// handshake is how long a client that has begun to connect may take to be there.
	handshake = 50 * time.Millisecond
	// parting is how long a client may take to close a connection that has ended.
	parting = 250 * time.Millisecond
)

// leaveTaking ends a server's connections so that no request is lost with one.
type leaveTaking struct {
	mu      sync.Mutex
	conns   map[net.Conn]bool // whether it carries a request
	busy    int               // how many do
	leaving bool
	changed chan struct{} // has one when something changed
}

// takesLeave makes a leaveTaking of a server that has not started.
func takesLeave(server *http.Server) *leaveTaking {
	l := &leaveTaking{conns: map[net.Conn]bool{}, changed: make(chan struct{}, 1)}
	server.ConnState = l.track
	return l
}

func (l *leaveTaking) track(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[c] {
		l.busy--
	}
	switch state {
	case http.StateNew, http.StateIdle:
		l.conns[c] = false
		if l.leaving {
			dismiss(c)
		}
	case http.StateActive:
		l.conns[c] = true
		l.busy++
	default: // it is closed, or a WebSocket
		delete(l.conns, c)
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// gone is what a connection without a request is ended with: an answer, so that a
// request that crosses it is known not to have been taken, and the one that HTTP
// clients expect of a server that has waited long enough (RFC 9110, section 15.5.9).
const gone = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

// dismiss asks a client to close its connection. If we did, a request that is here but
// not yet read would make the kernel reset it, and the answer be lost.
func dismiss(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(parting))
	_, _ = c.Write([]byte(gone)) // whoever has gone needs no answer
}

// dismissAll asks every client whose connection carries no request, now or later.
func (l *leaveTaking) dismissAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = true
	for c, busy := range l.conns {
		if !busy {
			dismiss(c)
		}
	}
}

// wait waits until no connection carries a request, or, with all, until there is none;
// false once ctx has ended.
func (l *leaveTaking) wait(ctx context.Context, all bool) bool {
	for {
		l.mu.Lock()
		left := l.busy
		if all {
			left = len(l.conns)
		}
		l.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// part waits a little for the clients to close their connections.
func (l *leaveTaking) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, parting)
	defer cancel()
	l.wait(ctx, true)
}

// listenTCP is net.Listen for a listener that refuseNew can make deaf: multipath TCP,
// which Go would use, cannot be.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	return config.Listen(ctx, "tcp", address)
}

// leave takes leave of the clients of a server whose handler refuses new requests: notice
// passes, so that whoever asks learns of it from an answer; the listener takes no more
// connections, and loses none that it has; the others end. It returns once every request
// has been answered, or why not, once ctx has ended.
func (l *leaveTaking) leave(ctx context.Context, notice time.Duration, listener net.Listener) error {
	select {
	case <-time.After(notice):
	case <-ctx.Done():
	}
	if refuseNew(listener) {
		time.Sleep(handshake)
	}
	_ = listener.Close()
	l.dismissAll()
	if !l.wait(ctx, false) {
		return context.Cause(ctx)
	}
	l.part(ctx)
	return nil
}
