package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpbridge/session"
	"mcpbridge/store"
)

func benched(b *testing.B) (*store.Bolt, string) {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "data")
	s, err := store.OpenBolt(dir, store.BoltOptions{})
	check(b, err)
	b.Cleanup(func() { check(b, s.Close()) })
	return s, dir
}

func benchID(n int) session.BridgeID { return session.BridgeID(fmt.Sprintf("bridge-%019d", n)) }

// benchBridges creates n bridges with two tokens each, from many callers at once.
func benchBridges(b *testing.B, s store.Store, n, callers int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				id := benchID(i)
				if err := s.CreateBridge(b.Context(), 1, crashBridge(id), crashTokens(id)...); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// benchTools makes tools with definitions of about 1 KiB.
func benchTools(n int) session.Registration {
	r := session.Registration{Provider: "default"}
	for i := range n {
		name := fmt.Sprintf("tool%04d", i)
		def := fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, strings.Repeat("It says something. ", 50))
		r.Tools = append(r.Tools, session.Tool{Name: name, Exposed: name, Definition: json.RawMessage(def), NameAt: 8, NameEnd: 18})
	}
	return r
}

// BenchmarkSave commits 10 tools of 1 KiB a bridge.
func BenchmarkSave(b *testing.B) {
	for _, bridges := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("bridges=%d", bridges), func(b *testing.B) {
			s, _ := benched(b)
			benchBridges(b, s, 100, 100)
			changes := make([]session.Change, bridges)
			for i := range changes {
				changes[i] = session.Change{Bridge: benchID(i + 1), Revision: 1, Put: []session.Registration{benchTools(10)}}
			}
			b.ReportAllocs()
			for b.Loop() {
				check(b, s.Save(b.Context(), 0, 1, changes))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*bridges), "µs/bridge")
		})
	}
}

// BenchmarkCreate creates bridges with two tokens each. An operation is 2,000
// bridges.
func BenchmarkCreate(b *testing.B) {
	const bridges = 2000
	for _, callers := range []int{1, 16, 256, 1000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				s, err := store.OpenBolt(filepath.Join(b.TempDir(), "data"), store.BoltOptions{})
				check(b, err)
				b.StartTimer()
				benchBridges(b, s, bridges, callers)
				b.StopTimer()
				check(b, s.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*bridges), "µs/bridge")
		})
	}
}

// BenchmarkLoad loads a bridge with 1,000 tools of 1 KiB.
func BenchmarkLoad(b *testing.B) {
	s, _ := benched(b)
	benchBridges(b, s, 1, 1)
	check(b, s.Save(b.Context(), 0, 1, []session.Change{{Bridge: benchID(1), Revision: 1, Put: []session.Registration{benchTools(1000)}}}))
	b.ReportAllocs()
	for b.Loop() {
		snapshot, err := s.Load(b.Context(), benchID(1))
		if err != nil || len(snapshot.Registrations[0].Tools) != 1000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkToken looks a token up among 20,000, from all processors at once.
func BenchmarkToken(b *testing.B) {
	s, _ := benched(b)
	benchBridges(b, s, 10_000, 1000)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for n := 1; p.Next(); n = n%10_000 + 1 {
			if _, err := s.Token(b.Context(), string(benchID(n))+"-p"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkOpen opens a file of 100,000 bridges, each with two tokens and a
// registration of one tool of 1 KiB.
func BenchmarkOpen(b *testing.B) {
	const bridges, perSave = 100_000, 1000
	dir := filepath.Join(b.TempDir(), "data")
	s := unsynced(b, dir)
	start := time.Now()
	benchBridges(b, s, bridges, 1000)
	b.Logf("%d bridges created in %v, unsynced", bridges, time.Since(start))
	for first := 1; first <= bridges; first += perSave {
		var changes []session.Change
		for n := first; n < first+perSave; n++ {
			changes = append(changes, session.Change{Bridge: benchID(n), Revision: 1, Put: []session.Registration{benchTools(1)}})
		}
		check(b, s.Save(b.Context(), 0, 1, changes))
	}
	check(b, s.Close())
	info, err := os.Stat(filepath.Join(dir, store.FileName))
	check(b, err)
	b.ReportAllocs()
	for b.Loop() {
		s, err := store.OpenBolt(dir, store.BoltOptions{})
		check(b, err)
		check(b, s.Close())
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
}
