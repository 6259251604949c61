package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mcpbridge/session"
	"mcpbridge/store"
)

// model is what a store should contain: maps of what was written, and the rules
// of [store.Store] once more, as short as they can be said.
type model struct {
	epochs    map[store.Shard]store.Epoch
	bridges   map[session.BridgeID]store.Bridge
	tokens    map[string]store.Token
	tenants   map[store.TenantID]store.Tenant
	snapshots map[session.BridgeID]session.Snapshot
	ended     map[string]bool // bridge + " " + session
	secrets   map[string]string
}

// The names are few, so that they meet.
var (
	someBridge   = rapid.SampledFrom([]session.BridgeID{"a", "a-", "b", "bb", "c"})
	someTenant   = rapid.SampledFrom([]store.TenantID{"", "t", "t-", "u"})
	someToken    = rapid.SampledFrom([]string{"s", "t", "tt", "u", "\x00"})
	someProvider = rapid.SampledFrom([]session.ProviderID{"default", "p", "p q", "~"})
	someText     = rapid.StringN(0, 8, 40)
	someTime     = rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
	someRaw = rapid.Custom(func(t *rapid.T) []byte {
		if b := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "raw"); len(b) > 0 {
			return b
		}
		return nil
	})
	someRegistration = rapid.Custom(func(t *rapid.T) session.Registration {
		r := session.Registration{
			Provider: someProvider.Draw(t, "provider"),
			Title:    someText.Draw(t, "title"),
			Version:  someText.Draw(t, "version"),
			Retain:   time.Duration(rapid.Int64().Draw(t, "retain")),
			LeftAt:   someTime.Draw(t, "left"),
		}
		if rapid.Bool().Draw(t, "about") {
			r.About = session.About{
				Instructions: someText.Draw(t, "instructions"), Extensions: someRaw.Draw(t, "extensions"), Experimental: someRaw.Draw(t, "experimental"),
			}
		}
		for range rapid.IntRange(0, 4).Draw(t, "tools") {
			def := someRaw.Draw(t, "definition")
			end := rapid.IntRange(0, len(def)).Draw(t, "end")
			r.Tools = append(r.Tools, session.Tool{
				Name: someText.Draw(t, "name"), Exposed: someText.Draw(t, "exposed"), Definition: def,
				NameAt: rapid.IntRange(0, end).Draw(t, "at"), NameEnd: end,
				Timeout: time.Duration(rapid.Int64().Draw(t, "timeout")), Headers: rapid.Bool().Draw(t, "headers"),
			})
		}
		return r
	})
)

var (
	someTaskID = rapid.SampledFrom([]session.TaskID{"k", "k2", "l"})
	someInput  = rapid.Custom(func(t *rapid.T) session.TaskInput {
		return session.TaskInput{
			Key: someText.Draw(t, "key"), Own: someText.Draw(t, "own"), Request: someRaw.Draw(t, "request"), Answer: someRaw.Draw(t, "answer"),
		}
	})
	someTask = rapid.Custom(func(t *rapid.T) session.Task {
		k := session.Task{
			ID: someTaskID.Draw(t, "task"), Principal: someText.Draw(t, "principal"), Tool: someText.Draw(t, "tool"),
			Created: someTime.Draw(t, "created"), Updated: someTime.Draw(t, "updated"),
			Expires: someTime.Draw(t, "expires"), Deadline: someTime.Draw(t, "deadline"),
			Status:  session.TaskStatus(rapid.IntRange(0, int(session.NumTaskStatus)-1).Draw(t, "status")),
			Message: someText.Draw(t, "message"), State: someRaw.Draw(t, "state"), Result: someRaw.Draw(t, "result"),
			Provider: someProvider.Draw(t, "provider"), Key: someText.Draw(t, "key"), CallID: someText.Draw(t, "call"),
			Arguments: someRaw.Draw(t, "arguments"), ClientName: someRaw.Draw(t, "client"),
			ClientVersion: someRaw.Draw(t, "client version"), Capabilities: someRaw.Draw(t, "capabilities"),
		}
		if inputs := rapid.SliceOfN(someInput, 0, 3).Draw(t, "inputs"); len(inputs) > 0 {
			k.Inputs = inputs
		}
		if rapid.Bool().Draw(t, "failed") {
			k.Failure = &session.TaskFailure{
				Reason: session.Reason(rapid.IntRange(0, int(session.NumReasons)-1).Draw(t, "reason")),
				Code:   rapid.Int().Draw(t, "code"), Message: someText.Draw(t, "failure"), Data: someRaw.Draw(t, "data"),
			}
		}
		return k
	})
)

