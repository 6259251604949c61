// Package storetest is the suite that every engine of package store passes: each
// sentence of [store.Store] is a subtest, and random histories are compared with
// a model.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpbridge/session"
	"mcpbridge/store"
)

// Run runs the suite. open gives a new, empty store that the suite closes; it
// registers with t whatever else has to be cleaned up.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s store.Store)
	}{
		{"a bridge reads back as written", bridgeReadsBack},
		{"a taken bridge or token ID is refused", takenIDs},
		{"a refused creation changes nothing", refusedCreation},
		{"invalid bridges and tokens are refused", invalidRecords},
		{"bridges are listed in the order of their IDs", bridgesInOrder},
		{"an update needs the stored version", updateNeedsVersion},
		{"a deleted bridge takes everything with it", deleteTakesAll},
		{"a token of a bridge is added once", addToken},
		{"a token of no bridge is replaced", putToken},
		{"tokens are listed by bridge", tokensOfBridge},
		{"a deleted token is gone", deleteToken},
		{"a token's use is kept beside it", tokenUse},
		{"a token expires when it is told to", tokenExpires},
		{"tenants read back in order", tenantsReadBack},
		{"a bridge belongs to its tenant", bridgesOfTenant},
		{"a tenant goes once it has no bridges, with its keys", deleteTenant},
		{"an unknown bridge has the zero snapshot", zeroSnapshot},
		{"registrations come back byte for byte", byteForByte},
		{"registrations come in the order of their providers", providersInOrder},
		{"a change replaces, deletes and keeps", changeApplies},
		{"a change deletes first and puts then", deletesFirst},
		{"changes of unknown bridges are left out", unknownLeftOut},
		{"a save of another shard or of bad bounds changes nothing", badSave},
		{"times lose their location and their monotonic part", timesInUTC},
		{"no memory is shared with the store", nothingShared},
		{"an ended session is remembered until its time", endSession},
		{"a secret is minted once", secretOnce},
		{"an ended context is told with its cause", endedContext},
		{"a closed store refuses everything", closedRefuses},
		{"older epochs are fenced", fencing},
		{"creations and saves run at once", concurrency},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			test.run(t, s)
			if err := s.Close(); err != nil {
				t.Fatalf("Close = %v", err)
			}
		})
	}
	t.Run("histories agree with a model", func(t *testing.T) { histories(t, open) })
}

// noon is a time in UTC with nanoseconds, which must survive.
var noon = time.Date(2026, 7, 28, 12, 0, 0, 123456789, time.UTC)

func bridge(id session.BridgeID) store.Bridge {
	return store.Bridge{
		ID: id, Name: "Bridge " + string(id), Owner: "ann", Created: noon, Updated: noon.Add(time.Hour), Version: 1,
		Policy: json.RawMessage("{ \"b\" : 1.0,\n\"a\":\"<&>\u2028\" }"),
	}
}

func token(bridge session.BridgeID, id string) store.Token {
	t := store.Token{ID: id, Kind: store.ClientToken, Bridge: bridge, Created: noon, Expires: noon.Add(24 * time.Hour)}
	copy(t.Hash[:], "the hash of "+id)
	if bridge == "" {
		t.Kind, t.Expires = store.AdminToken, time.Time{}
	}
	return t
}

// tool has bytes in its definition that a JSON encoder would change.
func tool(name string) session.Tool {
	def := fmt.Sprintf("{ \"z\": 9007199254740993, \"name\" :%q,\n\t\"description\":\"<b>&amp;\u2028é\\u00e9\", \"a\":1e2 }", name)
	at := len(`{ "z": 9007199254740993, "name" :`)
	return session.Tool{
		Name: name, Exposed: name + "-1a2b", Definition: json.RawMessage(def),
		NameAt: at, NameEnd: at + len(name) + 2, Timeout: 90 * time.Second, Headers: true,
	}
}

