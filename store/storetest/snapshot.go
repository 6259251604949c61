package storetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"mcpbridge/session"
	"mcpbridge/store"
)

func zeroSnapshot(t *testing.T, s store.Store) {
	made(t, s, "b1")
	same(t, session.Snapshot{})(s.Load(t.Context(), "b1"))
	same(t, session.Snapshot{})(s.Load(t.Context(), "none"))
}

func byteForByte(t *testing.T, s store.Store) {
	shard, epoch := made(t, s, "b1")
	r := registration("p", "echo", "add")
	r.Tools = append(r.Tools,
		session.Tool{Name: "bare", Exposed: "bare"},
		session.Tool{Name: "odd", Exposed: "odd", Definition: json.RawMessage(" \x00\xff{\"name\":\"odd\"}\n"), NameAt: 3, NameEnd: 3, Timeout: -1})
	bare := session.Registration{Provider: "q"}
	save(t, s, shard, epoch, session.Change{Bridge: "b1", Revision: 1<<64 - 1, Put: []session.Registration{r, bare}})
	got, err := s.Load(t.Context(), "b1")
	same(t, session.Snapshot{Revision: 1<<64 - 1, Registrations: []session.Registration{r, bare}})(got, err)
	for i, u := range got.Registrations[0].Tools {
		if string(u.Definition) != string(r.Tools[i].Definition) {
			t.Errorf("tool %s: definition %q, want %q", u.Name, u.Definition, r.Tools[i].Definition)
		}
	}
}

func providersInOrder(t *testing.T, s store.Store) {
	shard, epoch := made(t, s, "b1")
	for _, p := range []session.ProviderID{"b", "a b", "~", "a", "B"} {
		save(t, s, shard, epoch, session.Change{Bridge: "b1", Revision: 1, Put: []session.Registration{registration(p)}})
	}
	same(t, session.Snapshot{Revision: 1, Registrations: []session.Registration{
		registration("B"), registration("a"), registration("a b"), registration("b"), registration("~"),
	}})(s.Load(t.Context(), "b1"))
}

func changeApplies(t *testing.T, s store.Store) {
	shard, epoch := made(t, s, "b1")
	save(t, s, shard, epoch, session.Change{Bridge: "b1", Revision: 1, Put: []session.Registration{
		registration("kept", "k"), registration("gone", "g"), registration("changed", "a", "b"),
	}})
	save(t, s, shard, epoch,
		session.Change{Bridge: "b1", Revision: 2, Put: []session.Registration{registration("changed", "x")}},
		session.Change{Bridge: "b1", Revision: 3, Put: []session.Registration{registration("changed", "c")}, Delete: []session.ProviderID{"gone", "never"}})
	same(t, session.Snapshot{Revision: 3, Registrations: []session.Registration{registration("changed", "c"), registration("kept", "k")}})(s.Load(t.Context(), "b1"))
	save(t, s, shard, epoch)
}

func deletesFirst(t *testing.T, s store.Store) {
	shard, epoch := made(t, s, "b1")
	save(t, s, shard, epoch, session.Change{Bridge: "b1", Put: []session.Registration{registration("p", "x")}, Delete: []session.ProviderID{"p"}})
	same(t, session.Snapshot{Registrations: []session.Registration{registration("p", "x")}})(s.Load(t.Context(), "b1"))
}

// sibling is another bridge ID of the same Shard.
func sibling(s store.Store, id session.BridgeID) session.BridgeID {
	for n := 0; ; n++ {
		other := session.BridgeID(fmt.Sprintf("sibling%d", n))
		if store.ShardOf(other, s.Shards()) == store.ShardOf(id, s.Shards()) {
			return other
		}
	}
}

func unknownLeftOut(t *testing.T, s store.Store) {
	shard, epoch := made(t, s, "b1")
	other := sibling(s, "b1")
	put := []session.Registration{registration("p", "x")}
	save(t, s, shard, epoch, session.Change{Bridge: other, Revision: 9, Put: put}, session.Change{Bridge: "b1", Revision: 1, Put: put})
	same(t, session.Snapshot{})(s.Load(t.Context(), other))
	same(t, session.Snapshot{Revision: 1, Registrations: put})(s.Load(t.Context(), "b1"))
	made(t, s, other)
	same(t, session.Snapshot{})(s.Load(t.Context(), other))
}

