package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpbridge/session"
	"mcpbridge/store"
)

// Config is what a Directory is made of.
type Config struct {
	Store  store.Store
	Limits session.Limits
	Policy session.Policy // what a bridge's own leaves open
	Stats  *session.Stats // counts all sessions; nil gets one of its own
	Owner  string         // of the leases: a name for this process, for people
	// CreateMissing makes a bridge on the first use of its ID. For open mode.
	CreateMissing bool
	Log           *slog.Logger
}

// Directory finds the session of a bridge. All methods may be called at once.
type Directory struct {
	cfg    Config
	leases []Lease
	savers []*saver
	lost   []atomic.Bool // by Shard: another process has its Lease
	stats  *session.Stats

	live   sync.Map      // session.BridgeID → *entry
	round  atomic.Uint64 // of the sweeper
	closed atomic.Bool
	quit   chan struct{}
	done   chan struct{}
}

// entry is one bridge that is live or becoming so.
type entry struct {
	ready   chan struct{} // closed when session or err is set
	session *session.Session
	err     error
	used    atomic.Uint64 // the sweeper's round when it was last asked for
}

// Open acquires the store's shards and starts their savers.
func Open(ctx context.Context, cfg Config) (*Directory, error) {
	leases, err := acquire(ctx, cfg.Store, cfg.Owner)
	if err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Stats == nil {
		cfg.Stats = new(session.Stats)
	}
	d := &Directory{
		cfg: cfg, leases: leases, stats: cfg.Stats,
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	d.lost = make([]atomic.Bool, len(leases))
	for _, l := range leases {
		d.savers = append(d.savers, startSaver(cfg.Store, l, cfg.Log, d.fenced)) //nolint:contextcheck // what is dirty is saved even at the end
	}
	go d.sweep()
	return d, nil
}

// Stats counts what the directory's sessions do.
func (d *Directory) Stats() *session.Stats { return d.stats }

// Epoch is the fencing number under which this process writes to a shard.
func (d *Directory) Epoch(s store.Shard) store.Epoch { return d.leases[s].Epoch }

// Err is why a saver cannot write at the moment, or nil.
func (d *Directory) Err() error {
	for _, v := range d.savers {
		if err := v.err(); err != nil {
			return err
		}
	}
	return nil
}

// Session returns the bridge's live session, activating it if need be. Whoever
// is then told [session.ErrStopped] asks again. [store.ErrNotFound] for a bridge
// that does not exist, [session.ErrShutdown] when the directory is closed.
func (d *Directory) Session(ctx context.Context, id session.BridgeID) (*session.Session, error) {
	for {
		if err := d.barred(id); err != nil {
			return nil, err
		}
		e, ok := d.find(id)
		if !ok {
			fresh := &entry{ready: make(chan struct{})}
			if v, taken := d.live.LoadOrStore(id, fresh); taken {
				e = v.(*entry) //nolint:forcetypeassert // the map holds nothing else
			} else {
				e = fresh
				d.activate(ctx, id, e)
			}
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.err != nil {
			if errors.Is(e.err, errAgain) {
				continue
			}
			return nil, e.err
		}
		if !e.session.Ended() {
			if now := d.round.Load(); e.used.Load() != now {
				e.used.Store(now)
			}
			return e.session, nil
		}
		d.live.CompareAndDelete(id, e)
	}
}

// With calls f with the bridge's session, and again with a new one if the first
// had stopped before it took f's command. f returns [session.ErrStopped] only if
// nothing has happened.
func (d *Directory) With(ctx context.Context, id session.BridgeID, f func(*session.Session) error) error {
	for {
		s, err := d.Session(ctx, id)
		if err != nil {
			return err
		}
		if err = f(s); !errors.Is(err, session.ErrStopped) {
			return err
		}
		d.forget(id, s)
	}
}

func (d *Directory) find(id session.BridgeID) (*entry, bool) {
	v, ok := d.live.Load(id)
	if !ok {
		return nil, false
	}
	return v.(*entry), true //nolint:forcetypeassert // the map holds nothing else
}

// forget removes the entry of a session that has ended.
func (d *Directory) forget(id session.BridgeID, s *session.Session) {
	if e, ok := d.find(id); ok && e.session == s && s.Ended() {
		d.live.CompareAndDelete(id, e)
	}
}

// errAgain: the activation was given up by the request that began it.
var errAgain = errors.New("activation was interrupted")

// activate loads a bridge and starts its session. It owns the entry until ready.
func (d *Directory) activate(ctx context.Context, id session.BridgeID, e *entry) {
	e.err = errAgain // what a panic leaves
	defer func() {
		if e.session == nil {
			d.live.CompareAndDelete(id, e)
		}
		close(e.ready)
	}()
	s, err := d.load(ctx, id)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", errAgain, err) // others may still want it
		}
		e.err = err
		return
	}
	e.used.Store(d.round.Load())
	e.session, e.err = s, nil
	if err := d.barred(id); err != nil { // whoever stops all may have looked before this one was there
		s.Stop(err)
	}
}

