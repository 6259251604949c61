package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// rawProvider writes the frames of bridge.v1 by itself: it comes back at once and
// resumes, answers on whichever connection there is, and at times answers twice, or
// what it was never asked.
type rawProvider struct {
	*line
	random *rand.Rand
	every  time.Duration // between sets, about; 0 for one set alone
	drop   time.Duration // between broken connections, about; 0 for never
	polite bool          // it answers each call once

	resume string
	acked  bool // a set of it
	next   int  // version of the next set

	mu      sync.Mutex      // held while an answer is written, too
	stale   string          // a call that was answered on ws
	ws      *websocket.Conn // that has been welcomed; nil for none
	waiting [][]byte        // answers, while there is none or it fails
	busy    sync.WaitGroup  // calls that it works on
}

// message is what it reads of the bridge's frames.
type message struct {
	Type, CallID, Name, Resume, Code string
	Resumed                          bool
	ID                               string
	Params                           job
	Tools                            []struct{ Name, ExposedAs string }
	Rejected                         []json.RawMessage
	AfterMs                          int
}

// run keeps the provider connected until ctx ends.
func (p *rawProvider) run(ctx context.Context, base string) error {
	defer p.busy.Wait()
	for sleep(ctx, rand.N(300*time.Millisecond)) {
		if err := p.connection(ctx, base); err != nil {
			return fmt.Errorf("chaos: provider %s: %w", p.name, err)
		}
	}
	return nil
}

// connection is one connection from its dial to its end. An error is a message that
// should not have come.
func (p *rawProvider) connection(ctx context.Context, base string) error {
	attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ws, resp, err := websocket.Dial(attempt, strings.Replace(base, "http", "ws", 1)+"/b/"+p.bridge+"/provider",
		&websocket.DialOptions{HTTPClient: p.client(), Subprotocols: []string{"bridge.v1"}})
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		return nil //nolint:nilerr // it tries again
	}
	ws.SetReadLimit(-1)
	conn := p.number()
	ctx, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	defer func() {
		p.mu.Lock()
		p.ws = nil
		p.mu.Unlock()
		_ = ws.CloseNow()
	}()
	hello := fmt.Sprintf(`{"type":"hello","protocol":1,"provider":%q,"instance":"one","resume":%q}`, p.name, p.resume)
	if ws.Write(ctx, websocket.MessageText, []byte(hello)) != nil {
		return nil
	}
	if p.drop > 0 {
		beside.Go(func() {
			if sleep(ctx, p.drop/2+rand.N(p.drop)) {
				_ = ws.CloseNow()
			}
		})
	}
	for {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return nil //nolint:nilerr // it connects again
		}
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%w in %s", err, text)
		}
		switch m.Type {
		case "welcome":
			p.welcomed(ctx, ws, &m)
			if m.Resumed && p.acked {
				p.ready(conn) // for what it is known for
			} else {
				p.register(ctx, ws)
			}
			if p.every > 0 {
				beside.Go(func() { // the only writer of registrations from here on
					for sleep(ctx, p.every/2+rand.N(p.every)) {
						p.register(ctx, ws)
					}
				})
			}
		case "registered":
			if len(m.Rejected) > 0 {
				return fmt.Errorf("got %s", text)
			}
			n, _ := strconv.Atoi(m.ID)
			p.h.Add(Event{Kind: RegAcked, Bridge: p.bridge, Who: p.name, N: n})
			if !p.acked || conn == p.number() {
				p.ready(conn)
			}
			p.acked = true
		case "callTool":
			p.h.Add(Event{Kind: Exec, Bridge: p.bridge, Who: p.name, Tool: m.Name, ID: m.Params.ID, CallID: m.CallID, Conn: conn})
			p.busy.Go(func() { p.work(context.WithoutCancel(ctx), &m) })
		case "ping":
			if ws.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)) != nil {
				return nil
			}
		case "reconnect":
			return nil
		case "error":
			if m.Code != "draining" {
				return fmt.Errorf("got %s", text)
			}
		}
	}
}

// welcomed makes the connection the one that answers are written to.
func (p *rawProvider) welcomed(ctx context.Context, ws *websocket.Conn, m *message) {
	p.resume = m.Resume
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ws, p.stale = ws, ""
	waiting := p.waiting
	p.waiting = nil
	for _, frame := range waiting {
		p.send(ctx, ws, frame)
	}
}

// register sends the next set.
func (p *rawProvider) register(ctx context.Context, ws *websocket.Conn) {
	p.next++
	version, size := p.next, 1+p.random.IntN(4)
	tools := make([]string, 0, size)
	for i := range size {
		name := callTool(p.name)
		if i > 0 {
			name = setTool(p.name, i)
		}
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":%s}`, name, setText(version, size), schema))
	}
	p.h.Add(Event{Kind: RegBegin, Bridge: p.bridge, Who: p.name, N: version})
	// Should it fail, the reader notices.
	_ = ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"registerTools","replace":true,"id":"%d","tools":[%s]}`, version, strings.Join(tools, ",")))
}

// work does what a call asks for.
func (p *rawProvider) work(ctx context.Context, m *message) {
	sleep(ctx, m.Params.took())
	text := answerText(m.Params.ID)
	p.h.Add(Event{Kind: Answer, ID: m.Params.ID, Text: text})
	p.write(ctx, resultFrame(m.CallID, text), func(ws *websocket.Conn) {
		// On the connection that has the answer already, or else this could be it.
		dice, stale := rand.IntN(40), p.stale
		p.stale = m.CallID
		switch {
		case p.polite:
		case dice == 0:
			p.send(ctx, ws, resultFrame(m.CallID, "second answer to "+m.Params.ID))
		case dice == 1 && stale != "":
			p.send(ctx, ws, resultFrame(stale, "answer to what ended long ago"))
		}
	})
}

func resultFrame(call, text string) []byte {
	return fmt.Appendf(nil, `{"type":"toolResult","callId":%q,"result":{"content":[{"type":"text","text":%q}]}}`, call, text)
}

// write sends a frame on the connection that there is, or the next, and then calls
// more, if that is not nil.
func (p *rawProvider) write(ctx context.Context, frame []byte, more func(*websocket.Conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ws == nil || !p.send(ctx, p.ws, frame) {
		p.waiting = append(p.waiting, frame)
	} else if more != nil {
		more(p.ws)
	}
}

func (p *rawProvider) send(ctx context.Context, ws *websocket.Conn, frame []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, frame) == nil
}

// isReady tells whether a connection is welcome and its tools are registered.
func (p *rawProvider) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ws != nil && p.acked
}