func registration(provider session.ProviderID, tools ...string) session.Registration {
	r := session.Registration{Provider: provider, Title: "A <title>", Version: "1.2", Retain: 24 * time.Hour, LeftAt: noon}
	for _, name := range tools {
		r.Tools = append(r.Tools, tool(name))
	}
	return r
}

func pinned(name string) session.Pinned {
	held := tool(name)
	held.Exposed = ""
	return session.Pinned{PinKey: session.PinKey{Provider: "p", Name: name}, Hash: [32]byte{1, 2, 3}, Held: &held, Since: noon}
}

func task(id session.TaskID) session.Task {
	return session.Task{
		ID: id, Principal: "somebody", Tool: "x", Created: noon, Status: session.TaskDone,
		Inputs:  []session.TaskInput{{Key: "a-2", Own: "a", Request: json.RawMessage(`{"method":"m"}`)}},
		Result:  json.RawMessage(`{"n":9007199254740993}`),
		Failure: &session.TaskFailure{Code: -32603, Message: "m", Data: json.RawMessage(`[1]`)},
	}
}

// owned acquires the Lease of a bridge's Shard.
func owned(t testing.TB, s store.Store, id session.BridgeID) (store.Shard, store.Epoch) {
	t.Helper()
	shard := store.ShardOf(id, s.Shards())
	epoch, err := s.Acquire(t.Context(), shard, "test")
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	return shard, epoch
}

// made creates a bridge with tokens and returns its Shard and Epoch.
func made(t testing.TB, s store.Store, id session.BridgeID, tokens ...store.Token) (store.Shard, store.Epoch) {
	t.Helper()
	shard, epoch := owned(t, s, id)
	want(t, nil)(s.CreateBridge(t.Context(), epoch, bridge(id), tokens...))
	return shard, epoch
}

func save(t testing.TB, s store.Store, shard store.Shard, epoch store.Epoch, changes ...session.Change) {
	t.Helper()
	want(t, nil)(s.Save(t.Context(), shard, epoch, changes))
}

// want returns a check that an error is target.
func want(t testing.TB, target error) func(error) {
	t.Helper()
	return func(err error) {
		t.Helper()
		if !errors.Is(err, target) {
			t.Fatalf("got the error %v, want %v", err, target)
		}
	}
}

// fails checks that there is an error that is none of the sentinels.
func fails(t testing.TB, err error) {
	t.Helper()
	for _, sentinel := range []error{store.ErrNotFound, store.ErrFenced, store.ErrConflict} {
		if err == nil || errors.Is(err, sentinel) {
			t.Fatalf("got the error %v, want one of its own", err)
		}
	}
}

// failer is what testing.TB and *rapid.T share.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// same compares what was read with what is wanted.
func same[T any](t failer, want T) func(T, error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(want, got) { // cmp looks at every byte by reflection
			t.Fatalf("want -, got +:\n%s", cmp.Diff(want, got))
		}
	}
}

func second[T any](_ T, err error) error { return err }

func bridgeReadsBack(t *testing.T, s store.Store) {
	made(t, s, "b1")
	same(t, bridge("b1"))(s.Bridge(t.Context(), "b1"))
	want(t, store.ErrNotFound)(second(s.Bridge(t.Context(), "b2")))
	want(t, store.ErrNotFound)(second(s.Bridge(t.Context(), "")))

	plain := store.Bridge{ID: "plain"} // everything at its zero
	_, epoch := owned(t, s, "plain")
	want(t, nil)(s.CreateBridge(t.Context(), epoch, plain))
	same(t, plain)(s.Bridge(t.Context(), "plain"))
}

func takenIDs(t *testing.T, s store.Store) {
	_, epoch := made(t, s, "b1", token("b1", "t1"))
	want(t, nil)(s.PutToken(t.Context(), token("", "t0")))
	want(t, store.ErrExists)(s.CreateBridge(t.Context(), epoch, bridge("b1")))
	_, epoch = owned(t, s, "b2")
	want(t, store.ErrExists)(s.CreateBridge(t.Context(), epoch, bridge("b2"), token("b2", "t2"), token("b2", "t1")))
	want(t, store.ErrExists)(s.CreateBridge(t.Context(), epoch, bridge("b2"), token("b2", "t0")))
	want(t, store.ErrExists)(s.CreateBridge(t.Context(), epoch, bridge("b2"), token("b2", "t2"), token("b2", "t2")))
}

