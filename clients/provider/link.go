package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

const (
	// dialTimeout bounds the whole of an attempt, upgrade included.
	dialTimeout = 10 * time.Second
	// readLimit is the largest message taken from a bridge, in bytes: a frame of
	// 8 MiB, with some slack for a bridge that counts differently.
	readLimit = defaultFrame + 64<<10
	// A write may take writeTimeout and a second for each writePace bytes: a
	// screenshot needs its time on a slow uplink.
	writeTimeout = 10 * time.Second
	writePace    = 32 << 10
	// defaultPing is how often a bridge pings unless its welcome says otherwise.
	defaultPing = 20 * time.Second
	// leaveGrace is how long running calls may hold up a reconnect that the
	// bridge asked for. A bridge in a hurry closes the connection itself.
	leaveGrace = time.Minute
	// queueLimit bounds the messages that wait for the connection's own writer.
	queueLimit = 1024
)

var (
	errDialTimeout = fmt.Errorf("the connection was not up within %v", dialTimeout)
	errSilent      = errors.New("the bridge has gone silent")
	errSlow        = errors.New("the bridge takes what we write too slowly")
	errFlooded     = errors.New("the bridge asks faster than it takes answers")
)

// link is one connection. One goroutine reads it; serve writes what the
// connection itself has to say; handlers write their own messages.
type link struct {
	p     *Provider
	ws    *websocket.Conn
	asked string // resume token in its hello
	sent  string // id of the tool set registered last; serve's own

	ctx    context.Context // of every read and write
	cancel context.CancelCauseFunc
	ended  chan error    // cap 1: why reading ended
	failed chan error    // cap 1: why writing failed
	work   chan struct{} // cap 1: serve has something to do

	writing chan struct{} // cap 1: full during a write, so that messages go out one at a time

	ping   time.Duration // the reader's own
	silent *time.Timer   // reset by the reader whenever something arrives

	// Guarded by p.mu.
	resume    string   // token of its welcome; empty before
	queue     [][]byte // for serve to write
	pongs     int      // for serve to write
	answering int      // answers being written
	leave     *later   // the bridge asked us to go and come back
}

// dial makes one attempt. With first, an unknown bridge is final: later it may
// be a router that has yet to learn where the bridge moved.
func (p *Provider) dial(ctx context.Context, first bool) (*link, error) {
	p.mu.Lock()
	asked := p.resume
	p.mu.Unlock()
	header := http.Header{"User-Agent": {"mcpbridge-provider"}}
	if p.cfg.Token != "" {
		header.Set("Authorization", "Bearer "+p.cfg.Token)
	}
	attempt, cancel := context.WithTimeoutCause(ctx, dialTimeout, errDialTimeout)
	defer cancel()
	//nolint:bodyclose // Dial says that nobody need close it
	ws, resp, err := websocket.Dial(attempt, p.cfg.URL, &websocket.DialOptions{
		HTTPClient:   p.cfg.HTTP,
		HTTPHeader:   header,
		Subprotocols: []string{subprotocol},
	})
	if err != nil {
		return nil, dialError(attempt, resp, err, first)
	}
	ws.SetReadLimit(readLimit)
	l := &link{
		p:       p,
		ws:      ws,
		asked:   asked,
		ended:   make(chan error, 1),
		failed:  make(chan error, 1),
		work:    make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
		ping:    defaultPing,
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l, nil
}

// dialError is what a failed attempt means.
func dialError(ctx context.Context, resp *http.Response, err error, first bool) error {
	if resp == nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			return e.Err // its own text repeats the URL, which may carry a credential
		}
		return err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &Refused{Code: resp.StatusCode}
	case http.StatusNotFound:
		if first {
			return &Refused{Code: resp.StatusCode}
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
			s = min(s, int(laterCap/time.Second))
			return &later{time.Now().Add(time.Duration(s) * time.Second), fmt.Sprintf("the bridge answered %d", resp.StatusCode)}
		}
	}
	return fmt.Errorf("the bridge answered %d: %w", resp.StatusCode, err)
}

// serve runs a connection until it ends and says why.
func (p *Provider) serve(ctx context.Context, l *link) error {
	defer l.cancel(nil)
	defer l.ws.CloseNow() //nolint:errcheck // it is closed already, or beyond help
	defer p.detach(l)
	l.silent = time.AfterFunc(l.patience(), func() { l.cancel(errSilent) })
	defer l.silent.Stop()
	l.writing <- struct{}{} // hello comes first, whatever is asked before it is out
	//nolint:contextcheck // handlers have a context of their own, which outlives the connection
	go func() { l.ended <- l.read() }() // every way out of here receives from ended
	l.send(p.cfg.hello(l.asked))
	<-l.writing
	p.attach(l)
	l.poke()
	var grace <-chan time.Time
	for {
		select {
		case <-l.work:
			leave := l.drain()
			if leave == nil {
				continue
			}
			if p.busy(l) {
				if grace == nil {
					grace = time.After(leaveGrace)
				}
				continue
			}
			return l.hangUp(websocket.StatusGoingAway, "coming back", leave)
		case <-grace:
			p.mu.Lock()
			leave := l.leave
			p.mu.Unlock()
			return l.hangUp(websocket.StatusGoingAway, "coming back", leave)
		case <-ctx.Done():
			p.close(nil)
			t := time.NewTimer(stopGrace)
			defer t.Stop()
			select {
			case <-p.quiet: // their answers are written
			case <-t.C:
			case err := <-l.ended:
				return l.why(err)
			}
			return l.hangUp(websocket.StatusNormalClosure, "provider stopped", ErrStopped)
		case err := <-l.failed:
			// The reader may be about to learn why: from a close frame.
			t := time.NewTimer(time.Second)
			defer t.Stop()
			select {
			case end := <-l.ended:
				return l.why(end)
			case <-t.C:
			}
			l.cancel(err)
			return l.why(<-l.ended)
		case err := <-l.ended:
			return l.why(err)
		}
	}
}

