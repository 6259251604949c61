package provider

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// outbox is what waits to be written to one connection. It implements
// [session.Outbox]; its writer is a goroutine that lives while it has something
// to write.
type outbox struct {
	c     *conn
	since atomic.Int64 // the keeper's beat at which the write under way began; 0 when none is

	mu      sync.Mutex // never held over a write
	queue   []item
	spare   []item // the queue's other half, empty
	bytes   int
	writing bool
	held    bool  // nothing is written yet
	closing error // set once; nothing is queued after it
}

// item is one message to write. Exactly one of its kinds is set.
type item struct {
	deliver session.Delivery // a call
	cancel  *session.Call
	reason  session.Reason // with cancel
	raw     []byte         // a finished message
	size    int
}

// Deliver implements [session.Outbox].
func (o *outbox) Deliver(d session.Delivery, size int) session.Room {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closing != nil:
		return session.Ending
	case o.bytes+size > o.c.e.limits.OutboxBytes:
		return session.NoRoom
	}
	o.put(item{deliver: d, size: size})
	return session.HasRoom
}

// Cancel implements [session.Outbox].
func (o *outbox) Cancel(c *session.Call, reason session.Reason) {
	if o.c.d.cancels() {
		o.force(item{cancel: c, reason: reason, size: 128})
	}
}

// Close implements [session.Outbox].
func (o *outbox) Close(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing == nil {
		o.closing = cause
		o.start()
	}
}

// send queues a finished message. It never waits: a connection that has no room
// for it is closed as too slow.
func (o *outbox) send(raw []byte) { o.force(item{raw: raw, size: len(raw)}) }

func (o *outbox) force(i item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closing != nil:
	case o.bytes+i.size > o.c.e.limits.OutboxBytes:
		o.queue, o.bytes = nil, 0
		o.closing = ErrTooSlow
		o.start()
	default:
		o.put(i)
	}
}

// hold keeps everything from being written, until release.
func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

// release lets what was queued be written, behind first; nil for nothing.
func (o *outbox) release(first []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	if first != nil && o.closing == nil {
		o.queue = slices.Insert(o.queue, 0, item{raw: first, size: len(first)})
		o.bytes += len(first)
	}
	if len(o.queue) > 0 || o.closing != nil {
		o.start()
	}
}

// put and start are called with the lock held.
func (o *outbox) put(i item) {
	o.queue = append(o.queue, i)
	o.bytes += i.size
	o.start()
}

func (o *outbox) start() {
	if !o.writing && !o.held {
		o.writing = true
		o.c.e.wg.Go(o.write)
	}
}

// write writes until the queue is empty.
func (o *outbox) write() {
	for {
		o.mu.Lock()
		batch, cause := o.queue, o.closing
		if len(batch) == 0 {
			o.writing = false
			o.mu.Unlock()
			if cause != nil {
				o.c.close(cause)
			}
			return
		}
		o.queue, o.spare = o.spare[:0], nil
		o.mu.Unlock()
		done := 0
		for i := range batch {
			if err := survive(func() error { o.writeItem(&batch[i]); return nil }); err != nil {
				o.c.fault(err)
				_ = o.c.raw.Close() // its reader sees the end
			}
			done += batch[i].size
			batch[i] = item{}
		}
		o.mu.Lock()
		o.bytes -= done
		o.spare = batch[:0]
		o.mu.Unlock()
	}
}

func (o *outbox) writeItem(i *item) {
	if i.raw != nil {
		o.frame(i.raw)
		return
	}
	buf := wire.NewBuffer(i.size)
	defer buf.Release()
	switch {
	case i.deliver.Call != nil:
		if !i.deliver.Claim() {
			return // withdrawn
		}
		if buf.B = o.c.d.appendCall(buf.B, i.deliver.Call, time.Now()); len(buf.B) > 0 {
			o.c.meter.asked.Add(1)
			o.frame(buf.B)
		}
		i.deliver.Written()
	case i.cancel != nil:
		if buf.B = o.c.d.appendCancel(buf.B, i.cancel, i.reason); len(buf.B) > 0 {
			o.frame(buf.B)
		}
	}
}

// frame writes one message. A failed write ends the connection: the reader sees
// it. The keeper cuts a write that takes too long.
func (o *outbox) frame(b []byte) {
	o.since.Store(o.c.e.beat.Load())
	if err := o.c.ws.Write(context.Background(), websocket.MessageText, b); err != nil {
		_ = o.c.ws.CloseNow() // the write's error is what counts
	}
	o.since.Store(0)
}

// appendString appends text as a JSON string.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // a string always encodes
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
