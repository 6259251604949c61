package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

// listener counts what a stream is told of.
type listener struct {
	w     *session.Watch
	kinds session.Kinds
	times int
	last  time.Time
}

func listenTo(t *testing.T, s *session.Session) *listener {
	t.Helper()
	w, err := s.Watch()
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{w: w}
	go func() {
		for {
			select {
			case <-w.Changed():
				kinds, _ := w.Take()
				l.kinds |= kinds
				l.times++
				l.last = time.Now()
			case <-w.Done():
				return
			}
		}
	}()
	return l
}

func TestChangesGather(t *testing.T) {
	const window = 100 * time.Millisecond
	for name, c := range map[string]struct {
		do    func(i *session.Instance)
		times int
		after time.Duration // of the last
	}{
		"what is new is told at once": {
			func(i *session.Instance) { register(t, i, tool("b")) }, 1, 0,
		},
		"what follows is told together": {
			func(i *session.Instance) {
				for _, name := range []string{"b", "c", "d", "e"} {
					register(t, i, tool(name))
					time.Sleep(window / 5)
				}
			}, 2, window,
		},
		"what goes is told a little later": {
			func(i *session.Instance) { _ = i.Unregister([]string{"a"}, nil) }, 1, window,
		},
		"what comes back as it was is not told": {
			func(i *session.Instance) {
				_ = i.Unregister([]string{"a"}, nil)
				time.Sleep(window / 2)
				register(t, i, tool("a"))
			}, 0, 0,
		},
		"what comes back otherwise is told once": {
			func(i *session.Instance) {
				_ = i.Unregister([]string{"a"}, nil)
				time.Sleep(window / 2)
				register(t, i, toolWith("a", "new"))
			}, 1, window,
		},
		"what comes back too late is told twice": {
			func(i *session.Instance) {
				_ = i.Unregister([]string{"a"}, nil)
				time.Sleep(3 * window)
				register(t, i, tool("a"))
			}, 2, 3 * window,
		},
		"what was registered anew is not told": {
			func(i *session.Instance) { register(t, i, tool("a")) }, 0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, &disk{}, session.Limits{Coalesce: window})
				i, _ := attach(t, s, "p")
				register(t, i, tool("a"))
				time.Sleep(time.Second)
				l := listenTo(t, s)
				begun := time.Now()
				c.do(i)
				time.Sleep(window / 10)
				late := listenTo(t, s) // knows it already
				time.Sleep(time.Second)
				synctest.Wait()
				if l.times != c.times || c.times > 0 && (l.kinds != session.KindTool.Set() || l.last.Sub(begun) != c.after) {
					t.Errorf("told %d times of %b, the last after %v; want %d, %v", l.times, l.kinds, l.last.Sub(begun), c.times, c.after)
				}
				if late.times != 0 {
					t.Errorf("a stream that came later was told %d times", late.times)
				}
				s.Stop(session.ErrShutdown)
			})
		})
	}
}