// barred tells why no session may run for a bridge, or nil.
func (d *Directory) barred(id session.BridgeID) error {
	switch {
	case d.closed.Load():
		return session.ErrShutdown
	case d.lost[store.ShardOf(id, len(d.lost))].Load():
		return session.ErrFenced
	default:
		return nil
	}
}

// fenced stops every session of a Shard whose Lease another process has taken.
func (d *Directory) fenced(shard store.Shard) {
	d.lost[shard].Store(true)
	d.stopAll(session.ErrFenced, func(id session.BridgeID) bool { return store.ShardOf(id, len(d.lost)) == shard })
}

// stopAll stops the live sessions that which picks.
func (d *Directory) stopAll(cause error, which func(session.BridgeID) bool) {
	d.live.Range(func(k, v any) bool {
		if id, e := k.(session.BridgeID), v.(*entry); which(id) { //nolint:forcetypeassert // the map holds nothing else
			<-e.ready
			if e.err == nil {
				e.session.Stop(cause)
			}
		}
		return true
	})
}

func (d *Directory) load(ctx context.Context, id session.BridgeID) (*session.Session, error) {
	shard := store.ShardOf(id, len(d.leases))
	v := d.savers[shard]
	if err := v.settle(id); err != nil {
		return nil, err
	}
	b, err := d.cfg.Store.Bridge(ctx, id)
	if err != nil {
		if !d.cfg.CreateMissing || !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		now := time.Now()
		fresh := store.Bridge{ID: id, Created: now, Updated: now, Version: 1}
		if err := d.cfg.Store.CreateBridge(ctx, d.leases[shard].Epoch, fresh); err != nil && !errors.Is(err, store.ErrExists) {
			return nil, err
		}
		if b, err = d.cfg.Store.Bridge(ctx, id); err != nil { // somebody else may have made it
			return nil, err
		}
	}
	snap, err := d.cfg.Store.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	return session.Start(session.Config{
		Bridge: id, Limits: d.cfg.Limits, Policy: d.policy(b), PolicyVersion: b.Version, Saver: v, Stats: d.stats, Broken: d.broken,
	}, snap, time.Now()), nil
}

// policy is that of a bridge. What cannot be read of it has its default.
func (d *Directory) policy(b store.Bridge) session.Policy {
	p, err := session.ParsePolicy(b.Policy)
	if err != nil {
		d.cfg.Log.Warn("a bridge's policy cannot be read", "bridge", b.ID, "err", err)
	}
	return p.Or(d.cfg.Policy)
}

// Updated gives the live session of a bridge, if it has one, the policy that the store
// has now.
func (d *Directory) Updated(ctx context.Context, id session.BridgeID) error {
	e, ok := d.find(id)
	if !ok {
		return nil // the next activation reads it
	}
	<-e.ready
	if e.session == nil {
		return nil
	}
	b, err := d.cfg.Store.Bridge(ctx, id)
	if err == nil {
		e.session.SetPolicy(d.policy(b), b.Version)
	}
	return err
}

func (d *Directory) broken(id session.BridgeID, reason any, stack []byte) {
	d.cfg.Log.Error("a session's turn panicked; the bridge is activated anew", "bridge", id, "err", reason, "stack", string(stack))
}

// Live returns the session of a bridge if it has one now.
func (d *Directory) Live(id session.BridgeID) (*session.Session, bool) {
	e, ok := d.find(id)
	if !ok {
		return nil, false
	}
	select {
	case <-e.ready:
		return e.session, e.err == nil && !e.session.Ended()
	default:
		return nil, false
	}
}

// Drop stops the session of a bridge that was deleted.
func (d *Directory) Drop(id session.BridgeID) {
	if e, ok := d.find(id); ok {
		<-e.ready
		if e.err == nil {
			e.session.Stop(session.ErrDeleted)
		}
		d.live.CompareAndDelete(id, e)
	}
}

// Sessions is how many bridges are live.
func (d *Directory) Sessions() (n int) {
	d.live.Range(func(any, any) bool { n++; return true })
	return n
}

// sweep tells the sessions the time and lets the unused ones hibernate: those
// that nobody asked for during two rounds, each half of Limits.IdleAfter.
func (d *Directory) sweep() {
	defer close(d.done)
	t := time.NewTicker(d.cfg.Limits.IdleAfter / 2)
	defer t.Stop()
	for {
		select {
		case <-d.quit:
			return
		case now := <-t.C:
			round := d.round.Add(1)
			d.live.Range(func(k, v any) bool {
				e := v.(*entry) //nolint:forcetypeassert // the map holds nothing else
				select {
				case <-e.ready:
				default:
					return true
				}
				if e.err != nil {
					return true
				}
				e.session.Tick(now)
				if e.used.Load()+2 <= round && e.session.Release() {
					d.live.CompareAndDelete(k, v)
				}
				return true
			})
		}
	}
}

// Close stops every session, makes what they changed durable, and ends the
// directory's goroutines. The store stays open.
func (d *Directory) Close() {
	if d.closed.Swap(true) {
		return
	}
	close(d.quit)
	<-d.done
	for _, v := range d.savers {
		v.end(session.ErrShutdown)
	}
	d.stopAll(session.ErrShutdown, func(session.BridgeID) bool { return true })
	for _, v := range d.savers {
		v.close()
	}
}
