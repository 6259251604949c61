package api

import (
	"runtime"
	"sync/atomic"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// memory keeps what messages hold within the limit that there is for all of them. Large
// requests may fill half of it and small ones three quarters; the rest is for the answers
// to what was taken, so that it can end.
type memory struct {
	limit     int           // bytes; below 0 for none
	wait      time.Duration // for an answer's turn
	collected atomic.Int64  // when garbage was last collected for want of room, in Unix seconds
}

// full is the limit's error, or nil when more bytes fit into a part of it.
func (m *memory) full(more, part, parts int) error {
	most := m.limit / parts * part
	if m.limit < 0 || wire.Held()+more <= most {
		return nil
	}
	// What was not given back is found as garbage alone: once a second is worth a look.
	if now, last := time.Now().Unix(), m.collected.Load(); now != last && m.collected.CompareAndSwap(last, now) {
		runtime.GC()
		if wire.Held()+more <= most {
			return nil
		}
	}
	return &session.LimitError{Limit: "all messages that are under way in the server", Max: m.limit, Unit: "bytes"}
}

// request tells whether there is room for a request, of which more bytes are to be read.
func (m *memory) request(more int) error {
	if more > wire.Small {
		return m.full(more, 1, 2)
	}
	return m.full(more, 3, 4)
}

// memoryPause is between two looks for room.
const memoryPause = 10 * time.Millisecond

// answer waits until there is room for what a provider says, of which more bytes are to
// be read: meanwhile its connection is not. What is in the way ends within the time of one
// write.
func (m *memory) answer(more int) error {
	err := m.full(more, 1, 1)
	for end := time.Now().Add(m.wait); err != nil && time.Now().Before(end); err = m.full(more, 1, 1) {
		time.Sleep(memoryPause)
	}
	return err
}