func badSave(t *testing.T, s store.Store) {
	shard, epoch := made(t, s, "b1")
	good := session.Change{Bridge: "b1", Revision: 1, Put: []session.Registration{registration("p", "x")}}
	bad := func(edit func(*session.Registration)) []session.Change {
		r := registration("q", "x")
		edit(&r)
		return []session.Change{good, {Bridge: "b1", Revision: 2, Put: []session.Registration{r}}}
	}
	fails(t, s.Save(t.Context(), shard, epoch, bad(func(r *session.Registration) { r.Tools[0].NameEnd = 1000 })))
	fails(t, s.Save(t.Context(), shard, epoch, bad(func(r *session.Registration) { r.Tools[0].NameAt = r.Tools[0].NameEnd + 1 })))
	fails(t, s.Save(t.Context(), shard, epoch, bad(func(r *session.Registration) { r.Tools[0].NameAt = -1 })))
	fails(t, s.Save(t.Context(), shard, epoch, bad(func(r *session.Registration) { r.Provider = "" })))
	fails(t, s.Save(t.Context(), shard, epoch, []session.Change{good, {Bridge: "b1", PutTasks: []session.Task{{ID: "no/id"}}}}))
	fails(t, s.Save(t.Context(), shard, epoch, []session.Change{good, {Bridge: "b1", PutTasks: []session.Task{{ID: "k", Status: session.NumTaskStatus}}}}))
	for _, edit := range []func(*session.Pinned){
		func(p *session.Pinned) { p.Provider = "" },
		func(p *session.Pinned) { p.Kind = session.NumKinds },
		func(p *session.Pinned) { p.Held.Name = "y" },
		func(p *session.Pinned) { p.Held.Kind = session.KindPrompt },
		func(p *session.Pinned) { p.Held.NameEnd = 1000 },
	} {
		p := pinned("x")
		edit(&p)
		fails(t, s.Save(t.Context(), shard, epoch, []session.Change{good, {Bridge: "b1", PutPins: []session.Pinned{p}}}))
	}
	fails(t, s.Save(t.Context(), store.Shard(s.Shards()), epoch, nil))
	if s.Shards() > 1 {
		fails(t, s.Save(t.Context(), (shard+1)%store.Shard(s.Shards()), 100, []session.Change{good}))
	}
	same(t, session.Snapshot{})(s.Load(t.Context(), "b1"))
}

func timesInUTC(t *testing.T, s store.Store) {
	shard, epoch := owned(t, s, "b1")
	local := time.Now().In(time.FixedZone("somewhere", 5400))
	b := bridge("b1")
	b.Created, b.Updated = local, local
	k := token("b1", "t1")
	k.Created, k.Expires = local, local
	r := registration("p")
	r.LeftAt = local
	want(t, nil)(s.CreateBridge(t.Context(), epoch, b, k))
	save(t, s, shard, epoch, session.Change{Bridge: "b1", Put: []session.Registration{r}})
	gotB, _ := s.Bridge(t.Context(), "b1")
	gotT, _ := s.Token(t.Context(), "t1")
	gotS, _ := s.Load(t.Context(), "b1")
	for _, got := range []time.Time{gotB.Created, gotB.Updated, gotT.Created, gotT.Expires, gotS.Registrations[0].LeftAt} {
		if got != local.Round(0).UTC() {
			t.Errorf("got %#v, want %#v", got, local.Round(0).UTC())
		}
	}
}

func nothingShared(t *testing.T, s store.Store) {
	shard, epoch := owned(t, s, "b1")
	scribble := func(b []byte) {
		for i := range b {
			b[i] = '!'
		}
	}
	b, r, k, p := bridge("b1"), registration("p", "x", "y"), task("k"), pinned("x")
	want(t, nil)(s.CreateBridge(t.Context(), epoch, b))
	save(t, s, shard, epoch, session.Change{Bridge: "b1", Put: []session.Registration{r}, PutTasks: []session.Task{k}, PutPins: []session.Pinned{p}})
	minted := []byte("minted")
	first, err := s.Secret(t.Context(), "k", func() []byte { return minted })
	want(t, nil)(err)
	for range 2 { // once over what went in, once over what came out
		scribble(b.Policy)
		scribble(r.Tools[0].Definition)
		r.Tools[0].Name = "!"
		scribble(k.Result)
		scribble(k.Inputs[0].Request)
		k.Inputs[0].Key = "!"
		scribble(k.Failure.Data)
		k.Failure.Message = "!"
		scribble(p.Held.Definition)
		p.Held.Name = "!"
		scribble(minted)
		b, _ = s.Bridge(t.Context(), "b1")
		same(t, bridge("b1"))(b, nil)
		got, err := s.Load(t.Context(), "b1")
		same(t, session.Snapshot{Registrations: []session.Registration{registration("p", "x", "y")}, Tasks: []session.Task{task("k")}, Pins: []session.Pinned{pinned("x")}})(got, err)
		r, k, p = got.Registrations[0], got.Tasks[0], got.Pins[0]
		_ = append(r.Tools[0].Definition, '!') // not over its neighbour
		same(t, tool("y"))(r.Tools[1], nil)
		scribble(first)
		first, err = s.Secret(t.Context(), "k", nil)
		same(t, []byte("minted"))(first, err)
	}
	b.Policy = json.RawMessage(`{"c":1}`)
	now, err := s.UpdateBridge(t.Context(), epoch, b)
	want(t, nil)(err)
	scribble(now.Policy)
	scribble(b.Policy)
	got, _ := s.Bridge(t.Context(), "b1")
	same(t, `{"c":1}`)(string(got.Policy), nil)
}