// hangUp closes the connection, which ends for reason.
func (l *link) hangUp(code websocket.StatusCode, text string, reason error) error {
	if err := l.ws.Close(code, text); err != nil {
		l.p.log.Debug("the connection did not close in order", "err", err)
	}
	if err := <-l.ended; err != nil {
		l.p.log.Debug("the connection is closed", "err", err)
	}
	return reason
}

// why is the reason behind the error that ended reading.
func (l *link) why(err error) error {
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		if slices.Contains(finalCodes, e.Code) {
			return &Refused{Code: int(e.Code), Reason: e.Reason}
		}
		l.p.mu.Lock()
		leave := l.leave
		l.p.mu.Unlock()
		if leave != nil {
			return leave
		}
		return fmt.Errorf("the bridge closed the connection: %w", e)
	}
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("the connection broke: %w", err)
}

// drain writes what the connection has to say: pongs, queued answers, and the
// tools if they changed. It returns the bridge's wish that we leave, if any.
func (l *link) drain() *later {
	p := l.p
	p.mu.Lock()
	pongs, queue, set, leave, limit := l.pongs, l.queue, p.wanted(), l.leave, p.frameLimit
	l.pongs, l.queue = 0, nil
	p.mu.Unlock()
	for range pongs {
		l.write([]byte(`{"type":"pong"}`))
	}
	for _, frame := range queue {
		l.write(frame)
	}
	if set != nil && set.id != l.sent {
		l.sent = set.id
		if len(set.frame) > limit {
			err := &TooBigError{Bytes: len(set.frame), Limit: limit}
			p.log.Error("tools not registered", "reason", "too big", "bytes", err.Bytes, "limit", err.Limit)
			p.settle(set.id, outcome{err: err})
		} else {
			l.write(set.frame)
		}
	}
	return leave
}

// poke makes serve look for work.
func (l *link) poke() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// push leaves a message for serve to write: the reader never writes, so that it
// always reads. p.mu is held.
func (l *link) push(frame []byte) {
	if len(l.queue) >= queueLimit {
		l.cancel(errFlooded)
		return
	}
	l.queue = append(l.queue, frame)
	l.poke()
}

// write sends one message. An error ends the connection by way of serve.
func (l *link) write(frame []byte) {
	l.writing <- struct{}{}
	l.send(frame)
	<-l.writing
}

// send is write for who holds writing.
func (l *link) send(frame []byte) {
	timeout := writeTimeout + time.Duration(len(frame))*time.Second/writePace
	defer time.AfterFunc(timeout, func() { l.cancel(errSlow) }).Stop()
	if err := l.ws.Write(l.ctx, websocket.MessageText, frame); err != nil {
		if cause := context.Cause(l.ctx); cause != nil {
			err = cause
		}
		select {
		case l.failed <- err:
		default:
		}
	}
}

// patience is how long the bridge may be silent: two pings and a half.
func (l *link) patience() time.Duration { return l.ping * 5 / 2 }

// alive resets the silence timer with every piece that arrives: a large message
// on a slow line is a sign of life.
type alive struct {
	io.Reader
	l *link
}

func (a alive) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	if n > 0 {
		a.l.silent.Reset(a.l.patience())
	}
	return n, err
}

// read takes messages until the connection ends.
func (l *link) read() error {
	var buf bytes.Buffer
	for {
		kind, r, err := l.ws.Reader(l.ctx)
		if err != nil {
			return err
		}
		if buf.Cap() > 1<<20 {
			buf = bytes.Buffer{}
		}
		buf.Reset()
		if _, err := buf.ReadFrom(alive{r, l}); err != nil {
			return err
		}
		if kind != websocket.MessageText {
			l.p.log.Warn("message ignored", "reason", "binary")
			continue
		}
		m, err := decode(buf.Bytes())
		if err != nil {
			l.p.log.Warn("message ignored", "reason", "not a message of the dialect")
			continue
		}
		l.take(&m)
	}
}

// take acts upon one message.
func (l *link) take(m *message) {
	p := l.p
	switch m.Type {
	case "ping":
		p.mu.Lock()
		l.pongs = min(l.pongs+1, 8)
		p.prune()
		p.mu.Unlock()
		l.poke()
	case "callTool":
		p.begin(l, m)
	case "cancelCall":
		p.abandon(m.CallID, string(m.Reason))
	case "welcome":
		if s := m.PingSeconds; s > 0 && s < 3600 {
			l.ping = time.Duration(s * float64(time.Second))
		}
		l.silent.Reset(l.patience())
		p.welcome(l, m)
	case "registered":
		p.registered(string(m.ID), m.registration())
	case "reconnect":
		after := time.Duration(min(max(0, m.AfterMs), float64(laterCap/time.Millisecond))) * time.Millisecond
		p.mu.Lock()
		l.leave = &later{time.Now().Add(after), "the bridge asked us to reconnect"}
		p.mu.Unlock()
		l.poke()
	case "error":
		p.log.Warn("the bridge refused a message", "code", string(m.Code), "message", m.Message, "of", string(m.Of))
		p.refused(string(m.Of), &RegisterError{Code: string(m.Code), Message: m.Message})
	}
}

// refused settles a SetTools whose message the bridge refused: of is the
// message's id or its type.
func (p *Provider) refused(of string, err *RegisterError) {
	p.mu.Lock()
	set := p.wanted()
	p.mu.Unlock()
	if set != nil && (of == set.id || of == "registerTools") {
		p.settle(set.id, outcome{err: err})
	}
}
