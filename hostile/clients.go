package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// post is a request to the enemy's bridge, whose body is as long as it says.
func post(body string, headers ...string) string {
	return head(append([]string{fmt.Sprintf("Content-Length: %d", len(body))}, headers...)...) + body
}

func head(headers ...string) string {
	return "POST /b/{bridge}/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
}

// says is an offence that is one request.
func says(text string) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, t *target) (string, error) { return t.send(ctx, text) }
}

// gibibyte is what nobody may make the server hold.
const gibibyte = 1 << 30

// clients are enemies that speak HTTP.
func clients() []enemy {
	deep := strings.Repeat(`[`, 100_000)
	call := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing","arguments":` + arguments + `}}`
	}
	return []enemy{
		{
			name: "JSON nested 100,000 deep", crowd: 4,
			offend: says(post(call(`{"a":` + deep + strings.Repeat(`]`, 100_000) + `}`))),
			gets:   `400 .*-32[67]00.*256`,
		},
		{
			name: "a member of the envelope twice", crowd: 4,
			offend: says(post(`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`)),
			gets:   `400 .*-32600.*method`,
		},
		{
			name: "a member of the envelope in another case", crowd: 4,
			offend: says(post(`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/list"}`)),
			gets:   `400 .*-32600.*[Mm]ethod`,
		},
		{
			name: "an id of a million digits", crowd: 4,
			offend: says(post(`{"jsonrpc":"2.0","id":1` + strings.Repeat("0", 1_000_000) + `,"method":"ping"}`)),
			gets:   `200 .*"id":10000|cut`, // it is echoed as it was written
		},
		{
			name: "arguments with a number of a million digits and 1e999999999", crowd: 4,
			offend: says(post(call(`{"n":1` + strings.Repeat("0", 1_000_000) + `,"e":1e999999999}`))),
			gets:   `200 .*-32602|cut`, // the number is the tool's affair; the tool is unknown
		},
		{
			name: "invalid UTF-8", crowd: 4,
			offend: says(post("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}")),
			gets:   `400 .*-32700`,
		},
		{
			name: "not JSON", crowd: 4,
			offend: says(post(strings.Repeat("\x00", 1000))),
			gets:   `400 .*-32700`,
		},
		{
			name: "a batch of a million requests", crowd: 2,
			offend: says(post("[" + strings.Repeat("1,", 1_000_000) + "1]")),
			gets:   `400 .*-32600|cut`,
		},
		{
			name: "a gzip body", crowd: 4,
			offend: says(post("\x1f\x8b\x08\x00", "Content-Encoding: gzip")),
			gets:   `415 .*Content-Encoding`,
		},
		{name: "a body of 1 GiB that says so", crowd: 4, offend: says(head(fmt.Sprintf("Content-Length: %d", gibibyte))), gets: `413 .*4194304`},
		{name: "a body of 1 GiB in chunks", crowd: 2, offend: chunks, gets: `413 .*4194304|cut`},
		{
			name: "a header of 1 MiB", crowd: 4,
			offend: bomb(func(w io.Writer) error {
				_, err := io.WriteString(w, "X-Bomb: "+strings.Repeat("x", 1<<20)+"\r\n")
				return err
			}),
			gets: `431|cut`,
		},
		{
			name: "100,000 headers", crowd: 4,
			offend: bomb(func(w io.Writer) error {
				_, err := io.WriteString(w, strings.Repeat("X: y\r\n", 100_000))
				return err
			}),
			gets: `431|cut`,
		},
		{name: "a header that comes byte by byte", crowd: 64, offend: slowHeader, gets: `cut after \d s|408`, slow: true},
		{name: "a body that comes byte by byte", crowd: 64, offend: slowBody, gets: `4\d\d .*could not be read|cut after \d+ s`, slow: true},
		{name: "bodies of 4 MiB whose end never comes", crowd: 150, offend: endless, gets: `429 .*under way in the server|400 .*could not be read|cut`, slow: true},
		{name: "answers that nobody reads", crowd: 8, offend: slowRead, gets: `cut`, slow: true},
		{name: "300 streams on one bridge", crowd: 1, offend: streams, gets: `429 .*256`},
		{name: "10,000 idle connections", crowd: 1, offend: idle, gets: `cut after \d+ s`, slow: true},
	}
}