func refusedCreation(t *testing.T, s store.Store) {
	made(t, s, "b1", token("b1", "t1"))
	_, epoch := owned(t, s, "b2")
	want(t, store.ErrExists)(s.CreateBridge(t.Context(), epoch, bridge("b2"), token("b2", "t2"), token("b2", "t1")))
	want(t, store.ErrNotFound)(second(s.Bridge(t.Context(), "b2")))
	want(t, store.ErrNotFound)(second(s.Token(t.Context(), "t2")))
	same(t, token("b1", "t1"))(s.Token(t.Context(), "t1"))
	same[[]store.Token](t, nil)(s.Tokens(t.Context(), "b2"))
}

func invalidRecords(t *testing.T, s store.Store) {
	_, epoch := made(t, s, "b1")
	ctx := t.Context()
	fails(t, s.CreateBridge(ctx, 1, bridge("")))
	fails(t, s.CreateBridge(ctx, 1, bridge("a\x00b")))
	fails(t, s.CreateBridge(ctx, epoch, bridge("b1"), token("other", "t")))
	fails(t, s.AddToken(ctx, epoch, token("b1", "")))
	fails(t, s.AddToken(ctx, epoch, token("", "t")))
	fails(t, s.PutToken(ctx, token("b1", "t")))
	fails(t, s.PutToken(ctx, token("", string(make([]byte, 257)))))
	fails(t, second(s.Secret(ctx, "", func() []byte { return []byte("x") })))
	fails(t, second(s.Secret(ctx, "empty", func() []byte { return nil })))
	fails(t, second(s.Acquire(ctx, store.Shard(s.Shards()), "test")))
	fails(t, second(s.Acquire(ctx, -1, "test")))
	same[[]store.Token](t, nil)(s.Tokens(ctx, "b1"))
	same[[]store.Token](t, nil)(s.Tokens(ctx, ""))
}

func bridgesInOrder(t *testing.T, s store.Store) {
	same[[]store.Bridge](t, nil)(s.Bridges(t.Context(), "", 10))
	ids := []session.BridgeID{"-", "0", "A", "B", "B-", "B0", "_", "a"}
	var all []store.Bridge
	for _, id := range ids {
		all = append(all, bridge(id))
	}
	for _, id := range []int{3, 1, 7, 0, 5, 2, 6, 4} {
		made(t, s, ids[id])
	}
	same(t, all)(s.Bridges(t.Context(), "", 100))
	same(t, all[:3])(s.Bridges(t.Context(), "", 3))
	same(t, all[3:5])(s.Bridges(t.Context(), "A", 2))
	same(t, all[3:])(s.Bridges(t.Context(), "AA", 100)) // between two
	same[[]store.Bridge](t, nil)(s.Bridges(t.Context(), "a", 100))
	same[[]store.Bridge](t, nil)(s.Bridges(t.Context(), "", 0))
}

func updateNeedsVersion(t *testing.T, s store.Store) {
	_, epoch := made(t, s, "b1")
	b := bridge("b1")
	b.Name, b.Owner, b.Policy, b.Updated, b.Created = "new", "bob", nil, noon.Add(2*time.Hour), time.Time{}
	now := b
	now.Version, now.Created = 2, noon
	same(t, now)(s.UpdateBridge(t.Context(), epoch, b))
	same(t, now)(s.Bridge(t.Context(), "b1"))
	want(t, store.ErrConflict)(second(s.UpdateBridge(t.Context(), epoch, b))) // still says version 1
	b.Version = 3
	want(t, store.ErrConflict)(second(s.UpdateBridge(t.Context(), epoch, b)))
	same(t, now)(s.Bridge(t.Context(), "b1"))
	_, epoch = owned(t, s, "none")
	want(t, store.ErrNotFound)(second(s.UpdateBridge(t.Context(), epoch, bridge("none"))))
}

