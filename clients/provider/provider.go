package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// defaultFrame is the largest frame that a bridge takes unless its welcome
	// says otherwise, in bytes.
	defaultFrame = 8 << 20
	// Answers are kept until they can be sent, and for a while after: what was
	// written to a dying connection is sent again to a bridge that resumed us,
	// which drops the ones it had.
	answerAge   = time.Minute
	answerCount = 256
	answerBytes = 16 << 20
	// keptSets bounds the sets of tools that the bridge may still go by.
	keptSets = 8
	// stopGrace is how long the connection waits for handlers when Run stops, so
	// that their answers still go out.
	stopGrace = 5 * time.Second
)

// Provider is one provider of tools and its connection to a bridge.
type Provider struct {
	cfg  Config        // fixed at construction
	log  *slog.Logger  // fixed at construction
	turn chan struct{} // cap 1: held by the SetTools that is under way
	done chan struct{} // closed when Run has ended; err is set before

	handlers sync.WaitGroup // running handlers; grows only under mu while !stopping
	quiet    chan struct{}  // closed when stopping and no handler runs

	mu         sync.Mutex // guards what follows; never held over I/O
	ctx        context.Context
	stopping   bool
	err        error
	link       *link      // nil while no connection has said hello
	resume     string     // token of the last welcome
	frameLimit int        // of the last welcome
	serial     int        // of the newest set of tools
	sets       []*toolSet // the one acknowledged last and all after it; the last is wanted
	waiter     *waiter    // the SetTools under way
	calls      map[string]*Call
	answers    []*answer // oldest first
}

// waiter is a SetTools that waits for its set to be acknowledged.
type waiter struct {
	id  string
	out chan outcome // cap 1
}

type outcome struct {
	registration Registration
	err          error
}

// answer is the message that ended a call, until it surely arrived.
type answer struct {
	frame []byte
	at    time.Time
	link  *link // where it was written; nil while the connection is lost
}

