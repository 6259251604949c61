package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpbridge/session"
)

// Memory is the reference engine: it keeps everything in maps and loses it with
// the process. It starts no goroutine and blocks on nothing but one mutex that is
// never held over anything slow, so it may be used inside testing/synctest.
//
// Unlike Bolt it gives a new Epoch to each Acquire of a Shard (1, 2, 3 and so
// on), so that fencing can be tried without a cluster.
type Memory struct {
	mu      sync.Mutex // guards all below
	closed  bool
	epochs  []Epoch // by Shard; zero before its first Acquire
	bridges map[session.BridgeID]*memoryBridge
	tokens  map[string]Token
	tenants map[TenantID]Tenant
	secrets map[string][]byte
}

// memoryBridge is what goes with its bridge when that is deleted; its tokens are
// found by their Bridge.
type memoryBridge struct {
	Bridge
	revision      uint64
	registrations map[session.ProviderID]session.Registration
	tasks         map[session.TaskID]session.Task
	pins          map[session.PinKey]session.Pinned
	ended         map[string]time.Time
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store of that many Shards, at least 1.
func NewMemory(shards int) *Memory {
	return &Memory{
		epochs:  make([]Epoch, max(shards, 1)),
		bridges: make(map[session.BridgeID]*memoryBridge),
		tokens:  make(map[string]Token),
		tenants: make(map[TenantID]Tenant),
		secrets: make(map[string][]byte),
	}
}

// do runs f under the mutex and wraps its error with the operation.
func (m *Memory) do(ctx context.Context, op string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := context.Cause(ctx)
	switch {
	case err != nil:
	case m.closed:
		err = errClosed
	default:
		err = f()
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", op, err)
	}
	return nil
}

// fenced refuses an Epoch that is older than the Shard's newest, or zero.
func (m *Memory) fenced(shard Shard, epoch Epoch) error {
	if epoch < max(m.epochs[shard], 1) {
		return ErrFenced
	}
	return nil
}

// Shards is the number given to NewMemory.
func (m *Memory) Shards() int { return len(m.epochs) }

// Acquire implements Store; each call gives the next Epoch.
func (m *Memory) Acquire(ctx context.Context, shard Shard, owner string) (epoch Epoch, err error) {
	err = m.do(ctx, fmt.Sprintf("acquire shard %d for %s", shard, owner), func() error {
		if err := validShard(shard, len(m.epochs)); err != nil {
			return err
		}
		m.epochs[shard]++
		epoch = m.epochs[shard]
		return nil
	})
	return epoch, err
}

// CreateBridge implements Store.
func (m *Memory) CreateBridge(ctx context.Context, epoch Epoch, b Bridge, tokens ...Token) error {
	return m.do(ctx, fmt.Sprintf("create bridge %.80q", b.ID), func() error {
		if err := cmp.Or(validBridge(b.ID), validTokens(b.ID, tokens...)); err != nil {
			return err
		}
		if err := m.fenced(ShardOf(b.ID, len(m.epochs)), epoch); err != nil {
			return err
		}
		if m.bridges[b.ID] != nil {
			return ErrExists
		}
		if err := m.hasTenant(b.Tenant); err != nil {
			return err
		}
		for _, t := range tokens {
			if _, taken := m.tokens[t.ID]; taken {
				return fmt.Errorf("token %s: %w", t.ID, ErrExists)
			}
		}
		m.bridges[b.ID] = &memoryBridge{
			Bridge:        cloneBridge(b),
			registrations: make(map[session.ProviderID]session.Registration),
			tasks:         make(map[session.TaskID]session.Task),
			pins:          make(map[session.PinKey]session.Pinned),
			ended:         make(map[string]time.Time),
		}
		for _, t := range tokens {
			m.tokens[t.ID] = cloneToken(t)
		}
		return nil
	})
}

// Bridge implements Store.
func (m *Memory) Bridge(ctx context.Context, id session.BridgeID) (b Bridge, err error) {
	err = m.do(ctx, fmt.Sprintf("bridge %.80q", id), func() error {
		known := m.bridges[id]
		if known == nil {
			return ErrNotFound
		}
		b = cloneBridge(known.Bridge)
		return nil
	})
	return b, err
}

// Bridges implements Store.
func (m *Memory) Bridges(ctx context.Context, after session.BridgeID, limit int) (list []Bridge, err error) {
	err = m.do(ctx, "bridges", func() error {
		for _, id := range slices.Sorted(maps.Keys(m.bridges)) {
			if id > after && len(list) < limit {
				list = append(list, cloneBridge(m.bridges[id].Bridge))
			}
		}
		return nil
	})
	return list, err
}

// UpdateBridge implements Store.
func (m *Memory) UpdateBridge(ctx context.Context, epoch Epoch, b Bridge) (now Bridge, err error) {
	err = m.do(ctx, fmt.Sprintf("update bridge %.80q", b.ID), func() error {
		if err := m.fenced(ShardOf(b.ID, len(m.epochs)), epoch); err != nil {
			return err
		}
		known := m.bridges[b.ID]
		if known == nil {
			return ErrNotFound
		}
		if known.Version != b.Version {
			return ErrConflict
		}
		now = cloneBridge(b)
		now.Created, now.Tenant = known.Created, known.Tenant
		now.Version++
		known.Bridge = cloneBridge(now)
		return nil
	})
	return now, err
}

// DeleteBridge implements Store.
func (m *Memory) DeleteBridge(ctx context.Context, epoch Epoch, id session.BridgeID) error {
	return m.do(ctx, fmt.Sprintf("delete bridge %.80q", id), func() error {
		if err := m.fenced(ShardOf(id, len(m.epochs)), epoch); err != nil {
			return err
		}
		if m.bridges[id] == nil {
			return ErrNotFound
		}
		delete(m.bridges, id)
		maps.DeleteFunc(m.tokens, func(_ string, t Token) bool { return t.Bridge == id })
		return nil
	})
}

// AddToken implements Store.
func (m *Memory) AddToken(ctx context.Context, epoch Epoch, t Token) error {
	return m.do(ctx, fmt.Sprintf("add token %.80q", t.ID), func() error {
		if err := cmp.Or(validBridge(t.Bridge), validTokens(t.Bridge, t)); err != nil {
			return err
		}
		if err := m.fenced(ShardOf(t.Bridge, len(m.epochs)), epoch); err != nil {
			return err
		}
		if m.bridges[t.Bridge] == nil {
			return fmt.Errorf("bridge %s: %w", t.Bridge, ErrNotFound)
		}
		if _, taken := m.tokens[t.ID]; taken {
			return ErrExists
		}
		m.tokens[t.ID] = cloneToken(t)
		return nil
	})
}

// PutToken implements Store.
func (m *Memory) PutToken(ctx context.Context, t Token) error {
	return m.do(ctx, fmt.Sprintf("put token %.80q", t.ID), func() error {
		if err := validTokens("", t); err != nil {
			return err
		}
		known := m.tokens[t.ID]
		if known.Bridge != "" {
			return ErrExists
		}
		if err := m.hasTenant(t.Tenant); err != nil {
			return err
		}
		t = cloneToken(t)
		t.LastUsed = known.LastUsed
		m.tokens[t.ID] = t
		return nil
	})
}

// Token implements Store.
func (m *Memory) Token(ctx context.Context, id string) (t Token, err error) {
	err = m.do(ctx, fmt.Sprintf("token %.80q", id), func() error {
		known := false
		if t, known = m.tokens[id]; !known {
			return ErrNotFound
		}
		return nil
	})
	return t, err
}

// Tokens implements Store.
func (m *Memory) Tokens(ctx context.Context, bridge session.BridgeID) (list []Token, err error) {
	err = m.do(ctx, fmt.Sprintf("tokens of bridge %.80q", bridge), func() error {
		for _, t := range m.tokens {
			if t.Bridge == bridge {
				list = append(list, t)
			}
		}
		slices.SortFunc(list, func(a, b Token) int { return cmp.Compare(a.ID, b.ID) })
		return nil
	})
	return list, err
}

// DeleteToken implements Store.
func (m *Memory) DeleteToken(ctx context.Context, id string) error {
	return m.do(ctx, fmt.Sprintf("delete token %.80q", id), func() error {
		if _, known := m.tokens[id]; !known {
			return ErrNotFound
		}
		delete(m.tokens, id)
		return nil
	})
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, id session.BridgeID) (s session.Snapshot, err error) {
	err = m.do(ctx, fmt.Sprintf("load bridge %.80q", id), func() error {
		known := m.bridges[id]
		if known == nil {
			return nil
		}
		s.Revision = known.revision
		for _, p := range slices.Sorted(maps.Keys(known.registrations)) {
			s.Registrations = append(s.Registrations, cloneRegistration(known.registrations[p]))
		}
		for _, id := range slices.Sorted(maps.Keys(known.tasks)) {
			s.Tasks = append(s.Tasks, cloneTask(known.tasks[id]))
		}
		for _, p := range known.pins {
			s.Pins = append(s.Pins, clonePin(p))
		}
		sortPins(s.Pins)
		return nil
	})
	return s, err
}

// Save implements Store.
func (m *Memory) Save(ctx context.Context, shard Shard, epoch Epoch, changes []session.Change) error {
	return m.do(ctx, fmt.Sprintf("save shard %d", shard), func() error {
		if err := validChanges(shard, len(m.epochs), changes); err != nil {
			return err
		}
		if err := m.fenced(shard, epoch); err != nil {
			return err
		}
		for _, c := range changes {
			known := m.bridges[c.Bridge]
			if known == nil {
				continue
			}
			known.revision = c.Revision
			for _, p := range c.Delete {
				delete(known.registrations, p)
			}
			for _, r := range c.Put {
				known.registrations[r.Provider] = cloneRegistration(r)
			}
			for _, id := range c.DropTasks {
				delete(known.tasks, id)
			}
			for _, t := range c.PutTasks {
				known.tasks[t.ID] = cloneTask(t)
			}
			for _, k := range c.DropPins {
				delete(known.pins, k)
			}
			for _, p := range c.PutPins {
				known.pins[p.PinKey] = clonePin(p)
			}
		}
		return nil
	})
}

// EndSession implements Store.
func (m *Memory) EndSession(ctx context.Context, bridge session.BridgeID, id string, until time.Time) error {
	return m.do(ctx, fmt.Sprintf("end session of bridge %.80q", bridge), func() error {
		known := m.bridges[bridge]
		if known == nil {
			return nil
		}
		now := time.Now()
		maps.DeleteFunc(known.ended, func(_ string, until time.Time) bool { return !until.After(now) })
		if until.After(known.ended[id]) {
			known.ended[id] = cloneTime(until)
		}
		return nil
	})
}

// SessionEnded implements Store.
func (m *Memory) SessionEnded(ctx context.Context, bridge session.BridgeID, id string) (ended bool, err error) {
	err = m.do(ctx, fmt.Sprintf("ended session of bridge %.80q", bridge), func() error {
		if known := m.bridges[bridge]; known != nil {
			ended = known.ended[id].After(time.Now())
		}
		return nil
	})
	return ended, err
}

// Secret implements Store. mint runs under the store's mutex: it must not use
// the store.
func (m *Memory) Secret(ctx context.Context, name string, mint func() []byte) (secret []byte, err error) {
	err = m.do(ctx, fmt.Sprintf("secret %.80q", name), func() error {
		if err := validName(name); err != nil {
			return err
		}
		if m.secrets[name] == nil {
			fresh := mint()
			if len(fresh) == 0 {
				return errNoSecret
			}
			m.secrets[name] = slices.Clone(fresh)
		}
		secret = slices.Clone(m.secrets[name])
		return nil
	})
	return secret, err
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// cloneTime drops what no engine keeps: the monotonic part and the location.
func cloneTime(t time.Time) time.Time { return t.Round(0).UTC() }

func cloneBridge(b Bridge) Bridge {
	b.Policy = cloneRaw(b.Policy)
	b.Created, b.Updated = cloneTime(b.Created), cloneTime(b.Updated)
	return b
}

func cloneToken(t Token) Token {
	t.Created, t.Expires = cloneTime(t.Created), cloneTime(t.Expires)
	t.LastUsed = time.Time{} // TouchTokens alone writes it
	return t
}

func cloneRegistration(r session.Registration) session.Registration {
	r.LeftAt = cloneTime(r.LeftAt)
	r.About.Extensions, r.About.Experimental = cloneRaw(r.About.Extensions), cloneRaw(r.About.Experimental)
	r.Tools = slices.Clone(r.Tools)
	if len(r.Tools) == 0 {
		r.Tools = nil
	}
	for i := range r.Tools {
		r.Tools[i].Definition = cloneRaw(r.Tools[i].Definition)
	}
	return r
}

func clonePin(p session.Pinned) session.Pinned {
	p.Since = cloneTime(p.Since)
	if p.Held != nil {
		held := *p.Held
		held.Definition = cloneRaw(held.Definition)
		p.Held = &held
	}
	return p
}

func cloneTask(t session.Task) session.Task {
	t.Created, t.Updated = cloneTime(t.Created), cloneTime(t.Updated)
	t.Expires, t.Deadline = cloneTime(t.Expires), cloneTime(t.Deadline)
	t.Inputs = slices.Clone(t.Inputs)
	if len(t.Inputs) == 0 {
		t.Inputs = nil
	}
	for i := range t.Inputs {
		t.Inputs[i].Request, t.Inputs[i].Answer = cloneRaw(t.Inputs[i].Request), cloneRaw(t.Inputs[i].Answer)
	}
	t.State, t.Result, t.Arguments = cloneRaw(t.State), cloneRaw(t.Result), cloneRaw(t.Arguments)
	t.ClientName, t.ClientVersion, t.Capabilities = cloneRaw(t.ClientName), cloneRaw(t.ClientVersion), cloneRaw(t.Capabilities)
	if t.Failure != nil {
		f := *t.Failure
		f.Data = cloneRaw(f.Data)
		t.Failure = &f
	}
	return t
}

func cloneRaw(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	return slices.Clone(raw)
}
