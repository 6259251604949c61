package main

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Whoever connects while the server leaves is not reset: the next process takes them.
func TestConnectionsInTheMakingAreForTheNextProcess(t *testing.T) {
	l := newLeaver(t)
	address := l.listener.Addr().(*net.TCPAddr)
	made := l.dial()
	if !refuseNew(l.listener) {
		t.Fatal("the listener is not deaf")
	}
	_ = made.ask("/")
	made.want(t, 200)

	type dialed struct {
		conn net.Conn
		err  error
	}
	late, dialing := make(chan dialed, 1), make(chan error, 1)
	dialer := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { // what the dialer does next, so that the test knows when it is done
			dialing <- unix.Connect(int(fd), &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())})
		})
	}}
	go func() {
		conn, err := dialer.DialContext(t.Context(), "tcp", address.String())
		late <- dialed{conn, err}
	}()
	if err := <-dialing; !errors.Is(err, syscall.EINPROGRESS) {
		t.Fatalf("a deaf listener: %v", err)
	}
	_ = l.server.Close()
	next, err := net.Listen("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	d := <-late
	if d.err != nil {
		t.Fatal(d.err)
	}
	defer d.conn.Close()
	taken, err := next.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = taken.Close()
}
