package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// providers are enemies that speak WebSocket.
func providers() []enemy {
	message := func(text string) func(context.Context, *target) (string, error) {
		return provides(func(c *conn) (string, error) {
			if err := c.text(text); err != nil {
				return "", err
			}
			return c.told()
		})
	}
	return []enemy{
		{
			name: "a message nested 100,000 deep", crowd: 4,
			offend: message(`{"type":"toolResult","callId":"x","result":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`),
			gets:   `error .*256`,
		},
		{name: "a member of a message twice", crowd: 4, offend: message(`{"type":"pong","type":"registerTools"}`), gets: `error .*type`},
		{name: "a member of a message in another case", crowd: 4, offend: message(`{"type":"pong","Type":"registerTools"}`), gets: `error .*[Tt]ype`},
		{name: "a message of invalid UTF-8", crowd: 4, offend: message("{\"type\":\"\xff\"}"), gets: `error |close 1007`},
		{name: "a message that is not JSON", crowd: 4, offend: message("\x00\x01"), gets: `error `},
		{name: "a message in pieces of one byte, pings between", crowd: 2, offend: provides(pieces), gets: `registered|(close 4)?429 `},
		{name: "a message in the middle of another", crowd: 4, offend: provides(interleaved), gets: `close 1002|cut`},
		{name: "pings without end", crowd: 2, offend: flood(frame(final|opPing, "x")), gets: `(close 4)?429 |close 4408|cut`},
		{name: "tiny messages without end", crowd: 2, offend: flood(frame(final|opText, `{"type":"pong"}`)), gets: `(close 4)?429 |cut`},
		{name: "empty messages without end", crowd: 2, offend: flood(frame(final|opText, ``)), gets: `(close 4)?429 |cut`},
		{name: "empty pieces without end", crowd: 2, offend: flood(frame(opContinue, ``)), gets: `(close (4429|1002)|429) |cut`},
		{name: "results of calls never asked, without end", crowd: 2, offend: flood(frame(final|opText, `{"type":"toolResult","callId":"0000-1","result":{"content":[]}}`)), gets: `(close 4)?429 |cut`},
		{name: "registrations without end", crowd: 2, offend: provides(registrations), gets: `(close 4)?429 |error .*(registrations|messages a second)|cut`},
		{name: "a result from the wrong instance", crowd: 1, offend: wrongInstance, gets: `ignored`},
		{name: "another provider's tools taken off", crowd: 1, offend: wrongTools, gets: `ignored`},
		{name: "a frame of 1 GiB", crowd: 4, offend: provides(hugeFrame), gets: `close 1009 .*8388608|cut`},
		{name: "1 GiB in pieces", crowd: 2, offend: provides(hugeMessage), gets: `close 1009 .*8388608|cut`},
		{name: "a binary frame", crowd: 4, offend: provides(func(c *conn) (string, error) {
			if _, err := c.Write(frame(final|0x2, "x")); err != nil {
				return "", err
			}
			return c.end()
		}), gets: `close 1003`},
		{name: "a socket that says nothing more", crowd: 8, offend: provides(silent), gets: `close 4408 .*two ping intervals|cut`, slow: true},
		{name: "a socket that reads nothing", crowd: 1, offend: deaf, gets: `200 .*outcome is unknown|cut`, slow: true},
		{name: "half an upgrade", crowd: 64, offend: halfOpen, gets: `cut after \d s|408`, slow: true},
	}
}

// provides is an offence on a provider's WebSocket, which has said hello.
func provides(f func(c *conn) (string, error)) func(context.Context, *target) (string, error) {
	return func(ctx context.Context, t *target) (string, error) {
		c, err := t.greeted(ctx, "enemy")
		if err != nil {
			return refused(err)
		}
		defer c.Close()
		return f(c)
	}
}

// refused makes it an answer that the server does not even let an offender in: who was
// closed for too much has spent the connections that it may begin.
func refused(err error) (string, error) {
	for _, answer := range []string{"close 4429 ", "429 "} {
		if text := err.Error(); strings.Contains(text, answer) {
			return text[strings.Index(text, answer):], nil
		}
	}
	return "", err
}

