package seal_test

import (
	"testing"

	"mcpbridge/api/seal"
)

func box(t testing.TB) *seal.Box {
	t.Helper()
	b, err := seal.NewBox(seal.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHandleOpensForItsPurposeAndKeyAlone(t *testing.T) {
	b := box(t)
	h := b.Seal("session", []byte("what it says"))
	if text, ok := b.Open("session", h); !ok || string(text) != "what it says" {
		t.Errorf("Open = %q, %v", text, ok)
	}
	if _, ok := b.Open("resume", h); ok {
		t.Error("it opens for another purpose")
	}
	if _, ok := box(t).Open("session", h); ok {
		t.Error("it opens with another key")
	}
	for i := range h {
		bad := []byte(h)
		bad[i] ^= 1
		if _, ok := b.Open("session", string(bad)); ok {
			t.Errorf("it opens with byte %d changed", i)
		}
	}
}

func FuzzOpen(f *testing.F) {
	b := box(f)
	f.Add(b.Seal("session", []byte("x")))
	f.Add("")
	f.Fuzz(func(t *testing.T, handle string) {
		if text, ok := b.Open("another", handle); ok {
			t.Fatalf("Open(%q) = %q", handle, text)
		}
	})
}
