package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/store"
	"mcpbridge/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		crash(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestMemory(t *testing.T) {
	for name, shards := range map[string]int{"one shard": 1, "many shards": 7} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) store.Store { return store.NewMemory(shards) })
		})
	}
}

func TestBolt(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := store.Unsynced(filepath.Join(t.TempDir(), "data"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestMemoryCountsEpochsByShard(t *testing.T) {
	s := store.NewMemory(2)
	for _, step := range []struct {
		shard store.Shard
		want  store.Epoch
	}{{0, 1}, {0, 2}, {1, 1}, {0, 3}, {1, 2}} {
		if got, err := s.Acquire(t.Context(), step.shard, "test"); err != nil || got != step.want {
			t.Fatalf("Acquire(%d) = %d, %v, want %d", step.shard, got, err, step.want)
		}
	}
}

func TestMemoryForgetsEndedSessionsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(1)
		if err := s.CreateBridge(t.Context(), 1, store.Bridge{ID: "b"}); err != nil {
			t.Fatal(err)
		}
		if err := s.EndSession(t.Context(), "b", "s", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{true, false} {
			if got, err := s.SessionEnded(t.Context(), "b", "s"); err != nil || got != want {
				t.Fatalf("SessionEnded = %t, %v, want %t", got, err, want)
			}
			<-time.After(time.Hour)
		}
	})
}
