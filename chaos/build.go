package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// edit replaces a text that a file has once.
type edit struct{ file, from, to string }

// slowDisk makes every commit of registrations last, as those of a busy disk do. By
// itself it breaks nothing: what is not durable yet is neither told nor listed.
var slowDisk = edit{"shard/saver.go", "\t\terr := v.commit()\n", "\t\ttime.Sleep(200 * time.Millisecond)\n\t\terr := v.commit()\n"}

// A broken build of the server breaks one rule on purpose, to show that the checker
// sees it. The edits are made to a copy on the way to the compiler (go build
// -overlay): no source has them, nor any other binary.
var broken = map[string][]edit{
	// What is acknowledged is not durable yet, and lost with the process.
	"ack-early": {slowDisk, {"session/ledger.go", "\tif !l.unsaved() {\n\t\ttell(r)", "\tif true {\n\t\ttell(r)"}},
	// What is listed is not durable yet.
	"list-early": {slowDisk, {
		"session/registry.go", "\t\ts.fresh = append(s.fresh, fresh{s.seq, s.build(), true, s.fewer})\n",
		"\t\ts.fresh = append(s.fresh, fresh{s.seq, s.build(), true, s.fewer})\n\t\ts.s.catalog.Store(s.build())\n",
	}},
	// A call is written twice.
	"twice": {{"api/provider/outbox.go", "\t\ti.deliver.Written()\n", "\t\to.frame(buf.B)\n\t\ti.deliver.Written()\n"}},
	// A provider that resumes is given what it had been given before.
	"resend": {{"session/resume.go", "undelivered := c.withdraw()", "undelivered := c.withdraw() || true"}},
	// An answer goes to whichever call its provider has.
	"swap": {{
		"session/state.go", "\tc := s.calls[f.id]\n\tif c == nil || c.inst != f.inst",
		"\tc := s.calls[f.id]\n\tfor _, o := range s.calls {\n\t\tif o.inst == f.inst {\n\t\t\tc = o\n\t\t}\n\t}\n\tif c == nil || c.inst != f.inst",
	}},
	// Calls that wait for their provider are delivered newest first.
	"newest-first": {{"session/resume.go", "slices.Sorted(maps.Keys(s.calls))", "slices.Backward(slices.Sorted(maps.Keys(s.calls)))"}},
	// A slow disk alone, which is no break.
	"slow-disk": {slowDisk},
}

// clock lets the server's wall clock be stepped, as no process can be made to see
// otherwise whose Go runtime asks the kernel by itself: a time namespace moves the
// monotonic clocks alone. Every time.Now of the process has the step, the monotonic
// clock has not: as with a machine's clock that is set.
var clock = []edit{
	{"time/time.go", "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {", "\tsec, nsec, mono := runtimeNow()\n\tsec += Stepped.Load()\n\tif mono == 0 {"},
}

// clockFiles are added: SIGUSR1 steps two hours ahead, SIGUSR2 back.
var clockFiles = map[string]string{
	"time/stepped.go": "package time\n\nimport \"sync/atomic\"\n\nvar Stepped atomic.Int64\n",
	"cmd/mcpbridge/stepped.go": `package main

import ("os"; "os/signal"; "syscall"; "time")

func init() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range c {
			if s == syscall.SIGUSR1 { time.Stepped.Add(7200) } else { time.Stepped.Add(-7200) }
		}
	}()
}
`,
}

// compile builds the server of this repository into dir, with a clock that can be
// stepped if steps, and one of the broken rules unless that is "".
func compile(ctx context.Context, root, dir string, steps bool, rule string) (binary string, err error) {
	replace := map[string]string{}
	apply := func(base string, e edit) error {
		path := filepath.Join(base, e.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), e.from); n != 1 {
			return fmt.Errorf("chaos: %s has %q %d times, want once", e.file, e.from, n)
		}
		return lay(dir, replace, path, strings.Replace(string(text), e.from, e.to, 1))
	}
	if rule != "" {
		edits, ok := broken[rule]
		if !ok {
			return "", fmt.Errorf("chaos: there is no broken rule %q, but %s", rule, strings.Join(brokenRules(), ", "))
		}
		for _, e := range edits {
			if err := apply(root, e); err != nil {
				return "", err
			}
		}
	}
	if steps {
		std := filepath.Join(build.Default.GOROOT, "src")
		for _, e := range clock {
			if err := apply(std, e); err != nil {
				return "", err
			}
		}
		for name, text := range clockFiles {
			base := root
			if strings.HasPrefix(name, "time/") {
				base = std
			}
			if err := lay(dir, replace, filepath.Join(base, name), text); err != nil {
				return "", err
			}
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "mcpbridge")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./cmd/mcpbridge")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("chaos: build the server: %w\n%s", err, out)
	}
	return binary, nil
}

// lay writes a text that takes the place of the file at path.
func lay(dir string, replace map[string]string, path, text string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	copied := filepath.Join(dir, fmt.Sprintf("overlay%d.go", len(replace)))
	replace[path] = copied
	return os.WriteFile(copied, []byte(text), 0o600)
}

// brokenRules names what can be broken.
func brokenRules() []string { return slices.Sorted(maps.Keys(broken)) }