var (
	somePinKey = rapid.Custom(func(t *rapid.T) session.PinKey {
		return session.PinKey{
			Provider: someProvider.Draw(t, "provider"), Kind: session.Kind(rapid.IntRange(0, int(session.NumKinds)-1).Draw(t, "kind")),
			Name: rapid.SampledFrom([]string{"", "a", "b\x00"}).Draw(t, "name"),
		}
	})
	somePin = rapid.Custom(func(t *rapid.T) session.Pinned {
		p := session.Pinned{PinKey: somePinKey.Draw(t, "key"), Rejected: rapid.Bool().Draw(t, "rejected"), Since: someTime.Draw(t, "since")}
		copy(p.Hash[:], someRaw.Draw(t, "hash"))
		if rapid.Bool().Draw(t, "held") {
			def := someRaw.Draw(t, "definition")
			end := rapid.IntRange(0, len(def)).Draw(t, "end")
			p.Held = &session.Tool{
				Kind: p.Kind, Name: p.Name, Definition: def, NameAt: rapid.IntRange(0, end).Draw(t, "at"), NameEnd: end,
				Timeout: time.Duration(rapid.Int64().Draw(t, "timeout")), Headers: rapid.Bool().Draw(t, "headers"),
			}
		}
		return p
	})
)

// histories runs random histories against a store and a model, and compares
// everything readable after each step.
func histories(t *testing.T, open func(t *testing.T) store.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		s := open(t)
		defer func() {
			if err := s.Close(); err != nil {
				rt.Fatalf("Close = %v", err)
			}
		}()
		m := &model{
			epochs: make(map[store.Shard]store.Epoch), bridges: make(map[session.BridgeID]store.Bridge),
			tenants: make(map[store.TenantID]store.Tenant),
			tokens:  make(map[string]store.Token), snapshots: make(map[session.BridgeID]session.Snapshot),
			ended: make(map[string]bool), secrets: make(map[string]string),
		}
		check := func(rt *rapid.T, what string, got, want error) {
			if !errors.Is(got, want) || (got == nil) != (want == nil) {
				rt.Fatalf("%s = %v, want %v", what, got, want)
			}
		}
		// epoch is the newest of the shard or, at times, one older.
		epoch := func(rt *rapid.T, shard store.Shard) (epoch store.Epoch, fenced bool) {
			newest := max(m.epochs[shard], 1)
			if rapid.IntRange(0, 9).Draw(rt, "stale") == 0 {
				return newest - 1, true
			}
			return newest, false
		}
		draw := func(rt *rapid.T) store.Bridge {
			return store.Bridge{
				ID: someBridge.Draw(rt, "bridge"), Name: someText.Draw(rt, "name"), Owner: someText.Draw(rt, "owner"), Policy: someRaw.Draw(rt, "policy"),
				Created: someTime.Draw(rt, "created"), Updated: someTime.Draw(rt, "updated"), Version: rapid.Uint64Range(0, 3).Draw(rt, "version"),
				Tenant: someTenant.Draw(rt, "tenant"),
			}
		}
		drawToken := func(rt *rapid.T, bridge session.BridgeID) store.Token {
			k := store.Token{
				ID: someToken.Draw(rt, "token"), Kind: store.TokenKind(someText.Draw(rt, "kind")), Bridge: bridge,
				Created: someTime.Draw(rt, "created"), Expires: someTime.Draw(rt, "expires"),
				Name: someText.Draw(rt, "name"), Scopes: someText.Draw(rt, "scopes"), By: someText.Draw(rt, "by"),
			}
			copy(k.Hash[:], someRaw.Draw(rt, "hash"))
			return k
		}
		rt.Repeat(map[string]func(*rapid.T){
			"Acquire": func(rt *rapid.T) {
				shard := store.Shard(rapid.IntRange(0, s.Shards()-1).Draw(rt, "shard"))
				got, err := s.Acquire(rt.Context(), shard, "test")
				check(rt, "Acquire", err, nil)
				if got < max(m.epochs[shard], 1) {
					rt.Fatalf("Acquire = %d after %d", got, m.epochs[shard])
				}
				m.epochs[shard] = got
			},
			"CreateBridge": func(rt *rapid.T) {
				b := draw(rt)
				e, fenced := epoch(rt, store.ShardOf(b.ID, s.Shards()))
				var tokens []store.Token
				var want error
				for range rapid.IntRange(0, 2).Draw(rt, "tokens") {
					k := drawToken(rt, b.ID)
					if _, taken := m.tokens[k.ID]; taken || slices.ContainsFunc(tokens, func(u store.Token) bool { return u.ID == k.ID }) {
						want = store.ErrExists
					}
					tokens = append(tokens, k)
				}
				if m.tenant(b.Tenant) != nil && want == nil {
					want = store.ErrNotFound
				}
				if _, taken := m.bridges[b.ID]; taken {
					want = store.ErrExists
				}
				err := s.CreateBridge(rt.Context(), e, b, tokens...)
				if want == store.ErrExists && errors.Is(err, store.ErrNotFound) && m.tenant(b.Tenant) != nil { //nolint:errorlint // its own
					return // as of fencing
				}
				if fenced && errors.Is(err, store.ErrFenced) {
					return // which of the two is told when both hold is left open
				} else if fenced && want == nil {
					want = store.ErrFenced
				}
				check(rt, "CreateBridge", err, want)
				if want == nil {
					m.bridges[b.ID] = b
					for _, k := range tokens {
						m.tokens[k.ID] = k
					}
				}
			},
			"UpdateBridge": func(rt *rapid.T) {
				b := draw(rt)
				e, fenced := epoch(rt, store.ShardOf(b.ID, s.Shards()))
				now, err := s.UpdateBridge(rt.Context(), e, b)
				known, ok := m.bridges[b.ID]
				switch {
				case fenced:
					check(rt, "UpdateBridge", err, store.ErrFenced)
				case !ok:
					check(rt, "UpdateBridge", err, store.ErrNotFound)
				case known.Version != b.Version:
					check(rt, "UpdateBridge", err, store.ErrConflict)
				default:
					b.Version++
					b.Created, b.Tenant = known.Created, known.Tenant
					m.bridges[b.ID] = b
					same(rt, b)(now, err)
				}
			},
			"DeleteBridge": func(rt *rapid.T) {
				id := someBridge.Draw(rt, "bridge")
				e, fenced := epoch(rt, store.ShardOf(id, s.Shards()))
				err := s.DeleteBridge(rt.Context(), e, id)
				if _, ok := m.bridges[id]; fenced {
					check(rt, "DeleteBridge", err, store.ErrFenced)
				} else if !ok {
					check(rt, "DeleteBridge", err, store.ErrNotFound)
				} else {
					check(rt, "DeleteBridge", err, nil)
					delete(m.bridges, id)
					delete(m.snapshots, id)
					maps.DeleteFunc(m.tokens, func(_ string, k store.Token) bool { return k.Bridge == id })
					for _, session := range []string{"s1", "s2"} {
						delete(m.ended, string(id)+" "+session)
					}
				}
			},
			"AddToken": func(rt *rapid.T) {
				k := drawToken(rt, someBridge.Draw(rt, "bridge"))
				e, fenced := epoch(rt, store.ShardOf(k.Bridge, s.Shards()))
				err := s.AddToken(rt.Context(), e, k)
				if _, ok := m.bridges[k.Bridge]; fenced {
					check(rt, "AddToken", err, store.ErrFenced)
				} else if !ok {
					check(rt, "AddToken", err, store.ErrNotFound)
				} else if _, taken := m.tokens[k.ID]; taken {
					check(rt, "AddToken", err, store.ErrExists)
				} else {
					check(rt, "AddToken", err, nil)
					m.tokens[k.ID] = k
				}
			},
			"PutToken": func(rt *rapid.T) {
				k := drawToken(rt, "")
				k.Tenant = someTenant.Draw(rt, "tenant")
				err := s.PutToken(rt.Context(), k)
				if m.tokens[k.ID].Bridge != "" {
					check(rt, "PutToken", err, store.ErrExists)
				} else if want := m.tenant(k.Tenant); want != nil {
					check(rt, "PutToken", err, want)
				} else {
					check(rt, "PutToken", err, nil)
					k.LastUsed = m.tokens[k.ID].LastUsed
					m.tokens[k.ID] = k
				}
			},
			"ExpireToken": func(rt *rapid.T) {
				id, at := someToken.Draw(rt, "token"), someTime.Draw(rt, "at")
				err := s.ExpireToken(rt.Context(), id, at)
				if k, ok := m.tokens[id]; ok {
					check(rt, "ExpireToken", err, nil)
					k.Expires = at
					m.tokens[id] = k
				} else {
					check(rt, "ExpireToken", err, store.ErrNotFound)
				}
			},
			"TouchTokens": func(rt *rapid.T) {
				used := rapid.MapOfN(someToken, someTime, 0, 3).Draw(rt, "used")
				check(rt, "TouchTokens", s.TouchTokens(rt.Context(), used), nil)
				for id, at := range used {
					if k, ok := m.tokens[id]; ok {
						k.LastUsed = at
						m.tokens[id] = k
					}
				}
			},
			"CreateTenant": func(rt *rapid.T) {
				t := store.Tenant{
					ID: rapid.SampledFrom([]store.TenantID{"t", "t-", "u"}).Draw(rt, "tenant"), Name: someText.Draw(rt, "name"),
					Created: someTime.Draw(rt, "created"), Updated: someTime.Draw(rt, "updated"), Version: rapid.Uint64().Draw(rt, "version"),
				}
				err := s.CreateTenant(rt.Context(), t)
				if _, taken := m.tenants[t.ID]; taken {
					check(rt, "CreateTenant", err, store.ErrExists)
				} else {
					check(rt, "CreateTenant", err, nil)
					m.tenants[t.ID] = t
				}
			},
			"DeleteTenant": func(rt *rapid.T) {
				id := rapid.SampledFrom([]store.TenantID{"t", "t-", "u"}).Draw(rt, "tenant")
				want := m.tenant(id)
				for _, b := range m.bridges {
					if b.Tenant == id {
						want = store.ErrInUse
					}
				}
				check(rt, "DeleteTenant", s.DeleteTenant(rt.Context(), id), want)
				if want == nil {
					delete(m.tenants, id)
					maps.DeleteFunc(m.tokens, func(_ string, k store.Token) bool { return k.Bridge == "" && k.Tenant == id })
				}
			},
			"DeleteToken": func(rt *rapid.T) {
				id := someToken.Draw(rt, "token")
				var want error
				if _, ok := m.tokens[id]; !ok {
					want = store.ErrNotFound
				}
				check(rt, "DeleteToken", s.DeleteToken(rt.Context(), id), want)
				delete(m.tokens, id)
			},
			"Save": func(rt *rapid.T) {
				shard := store.Shard(rapid.IntRange(0, s.Shards()-1).Draw(rt, "shard"))
				e, fenced := epoch(rt, shard)
				var changes []session.Change
				for range rapid.IntRange(0, 4).Draw(rt, "changes") {
					c := session.Change{
						Bridge: someBridge.Draw(rt, "bridge"), Revision: rapid.Uint64().Draw(rt, "revision"),
						Put:    rapid.SliceOfN(someRegistration, 0, 3).Draw(rt, "put"),
						Delete: rapid.SliceOfN(someProvider, 0, 2).Draw(rt, "delete"),

						PutTasks:  rapid.SliceOfN(someTask, 0, 2).Draw(rt, "put tasks"),
						DropTasks: rapid.SliceOfN(someTaskID, 0, 2).Draw(rt, "drop tasks"),

						PutPins:  rapid.SliceOfN(somePin, 0, 2).Draw(rt, "put pins"),
						DropPins: rapid.SliceOfN(somePinKey, 0, 2).Draw(rt, "drop pins"),
					}
					if store.ShardOf(c.Bridge, s.Shards()) == shard {
						changes = append(changes, c)
					}
				}
				err := s.Save(rt.Context(), shard, e, changes)
				if fenced {
					check(rt, "Save", err, store.ErrFenced)
					return
				}
				check(rt, "Save", err, nil)
				for _, c := range changes {
					if _, ok := m.bridges[c.Bridge]; ok {
						m.snapshots[c.Bridge] = applied(m.snapshots[c.Bridge], c)
					}
				}
			},
			"EndSession": func(rt *rapid.T) {
				id, sid := someBridge.Draw(rt, "bridge"), rapid.SampledFrom([]string{"s1", "s2"}).Draw(rt, "session")
				hours := rapid.SampledFrom([]int{-2, 1, 2}).Draw(rt, "hours")
				check(rt, "EndSession", s.EndSession(rt.Context(), id, sid, time.Now().Add(time.Duration(hours)*time.Hour)), nil)
				if _, ok := m.bridges[id]; ok && hours > 0 {
					m.ended[string(id)+" "+sid] = true
				}
			},
			"Secret": func(rt *rapid.T) {
				name := someToken.Draw(rt, "name")
				fresh := fmt.Sprint("secret", rapid.Int().Draw(rt, "fresh"))
				got, err := s.Secret(rt.Context(), name, func() []byte { return []byte(fresh) })
				check(rt, "Secret", err, nil)
				if m.secrets[name] == "" {
					m.secrets[name] = fresh
				}
				same(rt, m.secrets[name])(string(got), nil)
			},
			"": func(rt *rapid.T) { m.compare(rt, s) },
		})
	})
}

