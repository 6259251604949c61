package wire

import (
	"errors"
	"io"
	"sync"
)

// Buffer is memory for one message, taken from a pool and given back by its
// single owner.
type Buffer struct{ B []byte }

// maxPooled is the largest buffer that the pool keeps, in bytes, so that one
// large message does not pin its memory.
const maxPooled = 1 << 20

var pool = sync.Pool{New: func() any { return &Buffer{make([]byte, 0, 2048)} }}

// NewBuffer returns an empty Buffer.
func NewBuffer() *Buffer { return pool.Get().(*Buffer) } //nolint:forcetypeassert // the pool holds nothing else

// Release gives the memory back. B must not be used after it.
func (b *Buffer) Release() {
	if cap(b.B) > maxPooled {
		return
	}
	b.B = b.B[:0]
	pool.Put(b)
}

// ErrTooLong says that a message did not end within its limit.
var ErrTooLong = errors.New("message too long")

// Fill fills the buffer with all that r has, up to limit bytes; ErrTooLong
// when r has more. size is how much is expected, or -1.
func (b *Buffer) Fill(r io.Reader, size int64, limit int) error {
	if size > int64(limit) {
		return ErrTooLong
	}
	if size >= int64(cap(b.B)) {
		b.B = make([]byte, 0, size+1) // one more, so that the end is seen without growing
	}
	b.B = b.B[:0]
	for {
		if len(b.B) == cap(b.B) {
			b.B = append(b.B, 0)[:len(b.B)]
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