// bomb is a request whose headers write writes.
func bomb(write func(io.Writer) error) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, t *target) (string, error) {
		c, err := t.dial(ctx)
		if err != nil {
			return "", err
		}
		defer c.Close()
		go func() { // the server answers before it has read all
			if _, err := c.say("POST /b/{bridge}/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"); err == nil {
				_ = write(c)
			}
		}()
		return c.answer()
	}
}

func chunks(ctx context.Context, t *target) (string, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if _, err := c.say(head("Transfer-Encoding: chunked")); err != nil {
			return
		}
		chunk := "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
		for range gibibyte >> 20 {
			if _, err := io.WriteString(c, chunk); err != nil {
				return
			}
		}
	}()
	got, err := c.answer()
	_ = c.Close()
	<-written
	return got, err
}

// drip writes one byte a tenth of a second until the server has had enough.
func drip(c *conn, text string) (string, error) {
	begun := time.Now()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := io.WriteString(c, text[i%len(text):i%len(text)+1]); err != nil {
					return
				}
			}
		}
	}()
	got, err := c.answer()
	if err == nil && got == "cut" {
		got += after(begun)
	}
	return got, err
}

func after(begun time.Time) string { return fmt.Sprintf(" after %.0f s", time.Since(begun).Seconds()) }

func slowHeader(ctx context.Context, t *target) (string, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.say("POST /b/{bridge}/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "); err != nil {
		return "", err
	}
	return drip(c, "x")
}

func slowBody(ctx context.Context, t *target) (string, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.say(head("Content-Length: 100000")); err != nil {
		return "", err
	}
	return drip(c, " ")
}

// endless sends a large body but for its last byte.
func endless(ctx context.Context, t *target) (string, error) {
	const size = 4 << 20
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	go func() { // the server answers before it has read all
		if _, err := c.say(head(fmt.Sprintf("Content-Length: %d", size))); err == nil {
			_, _ = io.WriteString(c, strings.Repeat(" ", size-1))
		}
	}()
	return c.answer()
}

// slowRead asks for much, again and again, and reads nothing.
func slowRead(ctx context.Context, t *target) (string, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	request := post(`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 500_000) + `","method":"ping"}`)
	for {
		if _, err := c.say(request); err != nil {
			return ended(err)
		}
	}
}

// streams opens more than a bridge may have.
func streams(ctx context.Context, t *target) (string, error) {
	for range 300 {
		c, err := t.dial(ctx)
		if err != nil {
			return "", err
		}
		defer c.Close() // they are held together
		if _, err := c.say("GET /b/{bridge}/sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
			return "", err
		}
		line, err := c.in.ReadString('\n')
		if err != nil {
			return ended(err)
		}
		if !strings.Contains(line, " 200 ") {
			rest := make([]byte, 1000)
			n, _ := c.in.Read(rest)
			_, body, _ := strings.Cut(string(rest[:n]), "\r\n\r\n")
			_, status, _ := strings.Cut(line, " ")
			return status[:3] + " " + body, nil
		}
	}
	return "all of them", nil
}

// idle opens connections and says nothing on any.
func idle(ctx context.Context, t *target) (string, error) {
	const many = 10_000
	begun := time.Now()
	var all []*conn
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	for len(all) < many {
		c, err := t.dial(ctx)
		if err != nil {
			return "", fmt.Errorf("connection %d: %w", len(all), err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("a silent connection ended with %w", err)
		}
	}
	return "cut" + after(begun), nil
}
