package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eventReader reads a stream of server-sent events, as the HTML standard defines
// them (section 9.2.6), and hands out the data of each. Names, IDs and comments
// are nothing to us.
type eventReader struct {
	r     *bufio.Reader
	limit int // bytes of one event's data
	crlf  bool
	start bool
}

func newEventReader(r io.Reader, limit int) *eventReader {
	return &eventReader{r: bufio.NewReader(r), limit: limit, start: true}
}

// next returns the data of the next event that has any. io.EOF at the end; an
// event that the end cuts off is dropped, as the standard says.
func (e *eventReader) next() ([]byte, error) {
	var data []byte
	var any bool
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if any {
				return data, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			continue
		}
		if any {
			data = append(data, '\n')
		}
		any = true
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		if len(data) > e.limit {
			return nil, errTooLarge
		}
	}
}

// line reads up to CR, LF or CRLF, which it leaves out.
func (e *eventReader) line() ([]byte, error) {
	if e.start {
		e.start = false
		if mark, _ := e.r.Peek(3); string(mark) == "\ufeff" {
			_, _ = e.r.Discard(3)
		}
	}
	var line []byte
	for {
		b, err := e.r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil, io.EOF
			}
			return nil, err
		}
		if b == '\n' && e.crlf {
			e.crlf = false
			continue
		}
		if e.crlf = b == '\r'; e.crlf || b == '\n' {
			return line, nil
		}
		if line = append(line, b); len(line) > e.limit+len("data: ") {
			return nil, errTooLarge
		}
	}
}
