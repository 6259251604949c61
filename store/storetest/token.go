package storetest

import (
	"testing"

	"mcpbridge/store"
)

func addToken(t *testing.T, s store.Store) {
	_, epoch := made(t, s, "b1", token("b1", "t1"))
	want(t, nil)(s.AddToken(t.Context(), epoch, token("b1", "t2")))
	same(t, token("b1", "t2"))(s.Token(t.Context(), "t2"))
	want(t, store.ErrExists)(s.AddToken(t.Context(), epoch, token("b1", "t1")))
	_, epoch = owned(t, s, "none")
	want(t, store.ErrNotFound)(s.AddToken(t.Context(), epoch, token("none", "t3")))
	want(t, store.ErrNotFound)(second(s.Token(t.Context(), "t3")))
}

func putToken(t *testing.T, s store.Store) {
	made(t, s, "b1", token("b1", "t1"))
	a := token("", "admin")
	want(t, nil)(s.PutToken(t.Context(), a))
	a.Hash[0]++
	want(t, nil)(s.PutToken(t.Context(), a))
	same(t, a)(s.Token(t.Context(), "admin"))
	same(t, []store.Token{a})(s.Tokens(t.Context(), ""))
	want(t, store.ErrExists)(s.PutToken(t.Context(), token("", "t1")))
	same(t, token("b1", "t1"))(s.Token(t.Context(), "t1"))
}

func tokensOfBridge(t *testing.T, s store.Store) {
	made(t, s, "b", token("b", "t3"), token("b", "t1"))
	made(t, s, "b-", token("b-", "t2"))
	want(t, nil)(s.PutToken(t.Context(), token("", "t0")))
	same(t, []store.Token{token("b", "t1"), token("b", "t3")})(s.Tokens(t.Context(), "b"))
	same(t, []store.Token{token("b-", "t2")})(s.Tokens(t.Context(), "b-"))
	same(t, []store.Token{token("", "t0")})(s.Tokens(t.Context(), ""))
	same[[]store.Token](t, nil)(s.Tokens(t.Context(), "none"))
}

func deleteToken(t *testing.T, s store.Store) {
	made(t, s, "b1", token("b1", "t1"), token("b1", "t2"))
	want(t, nil)(s.PutToken(t.Context(), token("", "t0")))
	for _, id := range []string{"t1", "t0"} {
		want(t, nil)(s.DeleteToken(t.Context(), id))
		want(t, store.ErrNotFound)(second(s.Token(t.Context(), id)))
		want(t, store.ErrNotFound)(s.DeleteToken(t.Context(), id))
	}
	same(t, []store.Token{token("b1", "t2")})(s.Tokens(t.Context(), "b1"))
	same[[]store.Token](t, nil)(s.Tokens(t.Context(), ""))
	want(t, store.ErrNotFound)(s.DeleteToken(t.Context(), ""))
}
