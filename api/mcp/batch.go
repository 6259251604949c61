package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"mcpbridge/api/wire"
)

// Revision 2025-03-26 alone has batches: an array of messages in one POST, answered by
// an array of responses, or by a stream of them once something must be said before
// (MCP 2025-03-26 basic/transports, "Sending Messages to the Server").

const (
	// maxBatch bounds the messages of one batch.
	maxBatch = 64
	// batchWorkers is how many requests of one batch are under way at once.
	batchWorkers = 16
)

// isBatch tells whether the body is an array.
func (x *exchange) isBatch() bool {
	body := x.body.B
	for len(body) > 0 && (body[0] == ' ' || body[0] == '\n' || body[0] == '\r' || body[0] == '\t') {
		body = body[1:]
	}
	return len(body) > 0 && body[0] == '['
}

// errEnough ends the reading of a batch that has too many messages.
var errEnough = errors.New("too many messages")

// split finds the messages of a batch, and how many there are. It looks at no more than
// one beyond maxBatch.
func split(body []byte, depth int) (entries []json.RawMessage, n int, bad *rpcError) {
	s, err := wire.NewScanner(body, depth+1) // the array itself nests nothing
	if err != nil {
		return nil, 0, notJSON(err)
	}
	err = s.Array(func() error {
		if n++; n > maxBatch {
			return errEnough
		}
		v, err := s.Raw()
		entries = append(entries, v)
		return err
	})
	if errors.Is(err, errEnough) {
		return entries, n, nil
	}
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, 0, notJSON(err)
	}
	if n == 0 {
		return nil, 0, invalid("an empty batch has nothing to answer")
	}
	return entries, n, nil
}

// batch answers an array.
func (x *exchange) batch() {
	entries, n, bad := split(x.body.B, x.e.limits.MessageDepth)
	if bad != nil {
		x.fail(bad)
		return
	}
	header := x.r.Header.Get("Mcp-Protocol-Version")
	version := header
	if header == "" || isLegacy(header) {
		if !x.resume(header) {
			return
		}
		if x.mcp != nil {
			version = x.mcp.Version
		} else if header == "" {
			version = rev20250326
		}
	}
	switch {
	case version != rev20250326:
		x.fail(invalid("batches are not taken here; send each message on its own"))
		return
	case n > maxBatch:
		x.fail(invalid("a batch may have at most %d messages", maxBatch))
		return
	}
	messages, bad := decodeAll(entries, x.e.limits.MessageDepth)
	if bad != nil {
		x.fail(bad)
		return
	}
	x.gather(messages)
}

// message is one entry of a batch, or what is wrong with it.
type message struct {
	q   request
	bad *rpcError
}

func (m *message) wantsAnswer() bool { return m.bad != nil || !m.q.answer && m.q.id != nil }

// decodeAll reads the messages of a batch. Two requests under one id could not be told
// apart in the answer, so they spoil the batch before anything has been done.
func decodeAll(entries []json.RawMessage, depth int) ([]message, *rpcError) {
	messages := make([]message, len(entries))
	seen := make(map[string]bool, len(entries))
	for i, raw := range entries {
		m := &messages[i]
		m.q, m.bad = decode(raw, depth)
		if inMeta, _ := wire.Text(m.q.meta.version); m.bad == nil && m.q.meta.version != nil && !isLegacy(inMeta) {
			m.bad = invalid("this message's revision has no batches; send it on its own")
		}
		if m.bad == nil && m.q.id != nil && m.q.method == "initialize" {
			m.bad = invalid("initialize must not be part of a batch")
		}
		if m.wantsAnswer() && m.q.id != nil {
			if seen[string(m.q.id)] {
				return nil, invalid("two requests of the batch have the same id")
			}
			seen[string(m.q.id)] = true
		}
	}
	return messages, nil
}

// gather answers the messages of a batch, all beside each other, together.
func (x *exchange) gather(messages []message) {
	g := &gathering{x: x, turn: make(chan struct{}, 1), answers: make([][]byte, len(messages))}
	for i := range messages {
		if messages[i].wantsAnswer() {
			g.left++
		}
	}
	wanted := g.left
	r := x.r
	if x.mcp != nil {
		r = r.WithContext(context.WithoutCancel(r.Context())) // the client may come back for the answers
	}
	var kept atomic.Bool
	var wg sync.WaitGroup
	workers := make(chan struct{}, batchWorkers)
	for i := range messages {
		m := &messages[i]
		y, _ := exchanges.Get().(*exchange)
		*y = exchange{
			e: x.e, r: r, bridge: x.bridge, principal: x.principal, q: m.q, mcp: x.mcp,
			sink: &entry{g, i}, events: x.events,
		}
		serve := func() {
			y.guarded(y.answerLegacy)
			if y.kept {
				kept.Store(true)
			}
			y.done()
		}
		switch {
		case m.bad != nil:
			y.fail(m.bad)
			y.done()
		case !m.wantsAnswer():
			serve() // in its place, so that it finds what came before it
		default:
			workers <- struct{}{}
			wg.Go(func() {
				defer func() { <-workers }()
				serve()
			})
		}
	}
	wg.Wait()
	x.kept = x.kept || kept.Load()
	switch {
	case wanted == 0:
		x.accepted()
	case x.sink == nil:
		all := bytes.Join(g.told(), []byte(","))
		x.send(http.StatusOK, append(append([]byte{'['}, all...), ']'))
	}
}

// gathering is the answers of a batch.
type gathering struct {
	x       *exchange     // of the whole batch; its sink is nil until a stream is needed
	turn    chan struct{} // held over a write, which ends in time; guards the rest
	answers [][]byte      // by the message's place; nil when not there, or on the stream already
	left    int           // answers to come
}

// told are the answers that are there.
func (g *gathering) told() (all [][]byte) {
	for i, a := range g.answers {
		if a != nil {
			all = append(all, a)
			g.answers[i] = nil
		}
	}
	return all
}

// open makes the answer a stream, and puts on it what is there.
func (g *gathering) open() {
	if g.x.sink != nil {
		return
	}
	g.x.open()
	for _, a := range g.told() {
		g.x.sink.event(a)
	}
}

// entry is the sink of one message of a batch.
type entry struct {
	g *gathering
	i int
}

func (t *entry) event(message []byte) {
	t.g.turn <- struct{}{}
	defer func() { <-t.g.turn }()
	t.g.open()
	t.g.x.sink.event(message)
}

func (t *entry) answer(message []byte) {
	g := t.g
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	g.left--
	switch {
	case g.x.sink == nil:
		g.answers[t.i] = bytes.Clone(message)
	case g.left > 0:
		g.x.sink.event(message)
	default:
		g.x.sink.answer(message)
	}
}

func (t *entry) alive() {
	t.g.turn <- struct{}{}
	defer func() { <-t.g.turn }()
	t.g.open()
	t.g.x.sink.alive()
}

func (t *entry) broken() bool {
	t.g.turn <- struct{}{}
	defer func() { <-t.g.turn }()
	return t.g.x.sink != nil && t.g.x.sink.broken()
}
