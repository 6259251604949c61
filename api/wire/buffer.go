package wire

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// Buffer is memory for one message, taken from a pool and given back by its
// single owner.
type Buffer struct {
	B       []byte
	charged *atomic.Int64 // its part of held
}

// held is how many bytes the buffers have that are somebody's.
var held atomic.Int64

// Held is how many bytes the process's messages hold that are read, under way or written:
// the capacity of all buffers that have an owner. One that was not given back, since its
// memory is in use elsewhere, counts until the garbage collector finds it.
func Held() int { return int(held.Load()) }

// The pools hold buffers by size, so that a large message does not pin its memory
// under small ones, nor find only small ones.
var (
	sizes = [...]int{2 << 10, 16 << 10, 128 << 10, 1 << 20} // bytes
	pools [len(sizes)]sync.Pool
)

// Small is how many bytes a message has at most that is small: it costs little to take.
const Small = 16 << 10

// NewBuffer returns an empty Buffer with room for size bytes, a hint. A buffer of
// more than 1 MiB is not pooled.
func NewBuffer(size int) *Buffer {
	for i, n := range sizes {
		if size <= n {
			if b, ok := pools[i].Get().(*Buffer); ok {
				b.charge()
				return b
			}
			size = n
			break
		}
	}
	b := &Buffer{make([]byte, 0, size), new(atomic.Int64)}
	runtime.AddCleanup(b, func(charged *atomic.Int64) { held.Add(-charged.Load()) }, b.charged)
	b.charge()
	return b
}

func (b *Buffer) charge() {
	n := int64(cap(b.B))
	held.Add(n - b.charged.Swap(n))
}

// Release gives the memory back. B must not be used after it.
func (b *Buffer) Release() {
	held.Add(-b.charged.Swap(0))
	for i, n := range sizes {
		if cap(b.B) < 2*n && cap(b.B) >= n {
			b.B = b.B[:0]
			pools[i].Put(b)
			return
		}
	}
}

// ErrTooLong says that a message did not end within its limit.
var ErrTooLong = errors.New("message too long")

// Fill fills the buffer with all that r has, up to limit bytes; ErrTooLong when r
// has more. Its memory grows with what has come, not with what was promised. Before it
// grows beyond [Small], room is asked for so many bytes more; its error ends the reading,
// and is returned. Nil always has room.
func (b *Buffer) Fill(r io.Reader, limit int, room func(more int) error) error {
	b.B = b.B[:0]
	for {
		if len(b.B) == cap(b.B) {
			if err := b.grow(limit+1, room); err != nil {
				return err
			}
		}
		n, err := r.Read(b.B[len(b.B):min(cap(b.B), limit+1)])
		b.B = b.B[:len(b.B)+n]
		if len(b.B) > limit {
			return ErrTooLong
		}
		if err == io.EOF { //nolint:errorlint // io.Reader's contract is the bare value
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grow moves what has been read into a buffer of the next size; more than most bytes
// are not needed.
func (b *Buffer) grow(most int, room func(more int) error) error {
	size := min(4*cap(b.B), most)
	if size > Small && room != nil {
		if err := room(size); err != nil {
			return err
		}
	}
	next := NewBuffer(size)
	next.B = append(next.B, b.B...)
	b.B, next.B = next.B, b.B
	b.charge()
	next.charge()
	next.Release()
	return nil
}
