package store_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"mcpbridge/session"
	"mcpbridge/store"
)

const (
	crashDir    = "MCPBRIDGE_TEST_CRASH_DIR"    // set for the process that is to be killed
	crashRounds = "MCPBRIDGE_TEST_CRASH_ROUNDS" // kills in one test, 20 by default

	crashWriters = 8
	crashBridges = 1 << 30 // of one writer; the kill comes first
)

// TestWhatWasAcknowledgedSurvivesAKill kills a process that writes from many
// goroutines, at a random moment, again and again on the same file. (It cannot
// pull the plug: what the system had in its cache is kept.)
func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv(crashRounds), "20"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	acked := make(map[session.BridgeID]uint64) // the revision last acknowledged; 0 after the creation
	deleted := make(map[session.BridgeID]bool)
	for round := range rounds {
		killed(t, dir, round, func(line string) {
			verb, rest, _ := strings.Cut(line, " ")
			id, rev, _ := strings.Cut(rest, " ")
			switch verb {
			case "create":
				acked[session.BridgeID(id)] = 0
			case "save":
				n, err := strconv.ParseUint(rev, 10, 64)
				if err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				acked[session.BridgeID(id)] = n
			case "delete":
				delete(acked, session.BridgeID(id))
				deleted[session.BridgeID(id)] = true
			default:
				t.Fatalf("line %q", line)
			}
		})
		survived(t, dir, acked, deleted)
	}
	if len(acked) < rounds || len(deleted) == 0 {
		t.Fatalf("%d bridges made and %d deleted in %d rounds: nothing was tried", len(acked), len(deleted), rounds)
	}
	t.Logf("%d kills, %d bridges made, %d deleted", rounds, len(acked), len(deleted))
}

// killed runs the writing process, kills it and gives every line it wrote.
func killed(t *testing.T, dir string, round int, line func(string)) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), crashDir+"="+dir, "MCPBRIDGE_TEST_CRASH_ROUND="+strconv.Itoa(round))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var kill *time.Timer
	r := bufio.NewReader(out)
	for {
		text, err := r.ReadString('\n')
		if err == nil { // the last line may be cut: then nobody has seen it
			line(strings.TrimSuffix(text, "\n"))
		}
		if err != nil {
			if err != io.EOF {
				t.Fatal(err)
			}
			break
		}
		if kill == nil {
			kill = time.AfterFunc(time.Duration(rand.IntN(120))*time.Millisecond, func() { _ = c.Process.Kill() })
		}
	}
	if kill == nil {
		t.Fatalf("round %d: the process wrote nothing", round)
	}
	kill.Stop()
	if err := c.Wait(); err == nil || c.ProcessState.ExitCode() >= 0 {
		t.Fatalf("round %d: the process ended by itself: %v", round, err)
	}
}

// survived opens the file and looks for all that was acknowledged.
func survived(t *testing.T, dir string, acked map[session.BridgeID]uint64, deleted map[session.BridgeID]bool) {
	t.Helper()
	s, err := store.OpenBolt(dir, store.BoltOptions{LockTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for id, rev := range acked {
		b, err := s.Bridge(t.Context(), id)
		if err != nil {
			// Its delete may have been done and not been told.
			if snapshot, _ := s.Load(t.Context(), id); rev == crashSaves && reflect.DeepEqual(snapshot, session.Snapshot{}) {
				delete(acked, id)
				deleted[id] = true
				continue
			}
			t.Fatalf("acknowledged at revision %d: %v", rev, err)
		}
		if want := crashBridge(id); !reflect.DeepEqual(b, want) {
			t.Fatal(gocmp.Diff(want, b))
		}
		tokens, err := s.Tokens(t.Context(), id)
		if want := crashTokens(id); err != nil || !reflect.DeepEqual(tokens, want) {
			t.Fatal(err, gocmp.Diff(want, tokens))
		}
		got, err := s.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got.Revision != rev && got.Revision != rev+1 { // the next one may have been done and not been told
			t.Fatalf("bridge %s has revision %d, acknowledged was %d", id, got.Revision, rev)
		}
		var want session.Snapshot
		if got.Revision > 0 {
			want = session.Snapshot{Revision: got.Revision, Registrations: crashRegistrations(id, got.Revision)}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatal(gocmp.Diff(want, got))
		}
		acked[id] = got.Revision
	}
	for id := range deleted {
		if _, err := s.Bridge(t.Context(), id); err == nil {
			t.Fatalf("bridge %s was deleted and is there", id)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cleanPages(t, filepath.Join(dir, store.FileName))
}

// cleanPages runs bbolt's own check.
func cleanPages(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // read only
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// crashSaves is how many revisions a bridge gets.
const crashSaves = 5

func crashBridge(id session.BridgeID) store.Bridge {
	return store.Bridge{ID: id, Name: "<" + string(id) + ">", Policy: json.RawMessage(`{ "of": "` + string(id) + `" }`), Created: time.Unix(1, 2).UTC(), Version: 1}
}

func crashTokens(id session.BridgeID) []store.Token {
	return []store.Token{
		{ID: string(id) + "-c", Kind: store.ClientToken, Bridge: id, Hash: [32]byte{1}},
		{ID: string(id) + "-p", Kind: store.ProviderToken, Bridge: id, Hash: [32]byte{2}},
	}
}

// crashRegistrations differ in every revision, in size too.
func crashRegistrations(id session.BridgeID, rev uint64) []session.Registration {
	r := session.Registration{Provider: "p", Title: fmt.Sprint(rev)}
	for n := range rev * 3 {
		def := fmt.Sprintf("{ \"name\": \"t%d\", \"of\": %q, \"pad\": %q }", n, id, strings.Repeat("<&>", int(rev*n)*8))
		r.Tools = append(r.Tools, session.Tool{Name: fmt.Sprint("t", n), Definition: json.RawMessage(def)})
	}
	return []session.Registration{r}
}

// crash is the process that gets killed. It says on stdout what was acknowledged.
func crash(dir string) {
	s, err := store.OpenBolt(dir, store.BoltOptions{LockTimeout: 10 * time.Second})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	round := os.Getenv("MCPBRIDGE_TEST_CRASH_ROUND")
	var wg sync.WaitGroup
	for w := range crashWriters {
		wg.Go(func() {
			for n := range crashBridges {
				id := session.BridgeID(fmt.Sprintf("r%s-w%d-%d", round, w, n))
				if err := crashLife(s, id, n%2 == 0); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
}

// crashLife is a bridge's: created, saved some times and, some of them, deleted.
func crashLife(s store.Store, id session.BridgeID, mortal bool) error {
	ctx := context.Background()
	if err := s.CreateBridge(ctx, 1, crashBridge(id), crashTokens(id)...); err != nil {
		return err
	}
	fmt.Printf("create %s\n", id)
	for rev := uint64(1); rev <= crashSaves; rev++ {
		change := session.Change{Bridge: id, Revision: rev, Put: crashRegistrations(id, rev)}
		if err := s.Save(ctx, 0, 1, []session.Change{change}); err != nil {
			return err
		}
		fmt.Printf("save %s %d\n", id, rev)
	}
	if !mortal {
		return nil
	}
	if err := s.DeleteBridge(ctx, 1, id); err != nil {
		return err
	}
	fmt.Printf("delete %s\n", id)
	return nil
}