// Run is New and Provider.Run in one.
func Run(ctx context.Context, cfg Config) error {
	p, err := New(cfg)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// New checks the configuration and its tools. It connects nothing.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	p := &Provider{
		cfg:        cfg,
		log:        cfg.Log,
		turn:       make(chan struct{}, 1),
		done:       make(chan struct{}),
		quiet:      make(chan struct{}),
		frameLimit: defaultFrame,
		calls:      map[string]*Call{},
	}
	if cfg.Tools != nil {
		if _, err := p.want(cfg.Tools); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Run keeps the provider connected until ctx ends, and then returns nil; or
// until the bridge refuses it for good, and then returns a [*Refused]. Handlers'
// contexts end with it, and it waits for every handler. It may be called once.
func (p *Provider) Run(ctx context.Context) error {
	// Handlers keep ctx's values, and learn from us why they end.
	calls, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(ErrStopped)
	p.mu.Lock()
	if p.ctx != nil {
		p.mu.Unlock()
		return ErrRunning
	}
	p.ctx = calls
	p.mu.Unlock()

	defer context.AfterFunc(ctx, func() { stop(ErrStopped) })()
	err := p.stay(ctx)
	stop(ErrStopped)
	p.close(err)
	<-p.quiet
	close(p.done)
	return err
}

// stay dials and serves until there is a reason to stop.
func (p *Provider) stay(ctx context.Context) error {
	var b backoff
	for first := true; ; {
		l, err := p.dial(ctx, first)
		if err == nil {
			first = false
			began := time.Now()
			err = p.serve(ctx, l)
			if time.Since(began) >= stableAfter || asked(err) {
				b.reset()
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // we were told to stop: how the connection ended is no news
		}
		if refused, ok := errors.AsType[*Refused](err); ok {
			p.log.Error("the bridge refused the provider", "code", refused.Code, "err", refused.Reason)
			return refused
		}
		wait := b.wait(err)
		p.log.Warn("no connection to the bridge", "err", err, "retry", wait.Round(time.Millisecond))
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// close takes no more calls, and lets quiet be closed when the last one ended.
func (p *Provider) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	p.stopping = true
	p.err = cmp.Or(err, ErrStopped)
	go func() { // ends with the handlers; Run waits for quiet
		p.handlers.Wait()
		close(p.quiet)
	}()
}

// SetTools makes tools the provider's whole set: the bridge swaps it for the
// previous one at once. It returns when the bridge has acknowledged the set,
// which is then durable, and tells what became of each tool. Calls that already
// run are not touched.
//
// Without a connection, or before Run, it waits for one. When ctx ends it
// returns the cause; the set stays wanted, and is registered with the next
// connection. Other errors: [*RegisterError] and [*TooBigError] if the bridge
// will not take the set, [ErrStopped] or a [*Refused] if Run has ended, and the
// faults of a tool that New would report. A bridge that knows no hello
// acknowledges nothing.
func (p *Provider) SetTools(ctx context.Context, tools ...Tool) (Registration, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-p.done:
		return Registration{}, p.ended()
	case <-ctx.Done():
		return Registration{}, context.Cause(ctx)
	}
	w, err := p.want(tools)
	if err != nil {
		return Registration{}, err
	}
	defer func() {
		p.mu.Lock()
		p.waiter = nil
		p.mu.Unlock()
	}()
	select {
	case o := <-w.out:
		return o.registration, o.err
	case <-p.done:
		return Registration{}, p.ended()
	case <-ctx.Done():
		return Registration{}, context.Cause(ctx)
	}
}

func (p *Provider) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// want makes tools the set to register.
func (p *Provider) want(tools []Tool) (*waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set, err := newToolSet(strconv.Itoa(p.serial+1), tools)
	if err != nil {
		return nil, err
	}
	p.serial++
	p.sets = append(p.sets, set)
	if len(p.sets) > keptSets { // a bridge that acknowledges nothing
		p.sets = slices.Delete(p.sets, 0, 1)
	}
	p.waiter = &waiter{id: set.id, out: make(chan outcome, 1)}
	if p.link != nil {
		p.link.poke()
	}
	return p.waiter, nil
}

// wanted is the set to register; nil before the first. mu is held.
func (p *Provider) wanted() *toolSet {
	if len(p.sets) == 0 {
		return nil
	}
	return p.sets[len(p.sets)-1]
}

// settle tells the SetTools under way, if it waits for this set.
func (p *Provider) settle(id string, o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiter; w != nil && w.id == id {
		w.out <- o
		p.waiter = nil
	}
}

// registered takes the bridge's acknowledgement of a set.
func (p *Provider) registered(id string, r Registration) {
	p.mu.Lock()
	if id == "" && p.wanted() != nil { // the id is optional
		id = p.wanted().id
	}
	if i := slices.IndexFunc(p.sets, func(s *toolSet) bool { return s.id == id }); i > 0 {
		p.sets = slices.Delete(p.sets, 0, i)
	}
	p.mu.Unlock()
	p.log.Info("tools registered", "tools", len(r.Tools), "rejected", len(r.Rejected), "revision", r.Revision)
	for _, t := range r.Tools {
		for _, w := range t.Warnings {
			p.log.Warn("the bridge warns of a tool", "tool", t.Name, "warning", w)
		}
	}
	for _, t := range r.Held {
		if t.ExposedAs == "" { // the others have it as a warning
			p.log.Warn("the bridge holds a tool", "tool", t.Name, "message", t.Message)
		}
	}
	for _, t := range r.Rejected {
		p.log.Warn("the bridge rejected a tool", "tool", t.Name, "code", t.Code, "message", t.Message)
	}
	if p.cfg.Registered != nil {
		p.cfg.Registered(r)
	}
	p.settle(id, outcome{registration: r})
}

// begin starts the handler of a call that arrived on l.
func (p *Provider) begin(l *link, m *message) {
	id := string(m.CallID)
	if id == "" || id == "null" {
		p.log.Warn("message ignored", "reason", "no callId", "type", m.Type)
		return
	}
	c := &Call{
		Name:          m.Name,
		Client:        m.Meta.Client,
		Capabilities:  m.Meta.ClientCapabilities,
		Responses:     m.InputResponses,
		State:         m.RequestState,
		Traceparent:   m.Meta.Traceparent,
		LogLevel:      m.Meta.LogLevel,
		WantsProgress: m.Meta.Progress,
		provider:      p,
		id:            m.CallID,
		link:          l,
	}
	if len(m.Params) > 0 && string(m.Params) != "null" {
		c.Arguments = m.Params
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.calls[id]; old != nil {
		if old.link == l {
			return // asked twice on one connection: one answer ends both
		}
		old.stop(ErrForgotten) // a bridge that numbers its calls afresh knows nothing of it
		delete(p.calls, id)
	}
	handle := p.handler(c.Name)
	switch {
	case p.stopping:
		l.push(answerFrame(c.id, Failure("The provider is shutting down."), nil))
		return
	case handle == nil:
		l.push(errorFrame(c.id, &Error{Code: CodeInvalidParams, Message: "unknown tool: " + c.Name}))
		return
	case len(p.calls) >= p.cfg.MaxCalls:
		l.push(answerFrame(c.id, Failure(fmt.Sprintf("The provider is busy: it runs %d calls at once.", p.cfg.MaxCalls)), nil))
		return
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	c.cancel = cancel
	expire := context.CancelFunc(func() {})
	if ms := m.Meta.DeadlineMs; ms > 0 {
		left := time.Duration(min(ms, float64(24*time.Hour/time.Millisecond)) * float64(time.Millisecond))
		c.Deadline = time.Now().Add(left)
		ctx, expire = context.WithDeadlineCause(ctx, c.Deadline, ErrDeadline)
	}
	p.calls[id] = c
	p.handlers.Go(func() {
		defer cancel(nil)
		defer expire()
		result, err := p.run(ctx, c, handle)
		p.finish(c, answerFrame(c.id, result, err))
	})
}

// handler is who answers calls of a tool: of the newest set that has it. Until
// the bridge has acknowledged a set, it may still go by an older one. mu is
// held.
func (p *Provider) handler(tool string) Handler {
	for _, set := range slices.Backward(p.sets) {
		if h := set.handlers[tool]; h != nil {
			return h
		}
	}
	return nil
}

func (p *Provider) run(ctx context.Context, c *Call, handle Handler) (r Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("a handler panicked", "tool", c.Name, "call", string(c.id), "err", v, "stack", string(debug.Stack()))
			err = &Error{Code: CodeInternal, Message: "the tool crashed"}
		}
	}()
	return handle(ctx, c)
}

// finish is where every call that was begun ends, with its answer.
func (p *Provider) finish(c *Call, frame []byte) {
	p.mu.Lock()
	if c.ended {
		p.mu.Unlock()
		return // the bridge waits no more: nothing to say
	}
	c.ended = true
	delete(p.calls, string(c.id)) // before the answer is out: the ID may come again
	var big *TooBigError
	if len(frame) > p.frameLimit {
		big = &TooBigError{Bytes: len(frame), Limit: p.frameLimit}
		frame = answerFrame(c.id, Failure("The result was not sent: "+big.Error()+"."), nil)
	}
	l := c.link
	p.answers = append(p.answers, &answer{frame: frame, at: time.Now(), link: l})
	lost := p.prune()
	if l != nil {
		l.answering++
	}
	p.mu.Unlock()

	if big != nil {
		p.log.Warn("answer replaced", "reason", "too big", "call", string(c.id), "bytes", big.Bytes, "limit", big.Limit)
	}
	if lost > 0 {
		p.log.Warn("answers dropped", "reason", "too many wait for a connection", "answers", lost)
	}
	if l == nil {
		return
	}
	l.write(frame) // if that fails, the answer is still kept
	p.mu.Lock()
	l.answering--
	p.mu.Unlock()
	l.poke() // it may be waiting for its last call
}

// prune forgets answers that have surely arrived or that nobody waits for any
// more, and the oldest ones where there are too many: of those it returns how
// many were never sent. mu is held.
func (p *Provider) prune() (lost int) {
	old := time.Now().Add(-answerAge)
	p.answers = slices.DeleteFunc(p.answers, func(a *answer) bool { return a.link != nil && a.at.Before(old) })
	size := 0
	for _, a := range p.answers {
		size += len(a.frame)
	}
	for len(p.answers) > answerCount || size > answerBytes {
		if p.answers[0].link == nil {
			lost++
		}
		size -= len(p.answers[0].frame)
		p.answers = slices.Delete(p.answers, 0, 1)
	}
	return lost
}

// abandon ends a call that the bridge cancelled.
func (p *Provider) abandon(id json.RawMessage, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[string(id)]
	if c == nil {
		return
	}
	cause := ErrCancelled
	if reason != "" {
		cause = fmt.Errorf("%w: %s", ErrCancelled, reason)
	}
	l := c.link
	c.stop(cause)
	delete(p.calls, string(id))
	if l != nil {
		l.poke()
	}
}

// attach makes l the connection, once it has said hello.
func (p *Provider) attach(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
}

// welcome settles what became of the calls and answers of the connection
// before.
func (p *Provider) welcome(l *link, m *message) {
	dropped := p.resumeOn(l, m)
	if dropped > 0 {
		p.log.Warn("answers dropped", "reason", "not resumed", "answers", dropped)
	}
	p.log.Info("connected", "bridge", m.Bridge, "instance", m.Instance, "resumed", m.Resumed)
}

// resumeOn gives the calls and answers that wait to be resumed to l, or drops
// them: it returns how many answers.
func (p *Provider) resumeOn(l *link, m *message) (dropped int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := m.Resumed && l.asked != ""
	for id, c := range p.calls {
		switch {
		case c.link != nil:
		case kept:
			c.link = l
		default:
			c.stop(ErrForgotten)
			delete(p.calls, id)
		}
	}
	p.answers = slices.DeleteFunc(p.answers, func(a *answer) bool {
		switch {
		case a.link != nil:
			return false
		case kept:
			a.link = l
			l.push(a.frame)
			return false
		}
		dropped++
		return true
	})
	p.resume, l.resume = m.Resume, m.Resume
	p.frameLimit = defaultFrame
	if n := m.Limits.FrameBytes; n >= 1 && n < 1<<31 {
		p.frameLimit = int(n)
	}
	return dropped
}

// detach takes leave of a connection that is lost. Its calls and answers wait
// to be resumed, if there is something to resume them with.
func (p *Provider) detach(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == l {
		p.link = nil
	}
	for id, c := range p.calls {
		switch {
		case c.link != l:
		case l.resume != "":
			c.link = nil
		default:
			c.stop(ErrForgotten)
			delete(p.calls, id)
		}
	}
	p.answers = slices.DeleteFunc(p.answers, func(a *answer) bool {
		if a.link == l {
			a.link = nil
			return l.resume == ""
		}
		return false
	})
}

// busy tells whether a call of l has yet to be answered.
func (p *Provider) busy(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.link == l {
			return true
		}
	}
	return l.answering > 0
}