// greeted is a provider's WebSocket that has said hello.
func (t *target) greeted(ctx context.Context, name string) (*conn, error) {
	c, err := t.socket(ctx, name)
	if err != nil {
		return nil, err
	}
	err = c.text(`{"type":"hello","protocol":1,"provider":"` + name + `","retainSeconds":0}`)
	if err == nil {
		_, err = c.want(`"welcome"`)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// told is what the server says next of a message: that it refused it, or the end.
func (c *conn) told() (string, error) {
	for {
		opcode, payload, err := c.next()
		switch {
		case err != nil:
			return ended(err)
		case opcode == opClose:
			return closing(payload), nil
		case opcode == opText && strings.Contains(string(payload), `"type":"error"`):
			return "error " + string(payload), nil
		case opcode == opText && strings.Contains(string(payload), `"type":"registered"`):
			return "registered", nil
		}
	}
}

// pieces sends a registration byte by byte.
func pieces(c *conn) (string, error) {
	text := `{"type":"registerTools","tools":[{"name":"pieces","inputSchema":{"type":"object"}}]}`
	var all []byte
	for i := range len(text) {
		first := byte(opContinue)
		if i == 0 {
			first = opText
		}
		if i == len(text)-1 {
			first |= final
		}
		all = append(all, frame(first, text[i:i+1])...)
		all = append(all, frame(final|opPing, "x")...)
	}
	if _, err := c.Write(all); err != nil {
		return "", err
	}
	return c.told()
}

// interleaved begins a message before another has ended (RFC 6455, section 5.4).
func interleaved(c *conn) (string, error) {
	if _, err := c.Write(append(frame(opText, `{"type":`), frame(opText, `{"type":`)...)); err != nil {
		return "", err
	}
	return c.end()
}

// flood sends the same frame until the server has had enough.
func flood(one []byte) func(context.Context, *target) (string, error) {
	many := make([]byte, 0, 64<<10)
	for len(many)+len(one) < cap(many) {
		many = append(many, one...)
	}
	return provides(func(c *conn) (string, error) {
		go func() {
			for {
				if _, err := c.Write(many); err != nil {
					return
				}
			}
		}()
		return c.end()
	})
}

// registrations changes its tools faster than any disk can follow.
func registrations(c *conn) (string, error) {
	go func() {
		for i := 0; ; i++ {
			if err := c.register(fmt.Sprintf("tool-%d", i%100), fmt.Sprintf("other-%d", i%7)); err != nil {
				return
			}
		}
	}()
	for {
		if got, err := c.told(); err != nil || got != "registered" {
			return got, err
		}
	}
}

// wrongInstance answers a call that another connection was asked.
func wrongInstance(ctx context.Context, t *target) (string, error) {
	asked, err := t.greeted(ctx, "asked")
	if err != nil {
		return "", err
	}
	defer asked.Close()
	liar, err := t.greeted(ctx, "liar")
	if err != nil {
		return "", err
	}
	defer liar.Close()
	if err := asked.register("mine"); err != nil {
		return "", err
	}
	if _, err := asked.want(`"registered"`); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := t.send(ctx, post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mine","arguments":{}}}`))
		answered <- answer{text, err}
	}()
	call, err := asked.want(`"callTool"`)
	if err != nil {
		return "", err
	}
	_, id, _ := strings.Cut(call, `"callId":"`)
	id, _, _ = strings.Cut(id, `"`)
	if err := liar.text(`{"type":"toolResult","callId":"` + id + `","result":{"content":[{"type":"text","text":"a lie"}]}}`); err != nil {
		return "", err
	}
	if err := liar.register("liar"); err != nil { // so that the lie has been read
		return "", err
	}
	if _, err := liar.want(`"registered"`); err != nil {
		return "", err
	}
	if err := asked.text(`{"type":"toolResult","callId":"` + id + `","result":{"content":[{"type":"text","text":"the truth"}]}}`); err != nil {
		return "", err
	}
	a := <-answered
	if a.err == nil && strings.Contains(a.text, "the truth") {
		a.text = "ignored"
	}
	return a.text, a.err
}

// wrongTools takes off what another provider offers.
func wrongTools(ctx context.Context, t *target) (string, error) {
	owner, err := t.greeted(ctx, "owner")
	if err != nil {
		return "", err
	}
	defer owner.Close()
	thief, err := t.greeted(ctx, "thief")
	if err != nil {
		return "", err
	}
	defer thief.Close()
	if err := owner.register("owned"); err != nil {
		return "", err
	}
	if _, err := owner.want(`"registered"`); err != nil {
		return "", err
	}
	if err := thief.text(`{"type":"unregisterTools","names":["owned"]}`); err != nil {
		return "", err
	}
	if err := thief.text(`{"type":"registerTools","replace":true,"tools":[]}`); err != nil {
		return "", err
	}
	if _, err := thief.want(`"registered"`); err != nil {
		return "", err
	}
	got, err := t.send(ctx, post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	if err == nil && strings.Contains(got, `"owned"`) {
		got = "ignored"
	}
	return got, err
}

func hugeFrame(c *conn) (string, error) {
	if _, err := c.Write(header(final|opText, gibibyte)); err != nil {
		return "", err
	}
	return pour(c, strings.Repeat("x", 1<<20))
}

func hugeMessage(c *conn) (string, error) {
	if _, err := c.Write(frame(opText, "x")); err != nil {
		return "", err
	}
	return pour(c, string(frame(opContinue, strings.Repeat("x", 1<<20))))
}

// pour writes a piece again and again, up to 1 GiB.
func pour(c *conn, piece string) (string, error) {
	go func() {
		for range gibibyte / len(piece) {
			if _, err := io.WriteString(c, piece); err != nil {
				return
			}
		}
	}()
	return c.end()
}

// silent answers no ping.
func silent(c *conn) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(2 * patience)) // it is pinged every 20 s
	return c.end()
}

// deaf offers a tool whose calls are large, and reads none of them.
func deaf(ctx context.Context, t *target) (string, error) {
	c, err := t.greeted(ctx, "deaf")
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	if err := c.register("deaf"); err != nil {
		return "", err
	}
	if _, err := c.want(`"registered"`); err != nil {
		return "", err
	}
	request := post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deaf","arguments":{"x":"` + strings.Repeat("x", 3<<20) + `"}}}`)
	const calls = 12
	answers := make(chan string, calls)
	for range calls {
		go func() {
			text, err := t.send(ctx, request)
			if err != nil {
				text = err.Error()
			}
			answers <- text
		}()
	}
	var first string
	for range calls {
		if text := <-answers; first == "" || strings.Contains(text, "unknown") {
			first = text
		}
	}
	return first, nil
}

func halfOpen(ctx context.Context, t *target) (string, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	begun := time.Now()
	if _, err := c.say("GET /b/{bridge}/provider HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"); err != nil {
		return "", err
	}
	got, err := c.answer()
	if got == "cut" {
		got += after(begun)
	}
	return got, err
}
