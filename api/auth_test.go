package api

import (
	"testing"

	"mcpbridge/store"
)

// TestRevokedIsToldToWhoeverAsksLate: a stream may ask whether its token was revoked after
// it has been; it was let in before.
func TestRevokedIsToldToWhoeverAsksLate(t *testing.T) {
	a := &auth{}
	g := a.keep([32]byte{1}, store.Token{ID: "t"}, 0)
	early := a.revoked("t")
	select {
	case <-early:
		t.Fatal("revoked before it was")
	default:
	}
	a.revoke(func(t store.Token) bool { return t.ID == "t" }, true)
	for what, c := range map[string]<-chan struct{}{"early": early, "late": a.revoked("t"), "the grant": g.revoked} {
		select {
		case <-c:
		default:
			t.Errorf("%s: not told", what)
		}
	}
	if (&auth{open: true}).revoked(openPrincipal) != nil {
		t.Error("everybody is told in open mode")
	}
}

// TestGrantsThatAreHeldAreNotForgotten: whoever revokes a token reaches all who use it, so
// that only those that nobody uses give way to others.
func TestGrantsThatAreHeldAreNotForgotten(t *testing.T) {
	a := &auth{}
	sum := func(n int) (s [32]byte) { s[0], s[1], s[2] = byte(n), byte(n>>8), byte(n>>16); return s }
	id := func(n int) string { return string(rune('a'+n%26)) + string(rune(n+0x4e00)) }
	held := a.keep(sum(0), store.Token{ID: id(0)}, 0)
	for n := 1; n < 2*maxTokens; n++ {
		a.keep(sum(n), store.Token{ID: id(n)}, 0).done()
	}
	if a.known > maxTokens {
		t.Errorf("%d grants are kept, want at most %d", a.known, maxTokens)
	}
	if again := a.keep(sum(0), store.Token{ID: id(0)}, 0); again != held {
		t.Error("one that was held is another now")
	}
	a.revoke(func(t store.Token) bool { return t.ID == id(0) }, true)
	if !held.ended() {
		t.Error("whoever held it was not told")
	}
}
