package session

import (
	"bytes"
	"crypto/rand"
	"encoding/base32"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Saver makes changes durable. Save is called inside a turn: it must not block.
// Once the change, or a later one of the same session, is durable, the saver
// calls [Session.Saved] with the greatest seq that is.
type Saver interface {
	Save(s *Session, seq uint64, c Change)
}

// Stats counts what sessions do, for a whole process.
type Stats struct {
	Begun   atomic.Uint64
	Ended   [NumReasons]atomic.Uint64
	Strays  atomic.Uint64 // answers and events for calls not asked of that instance, or ended
	Dropped atomic.Uint64 // events that the caller was too slow to take
}

// Config is what a Session needs from outside.
type Config struct {
	Bridge BridgeID
	Limits Limits
	// Policy is that of the bridge in a Version of it. Empty fields mean the defaults.
	Policy        Policy
	PolicyVersion uint64
	Saver         Saver
	Stats         *Stats // shared; nil gets one of its own
	// Broken is told of a turn that panicked, with its stack. May be nil.
	Broken func(bridge BridgeID, reason any, stack []byte)
	// Clock dates the records of tasks and pins. Nil means time.Now.
	Clock func() time.Time
}

// Session is one live activation of a Bridge. All methods may be called at once.
type Session struct {
	cfg     Config              // fixed at start
	prefix  string              // fixed at start; begins every call's ID
	earlier map[string]struct{} // fixed at start; prefixes of earlier activations whose calls are waited for
	catalog atomic.Pointer[Catalog]
	nextID  atomic.Uint64
	ended   atomic.Bool // set inside the turn that stops it

	mu      sync.Mutex // guards the mailbox; never held during a turn
	space   sync.Cond  // the mailbox has room again
	mailbox []command
	spare   []command // the mailbox's other half, empty
	running bool      // somebody runs turns
	stopped bool

	state state // owned by whoever set running
}

// command is one letter of the mailbox's alphabet. apply is a turn.
type command interface{ apply(s *state) }

// Start activates a bridge from its durable state. now is the time that the
// retention of departed providers counts against.
func Start(cfg Config, snap Snapshot, now time.Time) *Session {
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Stats == nil {
		cfg.Stats = new(Stats)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	var b [5]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	s := &Session{cfg: cfg, prefix: base32.HexEncoding.EncodeToString(b[:]) + "-"}
	s.space.L = &s.mu
	s.state.start(s, snap, now)
	return s
}

// Bridge is the ID of the session's bridge.
func (s *Session) Bridge() BridgeID { return s.cfg.Bridge }

// Limits are the session's limits, defaults filled in.
func (s *Session) Limits() Limits { return s.cfg.Limits }

// Ended tells whether the session takes no commands any more.
func (s *Session) Ended() bool { return s.ended.Load() }

// Catalog returns the newest durable catalog, without a turn.
func (s *Session) Catalog() *Catalog { return s.catalog.Load() }

// maxBatches is how many batches of turns a sender runs before it hands the rest
// to a goroutine, so that no caller is kept by the calls of others.
const maxBatches = 4

// do puts a command into the mailbox, and runs turns if nobody does. When the
// mailbox is full it waits for the turn under way, which never blocks.
// ErrStopped means that the command was not taken.
func (s *Session) do(c command) error {
	s.mu.Lock()
	for s.running && len(s.mailbox) >= s.cfg.Limits.Mailbox {
		s.space.Wait()
	}
	if s.stopped {
		s.mu.Unlock()
		return ErrStopped
	}
	if s.running {
		s.mailbox = append(s.mailbox, c)
		s.mu.Unlock()
		return nil
	}
	s.running = true
	s.mu.Unlock()
	s.turn(c)
	s.drain()
	return nil
}

// drain runs turns until the mailbox is empty.
func (s *Session) drain() {
	for n := 0; ; n++ {
		s.mu.Lock()
		if s.state.stopped {
			s.stopped = true
		}
		batch := s.mailbox
		if len(batch) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		if n == maxBatches {
			s.mu.Unlock()
			go s.drain()
			return
		}
		s.mailbox = s.spare[:0]
		s.spare = nil
		s.space.Broadcast()
		s.mu.Unlock()
		for i, c := range batch {
			s.turn(c)
			batch[i] = nil
		}
		s.spare = batch[:0]
	}
}

// turn applies one command. A turn that panics breaks this session alone: its
// calls end, its connections close, and the next user activates the bridge anew.
func (s *Session) turn(c command) {
	defer func() {
		if r := recover(); r != nil {
			s.state.broken(c, r)
		}
	}()
	c.apply(&s.state)
}

// Begin hands a call to the session. Afterwards exactly one Outcome arrives on
// c.Done. ErrStopped means that the call was not taken and nothing will arrive.
func (s *Session) Begin(c *Call) error {
	if c.Events || c.Asks {
		c.signal = make(chan struct{}, 1)
	}
	s.number(c)
	return s.do((*begin)(c))
}

// number makes a call one of this activation's.
func (s *Session) number(c *Call) {
	c.reply = make(chan Outcome, 1)
	c.id, c.prefix = s.nextID.Add(1), s.prefix
}

// Abandon ends a call for a cause ([ErrTimeout], [ErrCancelled]) and returns its
// outcome, which is the provider's answer if that came first.
func (s *Session) Abandon(c *Call, cause error) Outcome {
	_ = s.do(&abandon{c, cause}) // a session that has ended has answered
	return <-c.reply
}

func (s *Session) finish(i *Instance, id []byte, r Result, err error) error {
	prefix, n, ok := s.parseID(id)
	if !ok {
		s.cfg.Stats.Strays.Add(1)
		r.Release()
		return nil
	}
	if e := s.do(&finish{inst: i, prefix: prefix, id: n, result: r, err: err}); e != nil {
		r.Release()
		return e
	}
	return nil
}

// parseID reads an ID text back. Only the exact text that AppendID wrote is one, here
// or in an earlier activation whose calls are waited for.
func (s *Session) parseID(text []byte) (prefix string, n uint64, ok bool) {
	prefix = s.prefix
	digits, ok := bytes.CutPrefix(text, []byte(prefix))
	if !ok {
		at := bytes.LastIndexByte(text, '-') + 1
		if _, ok := s.earlier[string(text[:at])]; !ok {
			return "", 0, false
		}
		prefix, digits = string(text[:at]), text[at:]
	}
	if len(digits) == 0 || digits[0] == '0' || digits[0] == '+' {
		return "", 0, false
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return prefix, n, err == nil
}

// Attach connects an instance of a provider. A [LimitError] when the bridge has
// too many providers or the provider too many instances, ErrStopped.
func (s *Session) Attach(h Hello, o Outbox, now time.Time) (*Instance, error) {
	i := &Instance{s: s, outbox: o, hello: h, attached: now}
	reply := make(chan error, 1)
	if err := s.do(&attach{inst: i, now: now, reply: reply}); err != nil {
		return nil, err
	}
	if err := <-reply; err != nil {
		return nil, err
	}
	return i, nil
}

// Saved tells that every change up to seq is durable.
func (s *Session) Saved(seq uint64) { _ = s.do(saved(seq)) }

// Tick tells the time, so that tools whose retention has passed are taken off.
func (s *Session) Tick(now time.Time) { _ = s.do(&tick{now}) }

// Release ends the session if nothing needs it: no instance, call, stream or
// unsaved change. It tells whether the session has ended.
func (s *Session) Release() bool {
	reply := make(chan bool, 1)
	if s.do(&release{reply}) != nil {
		return true
	}
	return <-reply
}

// Stop ends the session for a cause ([ErrShutdown], [ErrDeleted], [ErrFenced]):
// its calls and streams end with it, its instances are closed.
func (s *Session) Stop(cause error) {
	done := make(chan struct{})
	if s.do(&stop{cause, done}) == nil {
		<-done
	}
}
