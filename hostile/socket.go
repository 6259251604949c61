package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// conn is one raw connection to the server.
type conn struct {
	net.Conn
	in     *bufio.Reader
	bridge string
}

// line is what the offenders share: what a gigabit a second brings. Through loopback they
// could send what no network carries, and take the processor from the server to do so.
var line = rate.NewLimiter(125e6, 4<<20)

// Write implements [net.Conn], at the pace of the line.
func (c *conn) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		piece := b[n:min(len(b), n+1<<20)]
		time.Sleep(line.ReserveN(time.Now(), len(piece)).Delay())
		m, err := c.Conn.Write(piece)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// say writes text, in which {bridge} stands for the enemy's.
func (c *conn) say(text string) (int, error) {
	return io.WriteString(c, strings.Replace(text, "{bridge}", c.bridge, 1))
}

func (t *target) dial(ctx context.Context) (*conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, t.from)}} // not the victim's
	c, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return &conn{c, bufio.NewReader(c), t.bridge}, nil
}

// send sends text as it is, and returns the status of the answer.
func (t *target) send(ctx context.Context, text string) (string, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.say(text); err != nil {
		got, _ := c.answer() // it may have been given before all was read
		return cmp.Or(got, "cut"), nil
	}
	return c.answer()
}

// answer reads an answer: its status, and what it says in short.
func (c *conn) answer() (string, error) {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return ended(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body))), nil
}

// ended makes the end of a connection an answer of its own.
func ended(err error) (string, error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", err
	}
	return "cut", nil
}

// Opcodes of frames (RFC 6455, section 5.2).
const (
	opContinue = 0x0
	opText     = 0x1
	opClose    = 0x8
	opPing     = 0x9
	final      = 0x80
)

// socket opens a provider's WebSocket on the enemy's bridge.
func (t *target) socket(ctx context.Context, name string) (*conn, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.say("GET /b/{bridge}/provider?provider=" + name + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil) //nolint:bodyclose // an upgrade has none, else the connection is closed
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		var body []byte
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		err = errors.Join(fmt.Errorf("the upgrade was answered %d %s", resp.StatusCode, body), err)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// header is that of a frame with a mask of zeros, which changes nothing.
func header(first byte, size int) []byte {
	b := []byte{first}
	switch {
	case size < 126:
		b = append(b, 0x80|byte(size))
	case size < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(size))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(size))
	}
	return append(b, 0, 0, 0, 0)
}

func frame(first byte, payload string) []byte {
	return append(header(first, len(payload)), payload...)
}

func (c *conn) text(message string) error {
	_, err := c.Write(frame(final|opText, message))
	return err
}

// next reads one frame of the server's.
func (c *conn) next() (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 0x7f)
	switch size {
	case 126:
		var b [2]byte
		if _, err := io.ReadFull(c.in, b[:]); err != nil {
			return 0, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		if _, err := io.ReadFull(c.in, b[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(b[:])
	}
	if size > 64<<20 {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(c.in, payload)
	return head[0] & 0x0f, payload, err
}

// want reads until a message that has text.
func (c *conn) want(text string) (string, error) {
	for {
		opcode, payload, err := c.next()
		if err != nil {
			return "", fmt.Errorf("while waiting for %s: %w", text, err)
		}
		if opcode == opClose {
			return "", fmt.Errorf("while waiting for %s: %s", text, closing(payload))
		}
		if opcode == opText && strings.Contains(string(payload), text) {
			return string(payload), nil
		}
	}
}

// end reads until the connection ends, and says how.
func (c *conn) end() (string, error) {
	for {
		opcode, payload, err := c.next()
		if err != nil {
			return ended(err)
		}
		if opcode == opClose {
			return closing(payload), nil
		}
	}
}

func closing(payload []byte) string {
	if len(payload) < 2 {
		return "close"
	}
	return fmt.Sprintf("close %d %s", binary.BigEndian.Uint16(payload), payload[2:])
}

// register offers the enemy's tools.
func (c *conn) register(names ...string) error {
	var tools []string
	for _, name := range names {
		tools = append(tools, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	return c.text(`{"type":"registerTools","tools":[` + strings.Join(tools, ",") + `]}`)
}
