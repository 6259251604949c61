package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// conn is one provider's connection.
type conn struct {
	e      *Endpoint
	ws     *websocket.Conn
	raw    *line // below ws
	bridge session.BridgeID
	// principal is whose connection it is.
	principal string
	done      func(flooded bool) // called at the end
	born      int64              // the keeper's beat when it came; pings are due at whole intervals after it
	out       outbox

	d dialect

	heard atomic.Int64 // the keeper's beat at which something last came
	shut  atomic.Bool  // close was called

	mu    sync.Mutex         // guards what follows, for which the first message and the grace race
	named session.ProviderID // who speaks: from hello, the URL, or the default
	inst  *session.Instance
	left  bool // depart was called

	meter meter
	in    pieces // the message being read; the reader's own
	bad   int    // messages refused; the reader's own
}

const (
	maxBad    = 100 // messages of a connection that are refused before it is closed
	loggedBad = 5   // of which so many are logged
)

// attach makes the connection an instance, once; with again it may become another
// provider's.
func (c *conn) attach(h session.Hello, again bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return session.ErrProviderGone
	}
	if c.inst != nil {
		if !again {
			return nil
		}
		c.inst.Detach(time.Now())
		c.inst = nil
	}
	return c.e.cfg.Directory.With(context.Background(), c.bridge, func(s *session.Session) (err error) {
		c.inst, err = s.Attach(h, &c.out, time.Now())
		return err
	})
}

// read reads until the connection ends.
func (c *conn) read() {
	var err error
	for {
		var kind websocket.MessageType
		var r io.Reader
		if kind, r, err = c.ws.Reader(context.Background()); err != nil {
			break
		}
		c.heard.Store(c.e.beat.Load())
		if c.meter.flooded.Load() {
			if _, err = io.Copy(io.Discard, r); err != nil {
				break
			}
			continue
		}
		if kind != websocket.MessageText {
			c.refuseClose(websocket.StatusUnsupportedData, "only text frames of JSON are taken")
			break
		}
		buf := wire.NewBuffer(0)
		c.in = pieces{c: c, r: r}
		if err = buf.Fill(&c.in, c.e.limits.FrameBytes, c.e.cfg.Room); err != nil {
			buf.Release()
			if errors.Is(err, ErrFlood) {
				_, _ = io.Copy(io.Discard, r) // until it is closed
				continue
			}
			if errors.Is(err, session.ErrBusy) {
				c.refuseClose(closeFlood, closeReason(c.e.cfg.Fault(err).Message))
			}
			if errors.Is(err, wire.ErrTooLong) {
				c.refuseClose(websocket.StatusMessageTooBig, fmt.Sprintf("a message may have at most %d bytes", c.e.limits.FrameBytes))
			}
			break
		}
		keep, bad := c.handle(buf)
		if !keep {
			buf.Release()
		}
		if bad != nil && !c.complain(bad) {
			break
		}
		if keep && bad == nil {
			c.answered()
		} else {
			c.allowed()
		}
	}
	if err := survive(func() error { c.d.ended(); return nil }); err != nil {
		c.fault(err)
	}
	c.depart()
	_ = c.ws.CloseNow() // the descriptor stays open after a failed read
	c.e.remove(c)
	c.done(c.meter.flooded.Load())
}

// depart makes the connection no instance any more.
func (c *conn) depart() {
	c.mu.Lock()
	inst := c.inst
	if c.left {
		inst = nil
	}
	c.left = true
	c.mu.Unlock()
	if inst != nil {
		inst.Detach(time.Now())
		time.AfterFunc(c.e.limits.ResumeGrace, inst.Forsake)
	}
}

// handle takes one frame. A panic is this connection's alone, whose end it is.
func (c *conn) handle(buf *wire.Buffer) (keep bool, err error) {
	err = survive(func() (err error) {
		keep, err = c.d.handle(buf)
		return err
	})
	return keep, err
}

// panicked is a fault of ours that a peer's message met.
type panicked struct {
	reason any
	stack  []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.reason) }

// survive makes a panic of f an error.
func survive(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicked{r, debug.Stack()}
		}
	}()
	return f()
}

// fault logs a fault of ours, if err is one.
func (c *conn) fault(err error) {
	if p, ok := errors.AsType[*panicked](err); ok {
		c.e.cfg.Log.Error("a provider's connection panicked", "bridge", c.bridge, "err", p.reason, "stack", string(p.stack))
	}
}

// refuseClose closes for a fault of the peer's, waiting for it to hear why.
func (c *conn) refuseClose(code websocket.StatusCode, reason string) {
	if !c.shut.Swap(true) {
		c.e.cfg.Log.Info("provider refused", "bridge", c.bridge, "code", int(code), "reason", reason)
		c.raw.muted.Store(true)
		c.depart()
		_ = c.ws.Close(code, reason) // the peer may be gone
	}
}

// close tells the peer why and ends the connection; the reader then ends.
func (c *conn) close(cause error) {
	if c.shut.Swap(true) {
		return
	}
	if !errors.Is(cause, session.ErrShutdown) {
		c.e.cfg.Log.Info("provider closed", "bridge", c.bridge, "reason", cause)
	}
	c.depart() // the peer may take its time to answer
	f := c.e.cfg.Fault(cause)
	if f.Close == 0 {
		f.Close = int(websocket.StatusInternalError)
	}
	_ = c.ws.Close(websocket.StatusCode(f.Close), closeReason(f.Message))
}

// closeReason cuts a text to what a close frame holds: 123 bytes (RFC 6455,
// section 5.5).
func closeReason(text string) string {
	if len(text) > 123 {
		return text[:120] + "..."
	}
	return text
}

// problem is why a message was refused.
type problem struct {
	code    string // stable word
	message string
	of      string               // the message's type, where known
	close   websocket.StatusCode // closes the connection; 0 keeps it
}

func (p *problem) Error() string { return p.message }

// complain tells the provider of a refused message. False when it was closed.
func (c *conn) complain(err error) bool {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		c.fault(err)
		f := c.e.cfg.Fault(err)
		p = &problem{code: f.Name, message: f.Message, close: websocket.StatusCode(f.Close)}
	}
	if p.close != 0 {
		c.refuseClose(p.close, closeReason(p.message))
		return false
	}
	c.d.refused(p)
	if c.bad++; c.bad <= loggedBad {
		c.e.cfg.Log.Info("provider's message refused", "bridge", c.bridge, "code", p.code, "reason", p.message)
	}
	if c.bad >= maxBad {
		c.meter.flooded.Store(true)
		c.refuseClose(closeFlood, fmt.Sprintf("%d messages were refused", c.bad))
		return false
	}
	return true
}

// unattached closes a connection that could not become an instance: there is
// nothing that it could be used for.
func (c *conn) unattached(err error) error {
	f := c.e.cfg.Fault(err)
	if f.Close == 0 {
		f.Close = int(closeFlood)
	}
	return &problem{code: f.Name, message: f.Message, close: websocket.StatusCode(f.Close)}
}

// aside handles a rare message on another stack. The reader's own then stays small:
// an idle provider holds it, and Go shrinks stacks only as it collects garbage.
func aside[M any](handle func(M) error, m M) error {
	done := make(chan error, 1)
	go func() { done <- survive(func() error { return handle(m) }) }()
	return <-done
}

func clip(s string) string { return s[:min(len(s), 40)] }

// encode encodes what the bridge itself says, which always encodes.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("provider: " + err.Error())
	}
	return b
}