// applied is a Snapshot after a Change.
func applied(s session.Snapshot, c session.Change) session.Snapshot {
	byProvider := make(map[session.ProviderID]session.Registration)
	for _, r := range s.Registrations {
		byProvider[r.Provider] = r
	}
	for _, p := range c.Delete {
		delete(byProvider, p)
	}
	for _, r := range c.Put {
		byProvider[r.Provider] = r
	}
	now := session.Snapshot{Revision: c.Revision}
	for _, p := range slices.Sorted(maps.Keys(byProvider)) {
		now.Registrations = append(now.Registrations, byProvider[p])
	}
	byID := make(map[session.TaskID]session.Task)
	for _, t := range s.Tasks {
		byID[t.ID] = t
	}
	for _, id := range c.DropTasks {
		delete(byID, id)
	}
	for _, t := range c.PutTasks {
		byID[t.ID] = t
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		now.Tasks = append(now.Tasks, byID[id])
	}
	byKey := make(map[session.PinKey]session.Pinned)
	for _, p := range s.Pins {
		byKey[p.PinKey] = p
	}
	for _, k := range c.DropPins {
		delete(byKey, k)
	}
	for _, p := range c.PutPins {
		byKey[p.PinKey] = p
	}
	for _, k := range slices.SortedFunc(maps.Keys(byKey), session.PinKey.Compare) {
		now.Pins = append(now.Pins, byKey[k])
	}
	return now
}