func deleteTakesAll(t *testing.T, s store.Store) {
	ctx := t.Context()
	// b and b- share a prefix: what belongs to b- must stay.
	for _, id := range []session.BridgeID{"b", "b-"} {
		shard, epoch := made(t, s, id, token(id, "t"+string(id)))
		save(t, s, shard, epoch, session.Change{Bridge: id, Revision: 7, Put: []session.Registration{registration("p", "x")}})
		want(t, nil)(s.EndSession(ctx, id, "s1", time.Now().Add(time.Hour)))
	}
	_, epoch := owned(t, s, "b")
	want(t, nil)(s.DeleteBridge(ctx, epoch, "b"))
	want(t, store.ErrNotFound)(second(s.Bridge(ctx, "b")))
	want(t, store.ErrNotFound)(second(s.Token(ctx, "tb")))
	same[[]store.Token](t, nil)(s.Tokens(ctx, "b"))
	same(t, session.Snapshot{})(s.Load(ctx, "b"))
	same(t, false)(s.SessionEnded(ctx, "b", "s1"))
	want(t, store.ErrNotFound)(s.DeleteBridge(ctx, epoch, "b"))

	same(t, bridge("b-"))(s.Bridge(ctx, "b-"))
	same(t, []store.Token{token("b-", "tb-")})(s.Tokens(ctx, "b-"))
	same(t, session.Snapshot{Revision: 7, Registrations: []session.Registration{registration("p", "x")}})(s.Load(ctx, "b-"))
	same(t, true)(s.SessionEnded(ctx, "b-", "s1"))

	made(t, s, "b", token("b", "tb")) // the names are free again, and nothing comes back
	same(t, session.Snapshot{})(s.Load(ctx, "b"))
	same(t, false)(s.SessionEnded(ctx, "b", "s1"))
}

func endSession(t *testing.T, s store.Store) {
	ctx := t.Context()
	made(t, s, "b1")
	made(t, s, "b2")
	hour := time.Now().Add(time.Hour)
	want(t, nil)(s.EndSession(ctx, "b1", "s1", hour))
	same(t, true)(s.SessionEnded(ctx, "b1", "s1"))
	same(t, false)(s.SessionEnded(ctx, "b1", "s2"))
	same(t, false)(s.SessionEnded(ctx, "b2", "s1"))

	want(t, nil)(s.EndSession(ctx, "b1", "s1", hour.Add(-2*time.Hour))) // the later time counts
	same(t, true)(s.SessionEnded(ctx, "b1", "s1"))
	want(t, nil)(s.EndSession(ctx, "b1", "old", hour.Add(-2*time.Hour)))
	same(t, false)(s.SessionEnded(ctx, "b1", "old"))
	want(t, nil)(s.EndSession(ctx, "b1", "old", hour))
	same(t, true)(s.SessionEnded(ctx, "b1", "old"))

	want(t, nil)(s.EndSession(ctx, "none", "s1", hour))
	same(t, false)(s.SessionEnded(ctx, "none", "s1"))
	made(t, s, "none")
	same(t, false)(s.SessionEnded(ctx, "none", "s1"))

	// Many expired ones must not keep the living from being found.
	for n := range 40 {
		want(t, nil)(s.EndSession(ctx, "b2", fmt.Sprint("x", n), hour.Add(-time.Duration(n+2)*time.Hour)))
	}
	want(t, nil)(s.EndSession(ctx, "b2", "long \x00 "+string(make([]byte, 5000)), hour))
	same(t, true)(s.SessionEnded(ctx, "b2", "long \x00 "+string(make([]byte, 5000))))
	same(t, true)(s.SessionEnded(ctx, "b1", "s1"))
}

