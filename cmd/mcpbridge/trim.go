package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"mcpbridge/session"
)

// trimEvery is how often an idle server is looked at.
const trimEvery = 10 * time.Second

// trim gives memory back to the system while the server is idle: what a storm of
// connections or calls left behind would otherwise stay for minutes, since the
// collector runs as memory is asked for. It returns when ctx ends.
func trim(ctx context.Context, stats *session.Stats) {
	t := time.NewTicker(trimEvery)
	defer t.Stop()
	var calls, allocated uint64
	var mem runtime.MemStats
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := stats.Begun.Load()
		idle := now == calls
		calls = now
		if !idle {
			continue
		}
		runtime.ReadMemStats(&mem)
		if mem.TotalAlloc-allocated > trimAfter {
			debug.FreeOSMemory()
			allocated = mem.TotalAlloc
		}
	}
}

// trimAfter is how much must have been allocated since the last time, in bytes.
const trimAfter = 16 << 20
