package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	firstResult = 60 * time.Second // until a newcomer has seen a result
	stopsWithin = 2 * time.Second
)

// What `make run` runs makes a real call, says how to connect, and stops at once
// when it is told to.
func TestDemoShowsACallAndStopsAtOnce(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			data := filepath.Join(t.TempDir(), "data")
			p := start(t, "serve", "--open", "--demo", "--listen", "127.0.0.1:0", "--data", data)
			url := p.find(p.stderr, `msg=serving listen=\S+ url=(\S+)`)
			p.find(p.stdout, `Ctrl-C ends it\.\n`)
			if took := time.Since(began); took > firstResult {
				t.Errorf("the first result took %v", took)
			}
			out := p.stdout.String()
			for _, want := range []string{
				`add {"a":2,"b":40}` + "\n", `"text":"42"`,
				url + "/b/demo/mcp\n", "ws" + strings.TrimPrefix(url, "http") + "/b/demo/provider\n",
				"claude mcp add --transport http mcpbridge-demo " + url + "/b/demo/mcp\n",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
			configs := regexp.MustCompile(`(?s)\n(  \{\n.*?\n  \}\n)`).FindAllString(out, -1)
			if len(configs) != 2 {
				t.Errorf("%d pieces of configuration, want VS Code's and Cursor's", len(configs))
			}
			for _, text := range configs {
				var config map[string]map[string]struct{ URL string }
				if err := json.Unmarshal([]byte(text), &config); err != nil || !strings.Contains(text, url+"/b/demo/mcp") {
					t.Errorf("%v in %s", err, text)
				}
			}
			// What it printed works when it is pasted.
			run(t, "call", url+"/b/demo/mcp", "add", `{"a":2,"b":40}`).want(t, 0, `42\n`, ``)

			began = time.Now()
			p.signal(sig)
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, p.stderr)
			}
			if took := time.Since(began); took > stopsWithin {
				t.Errorf("stopping took %v", took)
			}
		})
	}
}

// The counter of the demo outlives the demo, however that ended.
func TestDemoCounterOutlivesAKill(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open", "--demo")
	s.find(s.stdout, `Ctrl-C ends it`)
	run(t, "call", s.mcpURL("demo"), "get_counter", `{"by":41}`).want(t, 0, `.*41.*`, ``)
	s.restart()
	s.find(s.stdout, `Ctrl-C ends it`)
	run(t, "call", s.mcpURL("demo"), "get_counter").want(t, 0, `.*42.*`, ``)
	s.stop()
}

func TestUsedPortIsOneSentence(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	run(t, "serve", "--open", "--listen", s.address, "--data", filepath.Join(t.TempDir(), "data")).
		want(t, 1, ``, `mcpbridge: `+regexp.QuoteMeta(s.address)+` is in use by another program: [^\n]*--listen HOST:PORT\n`)
	s.stop()
}
