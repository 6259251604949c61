// Command hostile attacks the real server in every way that it knows, and measures what
// a victim on another bridge of the same process notices of it: one row of a Markdown
// table for each enemy. It exits with 1 if an offender got something else than it
// should, or one of the victim's calls failed.
//
// The latencies are measured, not judged: they are only as good as the machine is quiet.
// Offenders run in a process of their own, at the lowest priority, as if they were on
// another machine.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	binary := flag.String("server", "bin/mcpbridge", "the server's binary")
	d := flag.Duration("d", 10*time.Second, "how long each enemy attacks")
	soaking := flag.Duration("soak", 0, "load the server in every way for that long instead, and see that it holds nothing afterwards")
	only := flag.String("only", "", "enemies whose names match this pattern, alone")
	name := flag.String("attack", "", "be this enemy (for the program's own use)")
	address := flag.String("address", "", "of the server to attack (for the program's own use)")
	flag.Parse()
	if *name != "" {
		return attack(ctx, *name, *address, *d)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mcpbridge-hostile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var args []string
	if *soaking > 0 {
		args = soakArgs
	}
	t, err := start(ctx, *binary, dir, args...)
	if err != nil {
		return err
	}
	if *soaking > 0 {
		return errors.Join(soak(ctx, t, enemies(), *soaking, os.Stdout), t.stop())
	}
	fmt.Println("| enemy | at once | gets | times | victim's calls | p99 quiet | p99 attacked | ratio | memory |")
	fmt.Println("|---|--:|---|--:|--:|--:|--:|--:|--:|")
	failed := 0
	for _, e := range enemies() {
		if !pattern.MatchString(e.name) || ctx.Err() != nil {
			continue
		}
		if err := row(ctx, t, &e, *d); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", e.name, err)
			failed++
		}
	}
	if err := errors.Join(ctx.Err(), t.stop()); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d enemies did harm", failed)
	}
	return nil
}

// callRate is how many calls the victim makes a second.
const callRate = 200

// row lets one enemy attack, and prints what came of it.
func row(ctx context.Context, t *target, e *enemy, d time.Duration) error {
	quiet, err := t.watch(ctx, d)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-attack", e.name, "-address", t.address, "-d", d.String())
	cmd.Stderr = os.Stderr
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, 19) // the table says how it ran
	attacked, watchErr := t.watch(ctx, d)
	if err := errors.Join(watchErr, cmd.Wait()); err != nil {
		return err
	}
	got := map[string]int{}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		return err
	}
	times := 0
	var wrong []string
	for _, text := range slices.Sorted(maps.Keys(got)) {
		times += got[text]
		if !e.deserved(text) {
			wrong = append(wrong, text)
		}
	}
	fmt.Printf("| %s | %d | %s | %d | %d | %.1f ms | %.1f ms | %.2f | %d MiB |\n", e.name, e.crowd, most(got), times, attacked.calls,
		ms(quiet.p99()), ms(attacked.p99()), float64(attacked.p99())/float64(quiet.p99()), attacked.memory>>20)
	if len(wrong) > 0 {
		return fmt.Errorf("an offender got %q", wrong)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// most is what an offender got most often, up to two, in a form that a table takes.
func most(got map[string]int) string {
	texts := slices.SortedFunc(maps.Keys(got), func(a, b string) int { return cmp.Or(got[b]-got[a], strings.Compare(a, b)) })
	texts = texts[:min(2, len(texts))]
	for i, text := range texts {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
		if len(text) > 160 {
			text = strings.ToValidUTF8(text[:157], "") + "..."
		}
		texts[i] = "`" + text + "`"
	}
	return strings.Join(texts, ", ")
}

// calm is what the victim noticed.
type calm struct {
	took   []time.Duration
	calls  int
	memory int64 // most of the server's, in bytes
}

func (c *calm) p99() time.Duration {
	slices.Sort(c.took)
	return c.took[len(c.took)*99/100]
}

// watch lets the victim call at its rate for d. Each call counts from when it was due,
// so that one that waits hides none of the next.
func (t *target) watch(ctx context.Context, d time.Duration) (*calm, error) {
	c := &calm{}
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / callRate)
	defer tick.Stop()
	end := time.After(d)
	for n := 0; ; n++ {
		select {
		case due := <-tick.C:
			wg.Go(func() {
				err := t.call(ctx, n)
				took := time.Since(due)
				mu.Lock()
				defer mu.Unlock()
				c.took = append(c.took, took)
				c.calls++
				failed = errors.Join(failed, err)
			})
		case <-end:
			wg.Wait()
			return c, failed
		case <-ctx.Done():
			wg.Wait()
			return c, context.Cause(ctx)
		}
		if n%(callRate/10) == 0 {
			m, err := t.memory()
			if err != nil {
				return c, err
			}
			c.memory = max(c.memory, m)
		}
	}
}

// attack is one enemy, for a time; it prints how often it got what.
func attack(ctx context.Context, name, address string, d time.Duration) error {
	at := slices.IndexFunc(enemies(), func(e enemy) bool { return e.name == name })
	if at < 0 {
		return fmt.Errorf("there is no enemy %q", name)
	}
	e := enemies()[at]
	end := time.Now().Add(d)
	got, err := e.attack(ctx, &target{address: address}, func(int) bool { return time.Now().Before(end) })
	if err != nil {
		return err
	}
	text, err := json.Marshal(got)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", text)
	return err
}

// attack offends as a crowd, each as long as more says so, and at least once. It returns
// how often the offenders got what.
func (e *enemy) attack(ctx context.Context, t *target, more func(done int) bool) (map[string]int, error) {
	mine := *t
	mine.bridge = fmt.Sprintf("enemy-%x", crc32.ChecksumIEEE([]byte(e.name)))
	mine.from = byte(1 + slices.IndexFunc(enemies(), func(o enemy) bool { return o.name == e.name }))
	got := map[string]int{}
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range e.crowd {
		wg.Go(func() {
			for done := 0; done == 0 || more(done) && ctx.Err() == nil; done++ {
				text, err := e.offend(ctx, &mine)
				mu.Lock()
				if err != nil {
					failed = fmt.Errorf("%s: %w", e.name, err)
				} else {
					got[text]++
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return got, failed
}
