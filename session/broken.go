package session

import "runtime/debug"

// waiting is a command whose sender waits for an answer. None is lost with a turn that
// panics: give answers, unless the turn had.
type waiting interface{ give(err error) }

// broken is the end of a session in whose turn a command panicked.
func (s *state) broken(c command, reason any) {
	if f := s.s.cfg.Broken; f != nil {
		f(s.s.cfg.Bridge, reason, debug.Stack())
	}
	s.stop(ErrBroken)
	if w, ok := c.(waiting); ok {
		w.give(ErrBroken)
	}
}

// offer sends what there is room for: a reply has room for one.
func offer[T any](reply chan<- T, v T) {
	select {
	case reply <- v:
	default:
	}
}

func (b *begin) give(err error) { offer(b.reply, Outcome{Err: err, Reason: reasonOf(err)}) }

func (a *attach) give(err error) { offer(a.reply, err) }

func (w *watch) give(err error) { offer(w.reply, err) }

func (r *release) give(error) { offer(r.reply, true) }

func (c *inspect) give(error) { offer(c.reply, Status{}) }

func (k *keep) give(err error) { offer(k.reply, taskReply{err: err}) }

func (g *getTask) give(err error) { offer(g.reply, taskReply{err: err}) }

func (x *cancelTask) give(err error) { (*getTask)(x).give(err) }
