package wire

import (
	"errors"
	"io"
	"sync"
)

// Buffer is memory for one message, taken from a pool and given back by its
// single owner.
type Buffer struct{ B []byte }

// The pools hold buffers by size, so that a large message does not pin its memory
// under small ones, nor find only small ones.
var (
	sizes = [...]int{2 << 10, 16 << 10, 128 << 10, 1 << 20} // bytes
	pools [len(sizes)]sync.Pool
)

// NewBuffer returns an empty Buffer with room for size bytes, a hint. A buffer of
// more than 1 MiB is not pooled.
func NewBuffer(size int) *Buffer {
	for i, n := range sizes {
		if size <= n {
			if b, ok := pools[i].Get().(*Buffer); ok {
				return b
			}
			return &Buffer{make([]byte, 0, n)}
		}
	}
	return &Buffer{make([]byte, 0, size)}
}

// Release gives the memory back. B must not be used after it.
func (b *Buffer) Release() {
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
// has more. It is best made for the size that is expected.
func (b *Buffer) Fill(r io.Reader, limit int) error {
	b.B = b.B[:0]
	for {
		if len(b.B) == cap(b.B) {
			b.grow()
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

// grow moves what has been read into a buffer of the next size.
func (b *Buffer) grow() {
	next := NewBuffer(4 * cap(b.B))
	next.B = append(next.B, b.B...)
	b.B, next.B = next.B, b.B
	next.Release()
}