func secretOnce(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() {
			k, err := s.Secret(t.Context(), "k", func() []byte { return fmt.Append(nil, "mint", i) })
			if err != nil {
				t.Error(err)
			}
			got[i] = string(k)
		})
	}
	wg.Wait()
	if got = slices.Compact(got); len(got) != 1 || got[0] == "" {
		t.Fatalf("secrets %q, want one", got)
	}
	same(t, []byte(got[0]))(s.Secret(t.Context(), "k", func() []byte {
		t.Error("minted again")
		return []byte("other")
	}))
	same(t, []byte("other"))(s.Secret(t.Context(), "k2", func() []byte { return []byte("other") }))
}

// everyMethod calls each method that can fail, on a bridge that exists and names
// that do not.
func everyMethod(ctx context.Context, s store.Store, epoch store.Epoch) map[string]error {
	shard := store.ShardOf("b1", s.Shards())
	return map[string]error{
		"Acquire":      second(s.Acquire(ctx, shard, "test")),
		"CreateBridge": s.CreateBridge(ctx, epoch, bridge(sibling(s, "b1"))),
		"Bridge":       second(s.Bridge(ctx, "b1")),
		"Bridges":      second(s.Bridges(ctx, "", 1)),
		"UpdateBridge": second(s.UpdateBridge(ctx, epoch, bridge("b1"))),
		"AddToken":     s.AddToken(ctx, epoch, token("b1", "new")),
		"PutToken":     s.PutToken(ctx, token("", "admin")),
		"Token":        second(s.Token(ctx, "t1")),
		"Tokens":       second(s.Tokens(ctx, "b1")),
		"CreateTenant": s.CreateTenant(ctx, store.Tenant{ID: "new"}),
		"Tenant":       second(s.Tenant(ctx, "none")),
		"Tenants":      second(s.Tenants(ctx, "", 1)),
		"DeleteTenant": s.DeleteTenant(ctx, "none"),
		"BridgesOf":    second(s.BridgesOf(ctx, "none", "", 1)),
		"ExpireToken":  s.ExpireToken(ctx, "t1", noon),
		"TouchTokens":  s.TouchTokens(ctx, map[string]time.Time{"t1": noon}),
		"DeleteToken":  s.DeleteToken(ctx, "t1"),
		"Load":         second(s.Load(ctx, "b1")),
		"Save":         s.Save(ctx, shard, epoch, []session.Change{{Bridge: "b1", Revision: 1}}),
		"EndSession":   s.EndSession(ctx, "b1", "s1", time.Now().Add(time.Hour)),
		"SessionEnded": second(s.SessionEnded(ctx, "b1", "s1")),
		"Secret":       second(s.Secret(ctx, "k", func() []byte { return []byte("x") })),
		"DeleteBridge": s.DeleteBridge(ctx, epoch, "b1"),
	}
}

func endedContext(t *testing.T, s store.Store) {
	_, epoch := made(t, s, "b1", token("b1", "t1"))
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for method, err := range everyMethod(ctx, s, epoch) {
		if !errors.Is(err, cause) {
			t.Errorf("%s = %v, want the cause", method, err)
		}
	}
	same(t, []store.Bridge{bridge("b1")})(s.Bridges(t.Context(), "", 10))
	same(t, []store.Token{token("b1", "t1")})(s.Tokens(t.Context(), "b1"))
	same[[]store.Token](t, nil)(s.Tokens(t.Context(), ""))
	same(t, session.Snapshot{})(s.Load(t.Context(), "b1"))
}

func closedRefuses(t *testing.T, s store.Store) {
	_, epoch := made(t, s, "b1", token("b1", "t1"))
	want(t, nil)(s.Close())
	for method, err := range everyMethod(t.Context(), s, epoch) {
		if err == nil || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrFenced) {
			t.Errorf("%s = %v, want that the store is closed", method, err)
		}
	}
}

