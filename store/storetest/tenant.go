package storetest

import (
	"testing"
	"time"

	"mcpbridge/session"
	"mcpbridge/store"
)

func tokenUse(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, epoch := made(t, s, "b1", token("b1", "t1"))
	want(t, nil)(s.PutToken(ctx, token("", "t0")))
	want(t, nil)(s.TouchTokens(ctx, nil))
	want(t, nil)(s.TouchTokens(ctx, map[string]time.Time{"t0": noon, "t1": noon.Add(time.Hour), "none": noon}))
	zero, one := token("", "t0"), token("b1", "t1")
	zero.LastUsed, one.LastUsed = noon, noon.Add(time.Hour)
	same(t, zero)(s.Token(ctx, "t0"))
	same(t, []store.Token{one})(s.Tokens(ctx, "b1"))
	want(t, store.ErrNotFound)(second(s.Token(ctx, "none")))

	said := token("", "t0")
	said.LastUsed = noon.Add(time.Minute)
	want(t, nil)(s.PutToken(ctx, said)) // not what writes it
	same(t, zero)(s.Token(ctx, "t0"))

	want(t, nil)(s.DeleteToken(ctx, "t1"))
	want(t, nil)(s.AddToken(ctx, epoch, token("b1", "t1")))
	same(t, token("b1", "t1"))(s.Token(ctx, "t1"))
}

func tokenExpires(t *testing.T, s store.Store) {
	ctx := t.Context()
	made(t, s, "b1", token("b1", "t1"))
	want(t, nil)(s.ExpireToken(ctx, "t1", noon.Add(time.Minute)))
	k := token("b1", "t1")
	k.Expires = noon.Add(time.Minute)
	same(t, []store.Token{k})(s.Tokens(ctx, "b1"))
	want(t, store.ErrNotFound)(s.ExpireToken(ctx, "none", noon))
}

func tenantsReadBack(t *testing.T, s store.Store) {
	ctx := t.Context()
	same[[]store.Tenant](t, nil)(s.Tenants(ctx, "", 10))
	a, b := store.Tenant{ID: "a", Name: "A", Created: noon, Updated: noon.Add(1), Version: 1}, store.Tenant{ID: "b-"}
	want(t, nil)(s.CreateTenant(ctx, b))
	want(t, nil)(s.CreateTenant(ctx, a))
	want(t, store.ErrExists)(s.CreateTenant(ctx, a))
	fails(t, s.CreateTenant(ctx, store.Tenant{}))
	fails(t, s.CreateTenant(ctx, store.Tenant{ID: "a\x00"}))
	same(t, a)(s.Tenant(ctx, "a"))
	same(t, []store.Tenant{a, b})(s.Tenants(ctx, "", 10))
	same(t, []store.Tenant{a})(s.Tenants(ctx, "", 1))
	same(t, []store.Tenant{b})(s.Tenants(ctx, "a", 1))
	want(t, store.ErrNotFound)(second(s.Tenant(ctx, "none")))
	want(t, store.ErrNotFound)(second(s.Tenant(ctx, "")))
}

// ofTenant is a bridge of a tenant.
func ofTenant(tenant store.TenantID, id session.BridgeID) store.Bridge {
	b := bridge(id)
	b.Tenant = tenant
	return b
}

func bridgesOfTenant(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, epoch := owned(t, s, "b1")
	create := func(tenant store.TenantID, id session.BridgeID) error {
		return s.CreateBridge(ctx, epoch, ofTenant(tenant, id))
	}
	want(t, store.ErrNotFound)(create("a", "b1"))
	want(t, store.ErrNotFound)(second(s.Bridge(ctx, "b1")))
	want(t, nil)(s.CreateTenant(ctx, store.Tenant{ID: "a"}))
	want(t, nil)(s.CreateTenant(ctx, store.Tenant{ID: "a-"}))
	for _, id := range []session.BridgeID{"b3", "b1", "b2"} {
		want(t, nil)(create("a", id))
	}
	want(t, nil)(create("a-", "b0"))
	want(t, nil)(create("", "b5"))
	want(t, nil)(create("", "b4"))
	same(t, []store.Bridge{ofTenant("a", "b1"), ofTenant("a", "b2"), ofTenant("a", "b3")})(s.BridgesOf(ctx, "a", "", 10))
	same(t, []store.Bridge{ofTenant("a", "b2")})(s.BridgesOf(ctx, "a", "b1", 1))
	same(t, []store.Bridge{ofTenant("a", "b2")})(s.BridgesOf(ctx, "a", "b11", 1))
	same(t, []store.Bridge{ofTenant("a-", "b0")})(s.BridgesOf(ctx, "a-", "", 10))
	same(t, []store.Bridge{bridge("b4"), bridge("b5")})(s.BridgesOf(ctx, "", "", 10))
	same(t, []store.Bridge{bridge("b5")})(s.BridgesOf(ctx, "", "b4", 10))
	same[[]store.Bridge](t, nil)(s.BridgesOf(ctx, "none", "", 10))

	moved := ofTenant("a-", "b1") // it stays where it is
	now := ofTenant("a", "b1")
	now.Version++
	same(t, now)(s.UpdateBridge(ctx, epoch, moved))
	want(t, nil)(s.DeleteBridge(ctx, epoch, "b1"))
	same(t, []store.Bridge{ofTenant("a", "b2"), ofTenant("a", "b3")})(s.BridgesOf(ctx, "a", "", 10))
}

func deleteTenant(t *testing.T, s store.Store) {
	ctx := t.Context()
	key := token("", "k1")
	key.Kind, key.Tenant, key.Name, key.Scopes, key.By = store.RESTKey, "a", "n", "bridges:read", "t0"
	want(t, store.ErrNotFound)(s.PutToken(ctx, key))
	want(t, nil)(s.CreateTenant(ctx, store.Tenant{ID: "a"}))
	want(t, nil)(s.PutToken(ctx, key))
	want(t, nil)(s.PutToken(ctx, token("", "t0")))
	same(t, key)(s.Token(ctx, "k1"))
	_, epoch := owned(t, s, "b1")
	want(t, nil)(s.CreateBridge(ctx, epoch, ofTenant("a", "b1"), token("b1", "t1")))
	want(t, store.ErrInUse)(s.DeleteTenant(ctx, "a"))
	same(t, key)(s.Token(ctx, "k1"))
	want(t, nil)(s.DeleteBridge(ctx, epoch, "b1"))
	want(t, nil)(s.DeleteTenant(ctx, "a"))
	want(t, store.ErrNotFound)(s.DeleteTenant(ctx, "a"))
	want(t, store.ErrNotFound)(second(s.Tenant(ctx, "a")))
	same(t, []store.Token{token("", "t0")})(s.Tokens(ctx, ""))
	fails(t, s.DeleteTenant(ctx, ""))
}
