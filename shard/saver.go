package shard

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"mcpbridge/session"
	"mcpbridge/store"
)

// saver gathers the changes of one Shard's sessions and writes them in commits.
// While one commit is under way the next gathers.
type saver struct {
	store store.Store
	lease Lease
	log   *slog.Logger
	wake  chan struct{}     // capacity one
	quit  chan struct{}     // closed to flush and end
	done  chan struct{}     // closed when it has ended
	lost  func(store.Shard) // told once when another process has the lease

	mu      sync.Mutex // guards the rest; never held over a commit
	dirty   map[session.BridgeID]*dirt
	writing map[session.BridgeID]*dirt
	settled sync.Cond // a commit has ended, or over is set
	over    error     // why nobody should wait for a commit any more; nil while the saver runs
	failing error     // the last commit's error; nil after a good one
}

// dirt is what is not durable yet of one bridge.
type dirt struct {
	revision uint64
	records  map[session.ProviderID]*session.Registration // nil: deleted
	tasks    map[session.TaskID]*session.Task             // nil: deleted
	pins     map[session.PinKey]*session.Pinned           // nil: deleted
	seqs     map[*session.Session]uint64
}

func startSaver(st store.Store, lease Lease, log *slog.Logger, lost func(store.Shard)) *saver {
	v := &saver{
		store: st, lease: lease, log: log, lost: lost,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		dirty: map[session.BridgeID]*dirt{},
	}
	v.settled.L = &v.mu
	go v.run()
	return v
}

// Save implements [session.Saver]: it only notes the change.
func (v *saver) Save(s *session.Session, seq uint64, c session.Change) {
	v.mu.Lock()
	d := v.dirty[c.Bridge]
	if d == nil {
		d = &dirt{
			records: map[session.ProviderID]*session.Registration{}, tasks: map[session.TaskID]*session.Task{},
			pins: map[session.PinKey]*session.Pinned{}, seqs: map[*session.Session]uint64{},
		}
		v.dirty[c.Bridge] = d
	}
	d.add(c)
	d.seqs[s] = seq
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (d *dirt) add(c session.Change) {
	d.revision = c.Revision
	for i := range c.Put {
		d.records[c.Put[i].Provider] = &c.Put[i]
	}
	for _, p := range c.Delete {
		d.records[p] = nil
	}
	for i := range c.PutTasks {
		d.tasks[c.PutTasks[i].ID] = &c.PutTasks[i]
	}
	for _, id := range c.DropTasks {
		d.tasks[id] = nil
	}
	for _, k := range c.DropPins { // puts win: they come last
		d.pins[k] = nil
	}
	for i := range c.PutPins {
		d.pins[c.PutPins[i].PinKey] = &c.PutPins[i]
	}
}

func (d *dirt) change(id session.BridgeID) session.Change {
	c := session.Change{Bridge: id, Revision: d.revision}
	for p, r := range d.records {
		if r == nil {
			c.Delete = append(c.Delete, p)
		} else {
			c.Put = append(c.Put, *r)
		}
	}
	for id, t := range d.tasks {
		if t == nil {
			c.DropTasks = append(c.DropTasks, id)
		} else {
			c.PutTasks = append(c.PutTasks, *t)
		}
	}
	for k, p := range d.pins {
		if p == nil {
			c.DropPins = append(c.DropPins, k)
		} else {
			c.PutPins = append(c.PutPins, *p)
		}
	}
	return c
}

// Pauses between tries of a commit that the store refuses.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

func (v *saver) run() {
	defer close(v.done)
	pause := firstRetry
	for ending := false; ; {
		if !ending {
			select {
			case <-v.wake:
			case <-v.quit:
				ending = true
			}
		}
		err := v.commit()
		switch {
		case err == nil && ending:
			return
		case err == nil:
			pause = firstRetry
			continue
		case errors.Is(err, store.ErrFenced):
			v.log.Error("another process runs the shard; its bridges stop here", "shard", v.lease.Shard, "epoch", v.lease.Epoch)
			v.drop(session.ErrFenced)
			v.lost(v.lease.Shard)
			return
		case ending:
			v.log.Error("changes are lost: the store refuses them at the end", "shard", v.lease.Shard, "err", err)
			v.drop(session.ErrShutdown)
			return
		}
		v.log.Error("the store refuses a commit; trying again", "shard", v.lease.Shard, "err", err, "pause", pause)
		retry := time.NewTimer(pause)
		select {
		case <-retry.C:
		case <-v.quit:
			ending = true
		}
		retry.Stop()
		pause = min(2*pause, lastRetry)
		select {
		case v.wake <- struct{}{}:
		default:
		}
	}
}

// commit writes what is dirty. After an error it is dirty still.
func (v *saver) commit() error {
	v.mu.Lock()
	batch := v.dirty
	v.dirty, v.writing = map[session.BridgeID]*dirt{}, batch
	v.mu.Unlock()
	changes := make([]session.Change, 0, len(batch))
	for id, d := range batch {
		changes = append(changes, d.change(id))
	}
	var err error
	if len(changes) > 0 {
		err = v.store.Save(context.Background(), v.lease.Shard, v.lease.Epoch, changes)
	}
	v.mu.Lock()
	v.writing, v.failing = nil, err
	if err != nil {
		v.putBack(batch)
	}
	v.settled.Broadcast()
	v.mu.Unlock()
	if err != nil {
		return err
	}
	for _, d := range batch {
		for s, seq := range d.seqs {
			s.Saved(seq)
		}
	}
	return nil
}

// putBack lays a batch under what has become dirty since.
func (v *saver) putBack(batch map[session.BridgeID]*dirt) {
	for id, old := range batch {
		if newer := v.dirty[id]; newer != nil {
			maps.Copy(old.records, newer.records)
			maps.Copy(old.tasks, newer.tasks)
			maps.Copy(old.pins, newer.pins)
			maps.Copy(old.seqs, newer.seqs)
			old.revision = newer.revision
		}
		v.dirty[id] = old
	}
}

// drop gives up what is dirty and stops the sessions it came from.
func (v *saver) drop(cause error) {
	v.mu.Lock()
	batch := v.dirty
	v.dirty = map[session.BridgeID]*dirt{}
	v.mu.Unlock()
	v.end(cause)
	for _, d := range batch {
		for s := range d.seqs {
			s.Stop(cause)
		}
	}
}

// settle waits until nothing of the bridge is waiting to be written, so that a
// new activation loads all that an earlier one changed. It gives up, and tells why,
// when that may never be.
func (v *saver) settle(id session.BridgeID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.dirty[id] != nil || v.writing[id] != nil {
		if v.over != nil {
			return v.over
		}
		v.settled.Wait()
	}
	return nil
}

// end sends away those who wait for a commit.
func (v *saver) end(cause error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over == nil {
		v.over = cause
	}
	v.settled.Broadcast()
}

// err is why the last commit failed, or nil.
func (v *saver) err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failing
}

// close writes what is dirty and ends the saver.
func (v *saver) close() {
	close(v.quit)
	<-v.done
}