// tenant is why a tenant cannot be used, or nil.
func (m *model) tenant(id store.TenantID) error {
	if _, ok := m.tenants[id]; id != "" && !ok {
		return store.ErrNotFound
	}
	return nil
}

// compare reads everything there is.
func (m *model) compare(rt *rapid.T, s store.Store) {
	var bridges []store.Bridge
	for _, id := range slices.Sorted(maps.Keys(m.bridges)) {
		bridges = append(bridges, m.bridges[id])
	}
	same(rt, bridges)(s.Bridges(rt.Context(), "", 100))
	var tenants []store.Tenant
	for _, id := range slices.Sorted(maps.Keys(m.tenants)) {
		tenants = append(tenants, m.tenants[id])
		same(rt, m.tenants[id])(s.Tenant(rt.Context(), id))
	}
	same(rt, tenants)(s.Tenants(rt.Context(), "", 100))
	for _, id := range []store.TenantID{"", "t", "t-", "u"} {
		var own []store.Bridge
		for _, b := range bridges {
			if b.Tenant == id {
				own = append(own, b)
			}
		}
		same(rt, own)(s.BridgesOf(rt.Context(), id, "", 100))
		if len(own) > 1 {
			same(rt, own[1:2])(s.BridgesOf(rt.Context(), id, own[0].ID, 1))
		}
	}
	for _, id := range []session.BridgeID{"", "a", "a-", "b", "bb", "c"} {
		var tokens []store.Token
		for _, k := range slices.Sorted(maps.Keys(m.tokens)) {
			if m.tokens[k].Bridge == id {
				tokens = append(tokens, m.tokens[k])
				same(rt, m.tokens[k])(s.Token(rt.Context(), k))
			}
		}
		same(rt, tokens)(s.Tokens(rt.Context(), id))
		same(rt, m.snapshots[id])(s.Load(rt.Context(), id))
		for _, sid := range []string{"s1", "s2"} {
			same(rt, m.ended[string(id)+" "+sid])(s.SessionEnded(rt.Context(), id, sid))
		}
		b, err := s.Bridge(rt.Context(), id)
		if known, ok := m.bridges[id]; ok {
			same(rt, known)(b, err)
		} else if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(b, store.Bridge{}) {
			rt.Fatalf("Bridge = %v, %v, want ErrNotFound", b, err)
		}
	}
}
