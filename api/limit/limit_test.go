package limit_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/api/limit"
)

func TestRatesGiveEachKeyItsOwnShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limit.NewRates[string](2, 4)
		allowed := func(key string) (n int) {
			for r.Allow(key) {
				n++
			}
			return n
		}
		if a, b := allowed("a"), allowed("b"); a != 4 || b != 4 {
			t.Errorf("at once: %d and %d, want 4 each", a, b)
		}
		time.Sleep(1500 * time.Millisecond)
		if n := allowed("a"); n != 3 {
			t.Errorf("after 1.5 s: %d, want 3", n)
		}
		time.Sleep(time.Hour)
		if n := allowed("a"); n != 4 {
			t.Errorf("after a rest: %d, want 4", n)
		}
	})
}

func TestRememberedKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limit.NewRates[int](1, 2)
		for i := range 3 * limit.MaxKeys { // all at once: no bucket is full again
			r.Allow(i)
		}
		if n := r.Keys(); n > limit.MaxKeys {
			t.Errorf("%d keys, want at most %d", n, limit.MaxKeys)
		}
		time.Sleep(time.Minute)
		before := r.Keys()
		for i := range limit.MaxKeys {
			r.Allow(-i)
			if r.Keys() < before {
				break
			}
		}
		if n := r.Keys(); n > 10 {
			t.Errorf("%d keys after all had rested, of %d", n, before)
		}
	})
}

func TestCountsAreGivenBack(t *testing.T) {
	c := limit.NewCounts[string](3)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if c.Take("a") {
					c.Give("a")
				}
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		if !c.Take("a") {
			t.Fatalf("the %d. was refused", i+1)
		}
	}
	if c.Take("a") {
		t.Error("a fourth was allowed")
	}
	if !c.Take("b") {
		t.Error("another key was refused")
	}
	for _, key := range []string{"a", "a", "a", "b"} {
		c.Give(key)
	}
	if n := c.Keys(); n != 0 {
		t.Errorf("%d keys are remembered that have nothing", n)
	}
}

func TestWhatIsChargedIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limit.NewRates[string](1, 10)
		r.Charge("a", 8)
		r.Charge("a", 1000) // a full bucket at most
		if r.Allow("a") || !r.Allow("b") {
			t.Error("a may, or b may not")
		}
		time.Sleep(8 * time.Second)
		if r.Allow("a") {
			t.Error("a may although it owes")
		}
		time.Sleep(time.Second)
		if !r.Allow("a") {
			t.Error("a may not although it has made up for it")
		}
	})
}

func TestBelowZeroIsNoLimit(t *testing.T) {
	r, c := limit.NewRates[int](-1, -10), limit.NewCounts[int](-1)
	for range 100_000 {
		if !r.Allow(1) || !c.Take(1) {
			t.Fatal("refused")
		}
	}
	c.Give(1)
	r.Charge(1, 1)
}

func BenchmarkAllow(b *testing.B) {
	r := limit.NewRates[string](1<<30, 1<<30)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Allow("mcpb_cli_token")
		}
	})
}
