package session

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Watch is one stream that wants to know of new catalogs.
type Watch struct {
	s *Session
	c chan struct{}
	// end is closed when the session has ended; cause is set before.
	end   chan struct{}
	cause error

	tasks []TaskID // fixed at the start: those that it listens to

	known *Catalog // of which its client knows; owned by the turn

	mu      sync.Mutex // guards the rest; never held over anything that waits
	kinds   Kinds
	updated map[string]struct{} // exposed URIs
	moved   []TaskID            // of tasks
}

// maxUpdated is how many updated resources a stream may be behind. Beyond it the
// list of resources counts as changed.
const maxUpdated = 256

// tell notes what has changed; uri is the exposed URI of a resource, or empty.
func (w *Watch) tell(kinds Kinds, uri string) {
	w.mu.Lock()
	w.kinds |= kinds
	if uri != "" {
		if w.updated == nil {
			w.updated = map[string]struct{}{}
		}
		if len(w.updated) < maxUpdated {
			w.updated[uri] = struct{}{}
		} else {
			w.kinds |= KindResource.Set()
		}
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default: // one is waiting already: it stands for both
	}
}

// Take returns, after Changed, which lists have changed and which resources were
// updated, by exposed URI and in order, since it was last called.
func (w *Watch) Take() (Kinds, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds, updated := w.kinds, slices.Sorted(maps.Keys(w.updated))
	w.kinds, w.updated = 0, nil
	return kinds, updated
}

// tellTask notes that a task has changed.
func (w *Watch) tellTask(id TaskID) {
	if !slices.Contains(w.tasks, id) {
		return
	}
	w.mu.Lock()
	if !slices.Contains(w.moved, id) {
		w.moved = append(w.moved, id)
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// TakeTasks returns, after Changed, which of the stream's tasks have changed since it
// was last called.
func (w *Watch) TakeTasks() []TaskID {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := w.moved
	w.moved = nil
	return moved
}

// Watch adds a stream, which is also told of the tasks that it names. A [LimitError]
// when the bridge has too many, ErrStopped.
func (s *Session) Watch(tasks ...TaskID) (*Watch, error) {
	w := &Watch{s: s, c: make(chan struct{}, 1), end: make(chan struct{}), tasks: tasks}
	reply := make(chan error, 1)
	if err := s.do(&watch{w, reply}); err != nil {
		return nil, err
	}
	if err := <-reply; err != nil {
		return nil, err
	}
	return w, nil
}

// Changed is ready when Take has something to give.
func (w *Watch) Changed() <-chan struct{} { return w.c }

// Session is the stream's session.
func (w *Watch) Session() *Session { return w.s }

// Catalog is the session's newest durable catalog.
func (w *Watch) Catalog() *Catalog { return w.s.Catalog() }

// Done is closed when the session has ended; Cause then says why.
func (w *Watch) Done() <-chan struct{} { return w.end }

// Cause is why the session has ended. It is valid after Done.
func (w *Watch) Cause() error { return w.cause }

// Close removes the stream.
func (w *Watch) Close() { _ = w.s.do(&unwatch{w}) }

// herald tells the streams of new catalogs, but not of each: a provider that changes its
// tools one by one, or takes one off and registers it anew, is one change, or none.
type herald struct {
	window  bool // Limits.Coalesce has not passed since the last time
	pending bool // something has changed since
}

// publish tells of a new catalog. Something that went, may come back in a moment; other
// changes are told at once, if that is not too soon after the last.
func (s *state) publish(fewer bool) {
	switch {
	case len(s.watches) == 0 && !s.window: // whoever comes knows it
	case s.limits.Coalesce < 0:
		s.tellAll()
	case s.window || fewer:
		s.pending = true
		s.open()
	default:
		s.tellAll()
		s.open()
	}
}

// open starts the time in which changes gather, if it is not under way.
func (s *state) open() {
	if !s.window {
		s.window = true
		time.AfterFunc(s.limits.Coalesce, func() { _ = s.s.do(gathered{}) }) // a session that has ended tells nobody
	}
}

// gathered ends the time in which changes gather.
type gathered struct{}

func (gathered) apply(s *state) {
	s.window = false
	if s.pending && !s.stopped {
		s.pending = false
		s.tellAll()
		s.open()
	}
}

// tellAll tells every stream which lists differ from those that it knows.
func (s *state) tellAll() {
	now := s.s.Catalog()
	var before *Catalog
	var kinds Kinds
	for w := range s.watches {
		if w.known != before {
			before, kinds = w.known, now.differs(w.known)
		}
		w.known = now
		if kinds != 0 {
			w.tell(kinds, "")
		}
	}
}
