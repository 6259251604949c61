package mcp

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"mcpbridge/session"
)

// A client's GET stream comes and goes. What of the lists changes meanwhile is found by
// the catalog's revision (interest.missed); for updates of resources, which leave no
// trace there, a session that is subscribed to any keeps a watch of the bridge for as
// long as the tape of its stream is kept. A watch holds what it is told within bounds
// of its own, and costs no goroutine. When even that is gone, all that the session is
// subscribed to counts as updated: to read once too often harms nothing.

// getStream is a session's stream of what no request asked for.
type getStream struct {
	replaced chan struct{} // closed when a newer one takes over, or the session ends
	left     chan struct{} // closed when it has handed on what it did not tell
}

// away is what a session has missed, or is about to, of updated resources. The
// session's lock guards it.
type away struct {
	watch   *session.Watch // while there is no stream; nil without one
	expiry  *time.Timer    // of the watch
	updated []string       // what an earlier stream left untold
	all     bool           // anything may have been missed
}

// takeStream makes the caller the session's one GET stream, and tells which it takes
// over from, if any. False when the session has ended.
func (s *mcpSession) takeStream() (mine, before *getStream, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, false
	}
	if before = s.stream; before != nil {
		close(before.replaced)
	}
	s.stream = &getStream{make(chan struct{}), make(chan struct{})}
	return s.stream, before, true
}

// leaveStream ends a GET stream, which used a watch that is the session's from now on.
func (s *mcpSession) leaveStream(mine *getStream, watch *session.Watch) {
	s.mu.Lock()
	if s.stream == mine {
		s.stream = nil
	}
	unused := s.keepWatch(watch)
	s.mu.Unlock()
	unused.close()
	close(mine.left)
}

// unusedWatch is a watch to be closed without the session's lock, or nil.
type unusedWatch struct{ *session.Watch }

func (w unusedWatch) close() {
	if w.Watch != nil {
		w.Close()
	}
}

// keepWatch keeps a watch while there is no stream, or else what it has to tell. The
// caller holds the lock, and closes what is returned.
func (s *mcpSession) keepWatch(watch *session.Watch) (unused unusedWatch) {
	if s.ended || len(s.subs) == 0 {
		return unusedWatch{watch}
	}
	select {
	case <-watch.Done(): // what comes next is missed
		s.away.all = true
	default:
		if s.stream == nil && s.away.watch == nil {
			s.away.watch = watch
			s.away.expiry = time.AfterFunc(tapeLife, func() { s.dropWatch(watch) })
			return unusedWatch{}
		}
	}
	_, updated := watch.Take()
	s.away.updated = append(s.away.updated, updated...)
	return unusedWatch{watch}
}

// dropWatch closes the watch that is kept, if it is still that; nil stands for any.
func (s *mcpSession) dropWatch(watch *session.Watch) {
	s.mu.Lock()
	kept := s.away.watch
	if kept == nil || watch != nil && kept != watch {
		s.mu.Unlock()
		return
	}
	s.away.expiry.Stop()
	s.away = away{all: true}
	s.mu.Unlock()
	kept.Close()
}

// missed is what a new stream begins with: which resources were updated since the
// session was last told, and which lists count as changed for that.
func (s *mcpSession) missed() (kinds session.Kinds, updated []string) {
	s.mu.Lock()
	was := s.away
	s.away = away{}
	updated = was.updated
	if was.watch != nil {
		was.expiry.Stop()
		var more []string
		kinds, more = was.watch.Take()
		updated = append(updated, more...)
		select {
		case <-was.watch.Done():
			was.all = true
		default:
		}
	}
	if was.all {
		updated = slices.Collect(maps.Keys(s.subs))
	}
	s.mu.Unlock()
	unusedWatch{was.watch}.close()
	slices.Sort(updated)
	return kinds & session.KindResource.Set(), slices.Compact(updated)
}

// expectStream keeps a watch for a session that has subscribed and has no stream yet.
func (e *Endpoint) expectStream(r *http.Request, s *mcpSession) {
	s.mu.Lock()
	needless := s.stream != nil || s.away.watch != nil || len(s.subs) == 0
	s.mu.Unlock()
	if needless {
		return
	}
	watch, err := e.watch(r, s.Bridge)
	s.mu.Lock()
	if err != nil {
		s.away.all = true // so that the client reads again when it comes
		s.mu.Unlock()
		return
	}
	unused := s.keepWatch(watch)
	s.mu.Unlock()
	unused.close()
}

// watchFor makes the caller a stream of the bridge's session. Watches that are kept for
// streams to come give way to those that are there.
func (e *Endpoint) watchFor(r *http.Request, bridge session.BridgeID, tasks ...session.TaskID) (*session.Watch, error) {
	w, err := e.watch(r, bridge, tasks...)
	if _, full := errors.AsType[*session.LimitError](err); !full {
		return w, err
	}
	for _, s := range e.sessions.of(bridge) {
		s.dropWatch(nil)
	}
	return e.watch(r, bridge, tasks...)
}