// fencing needs no second epoch for the zero one, which is older than any.
func fencing(t *testing.T, s store.Store) {
	ctx := t.Context()
	shard, old := made(t, s, "b1", token("b1", "t1"))
	newer, err := s.Acquire(ctx, shard, "another")
	want(t, nil)(err)
	stale := []store.Epoch{0}
	if newer > old {
		stale = append(stale, old)
	} else if newer != 1 || old != 1 {
		t.Fatalf("epochs %d and %d: they may not shrink, and the first is 1", old, newer)
	}
	for _, epoch := range stale {
		want(t, store.ErrFenced)(s.CreateBridge(ctx, epoch, bridge(sibling(s, "b1"))))
		want(t, store.ErrFenced)(second(s.UpdateBridge(ctx, epoch, bridge("b1"))))
		want(t, store.ErrFenced)(s.DeleteBridge(ctx, epoch, "b1"))
		want(t, store.ErrFenced)(s.AddToken(ctx, epoch, token("b1", "t2")))
		want(t, store.ErrFenced)(s.Save(ctx, shard, epoch, []session.Change{{Bridge: "b1", Revision: 5}}))
		want(t, store.ErrFenced)(s.Save(ctx, shard, epoch, nil))
	}
	same(t, []store.Bridge{bridge("b1")})(s.Bridges(ctx, "", 10))
	same(t, []store.Token{token("b1", "t1")})(s.Tokens(ctx, "b1"))
	same(t, session.Snapshot{})(s.Load(ctx, "b1"))

	save(t, s, shard, newer, session.Change{Bridge: "b1", Revision: 6})
	if s.Shards() > 1 && newer > old { // other shards have epochs of their own
		for _, id := range []session.BridgeID{"c1", "c2", "c3", "c4"} {
			if store.ShardOf(id, s.Shards()) != shard {
				want(t, nil)(s.CreateBridge(ctx, 1, bridge(id)))
			}
		}
	}
}

// concurrency creates, saves, reads and deletes from many goroutines at once.
func concurrency(t *testing.T, s store.Store) {
	const workers, rounds = 16, 6
	epochs := make(map[store.Shard]store.Epoch)
	for n := range s.Shards() {
		epoch, err := s.Acquire(t.Context(), store.Shard(n), "test")
		want(t, nil)(err)
		epochs[store.Shard(n)] = epoch
	}
	var wg sync.WaitGroup
	winners := make(chan int, workers*rounds)
	for w := range workers {
		wg.Go(func() {
			for n := range rounds {
				id := session.BridgeID(fmt.Sprintf("w%d-%d", w, n))
				shard := store.ShardOf(id, s.Shards())
				errs := []error{
					s.CreateBridge(t.Context(), epochs[shard], bridge(id), token(id, "t"+string(id))),
					s.Save(t.Context(), shard, epochs[shard], []session.Change{{Bridge: id, Revision: 1, Put: []session.Registration{registration("p", "x")}}}),
					second(s.Load(t.Context(), id)),
				}
				if n%2 == 1 {
					errs = append(errs, s.DeleteBridge(t.Context(), epochs[shard], id))
				}
				// Everybody wants this one, and one gets it.
				fought := session.BridgeID(fmt.Sprintf("fought%d", n))
				switch err := s.CreateBridge(t.Context(), epochs[store.ShardOf(fought, s.Shards())], bridge(fought)); {
				case err == nil:
					winners <- n
				case !errors.Is(err, store.ErrExists):
					errs = append(errs, err)
				}
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(winners)
	won := make([]int, rounds)
	for n := range winners {
		won[n]++
	}
	same(t, slices.Repeat([]int{1}, rounds))(won, nil)
	for w := range workers {
		for n := range rounds {
			id := session.BridgeID(fmt.Sprintf("w%d-%d", w, n))
			got, err := s.Load(t.Context(), id)
			if n%2 == 1 {
				same(t, session.Snapshot{})(got, err)
			} else {
				same(t, session.Snapshot{Revision: 1, Registrations: []session.Registration{registration("p", "x")}})(got, err)
				same(t, []store.Token{token(id, "t"+string(id))})(s.Tokens(t.Context(), id))
			}
		}
	}
}
