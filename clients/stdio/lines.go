package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// up passes the server's messages to the bridge, a frame each, and answers those that
// are too long. It returns nil at the end of the server's output.
func (r *runner) up(ctx context.Context, ws *websocket.Conn, stdout io.Reader, stdin io.Writer, limit int) error {
	in := bufio.NewReaderSize(stdout, 64<<10)
	var line []byte
	for {
		var long *envelope // of a line over the limit, whose rest is not kept
		size := 0
		line = line[:0]
		if cap(line) > 1<<20 {
			line = nil // not held for ever
		}
		var err error
		for {
			var part []byte
			part, err = in.ReadSlice('\n')
			size += len(part)
			switch {
			case long != nil:
				long.feed(part)
			case len(line)+len(part) > limit+2: // with the end of the line
				long = &envelope{}
				long.feed(line)
				long.feed(part)
			default:
				line = append(line, part...)
			}
			if err != bufio.ErrBufferFull { //nolint:errorlint // bufio's contract is the bare value
				break
			}
		}
		text := bytes.TrimSpace(line)
		if long == nil && len(text) > limit {
			long = &envelope{}
			long.feed(text)
		}
		var frame []byte
		switch {
		case long != nil:
			var back []byte
			if frame, back = r.tooLong(long, size, limit); back != nil {
				go stdin.Write(back) //nolint:errcheck // a server that does not read must not hold up what it says
			}
		case len(text) == 0:
		case !isMessage(text):
			r.print(" > ", text)
		default:
			frame = text
		}
		if frame != nil {
			if err := write(ctx, ws, frame); err != nil {
				return err
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the output, which is no failure
		}
	}
}

// isMessage tells a line of the protocol from anything else that servers print.
func isMessage(line []byte) bool {
	return (line[0] == '{' || line[0] == '[') && utf8.Valid(line) && json.Valid(line)
}

// tooLong is what takes the place of a line that the bridge would not take, an error
// that names the limit: of an answer it goes on to the bridge, of a request back to the
// server, as a line.
func (r *runner) tooLong(e *envelope, size, limit int) (on, back []byte) {
	r.cfg.Log.Warn("a message of the server is longer than the bridge takes", "bytes", size, "limit", limit)
	if e.id == nil {
		return nil, nil
	}
	what := "answer"
	if e.method {
		what = "request"
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), e.id...)
	b = fmt.Appendf(b, `,"error":{"code":-32603,"message":"the %s has %d bytes; the bridge takes at most %d"}}`, what, size, limit)
	if e.method {
		return nil, append(b, '\n')
	}
	return b, nil
}

// maxID is the longest id that an answer instead is given under, in bytes.
const maxID = 1024

// envelope finds the id of a JSON-RPC message that is too long to be kept, part by
// part.
type envelope struct {
	id     []byte // raw; nil when there is none
	method bool   // it is a request or a notification

	depth  int
	quoted bool
	slant  bool
	naming bool   // behind the id's colon in the outermost object
	text   []byte // of the member's name, or the id's value, so far
}

func (e *envelope) feed(part []byte) {
	for _, c := range part {
		e.step(c)
	}
}

func (e *envelope) step(c byte) {
	keep := e.depth == 1 && len(e.text) <= maxID
	if e.quoted {
		if keep {
			e.text = append(e.text, c)
		}
		switch {
		case e.slant:
			e.slant = false
		case c == '\\':
			e.slant = true
		case c == '"':
			e.quoted = false
		}
		return
	}
	switch c {
	case '"':
		e.quoted = true
	case '{', '[':
		e.depth++
		return
	case '}', ']':
		if e.depth == 1 {
			e.member()
		}
		e.depth--
		return
	case ':':
		if e.depth == 1 {
			e.method = e.method || string(e.text) == `"method"`
			e.naming = string(e.text) == `"id"`
			e.text = e.text[:0]
			return
		}
	case ',':
		if e.depth == 1 {
			e.member()
			return
		}
	case ' ', '\t', '\r', '\n':
		return
	}
	if keep {
		e.text = append(e.text, c)
	}
}

// member ends a member of the outermost object.
func (e *envelope) member() {
	if n := len(e.text); e.naming && e.id == nil && n > 0 && n <= maxID && json.Valid(e.text) {
		e.id = bytes.Clone(e.text)
	}
	e.naming, e.text = false, e.text[:0]
}

// shown is the longest piece of a line that is shown, in bytes.
const shown = 4 << 10

// show shows the lines of a stream until it ends.
func (r *runner) show(in io.Reader, mark string) {
	lines := bufio.NewReaderSize(in, shown)
	for {
		line, err := lines.ReadSlice('\n')
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 {
			r.print(mark, text)
		}
		if err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // bufio's contract is the bare value
			return
		}
	}
}

// print shows a line, or its start.
func (r *runner) print(mark string, text []byte) {
	if len(text) > shown {
		text = append(bytes.Clone(text[:shown]), "..."...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.cfg.Stderr, "%s%s%s\n", r.name, mark, text)
}
