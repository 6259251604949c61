package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runChild starts `mcpbridge run` with the child and waits until its tools are there.
func (s *server) runChild(bridge string, flags []string, modes ...string) *process {
	s.t.Helper()
	args := append([]string{"run", "--url", s.socketURL(bridge)}, flags...)
	p := start(s.t, append(append(args, "--"), childArgs(modes...)...)...)
	s.until(bridge, "the child's tools", offers)
	return p
}

// offers tells whether the bridge's provider is connected, and its list has been read.
func offers(h health) bool {
	return len(h.Providers) > 0 && h.Providers[0].Connected && len(h.Tools) > 0
}

func away(h health) bool { return len(h.Providers) > 0 && !h.Providers[0].Connected }

// callText calls a tool and returns its text, or fails.
func (s *server) callText(bridge, tool, arguments string, headers ...string) string {
	s.t.Helper()
	text, _ := s.callResult(bridge, tool, arguments, headers...)
	return text
}

func (s *server) callResult(bridge, tool, arguments string, headers ...string) (text, raw string) {
	s.t.Helper()
	a := s.do(http.MethodPost, "/b/"+bridge+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+`}}`, headers...)
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		s.t.Fatalf("%v in %.200s", err, a.body)
	}
	if len(m.Result.Content) > 0 {
		text = m.Result.Content[0].Text
	}
	return text, a.body
}

// TestRunTakesWhatServersPrint holds case O4.
func TestRunTakesWhatServersPrint(t *testing.T) {
	s := serve(t, "--open")
	p := s.runChild("b", nil, "chatty")
	if text := s.callText("b", "echo", "{}"); !strings.HasPrefix(text, "pid ") {
		t.Errorf("called: %q", text)
	}
	p.stop()
	p.seen = true
	name := regexp.QuoteMeta(os.Args[0][strings.LastIndexByte(os.Args[0], '/')+1:])
	for _, line := range []string{name + ` > Banner of the server`, name + ` > \{ not JSON`, name + ` > working on it`, name + ` \| started \d+`} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(p.stderr.String()) {
			t.Errorf("no line %q in\n%s", line, p.stderr)
		}
	}
	if strings.Contains(p.stderr.String(), "jsonrpc") {
		t.Errorf("messages are shown:\n%s", p.stderr)
	}
}

// TestRunTakesLongLines holds case O5.
func TestRunTakesLongLines(t *testing.T) {
	s := serve(t, "--open")
	s.runChild("b", nil, "bulky")
	s.callText("b", "echo", "{}")
	if n := len(s.tools("b")); n != 26 {
		t.Errorf("%d tools, want 26", n)
	}
	if text := s.callText("b", "long", `{"n":7000000}`); len(text) != 7_000_000 {
		t.Errorf("7 MB came as %d bytes", len(text))
	}
	_, raw := s.callResult("b", "long", `{"n":9000000}`)
	if !strings.Contains(raw, `"error":{"code":-32603`) || !strings.Contains(raw, "at most 8388608") {
		t.Errorf("9 MB came as %.300s", raw)
	}
	if text := s.callText("b", "echo", "{}"); !strings.HasPrefix(text, "pid ") {
		t.Errorf("called after it: %q", text)
	}
}

// started waits until a run has told of so many processes, each of which may be told of
// by itself and by who started it.
func started(p *process, want int) (pids []int) {
	p.t.Helper()
	ctx := patient(p.t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pids = pids[:0]
		for _, m := range regexp.MustCompile(`(?m)\| started (\d+)$`).FindAllStringSubmatch(p.stderr.String(), -1) {
			if pid, _ := strconv.Atoi(m[1]); !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
		if len(pids) == want {
			return pids
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("%d processes, want %d:\n%s", len(pids), want, p.stderr)
		}
	}
}

// gone waits until none of the processes is left, which takes three seconds at most on a
// machine that has nothing else to do.
func gone(t *testing.T, pids ...int) {
	t.Helper()
	ctx := patient(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for {
		var left []int
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !zombie(pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			t.Logf("%d processes were gone after %v", len(pids), time.Since(begun).Round(time.Millisecond))
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("processes %v are left of %v", left, pids)
		}
	}
}

// parentOf is the process that started another.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	parent, err := strconv.Atoi(fields[1]) // state ppid …
	if err != nil || parent < 2 {
		t.Fatalf("%v in %s", err, stat)
	}
	return parent
}

// zombie tells whether a process has ended and waits for its parent to look.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	at := strings.LastIndexByte(string(stat), ')')
	return at >= 0 && strings.HasPrefix(string(stat[at:]), ") Z")
}

// TestNothingIsLeftOfARun: whatever ends, and however, no process stays.
func TestNothingIsLeftOfARun(t *testing.T) {
	s := serve(t, "--open")
	for _, c := range []struct {
		name string
		end  func(p *process)
	}{
		{"kill -9 of run", func(p *process) { p.kill() }},
		{"kill -9 of the supervisor", func(p *process) {
			server, _ := strconv.Atoi(p.find(p.stderr, `server started.* pid=(\d+)`))
			if err := syscall.Kill(parentOf(t, server), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			p.find(p.stderr, `trying again`)
			p.stop() // what it started anew ends, too
		}},
		{"Ctrl-C", func(p *process) { p.stop() }},
		{"SIGTERM", func(p *process) {
			p.signal(syscall.SIGTERM)
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d after SIGTERM", status)
			}
		}},
	} {
		for mode, want := range map[string]int{
			"meek":     1,
			"stubborn": 4,  // the server, a child that ignores all, one that leaves a grandchild, and that
			"deep=12":  13, // each known only once the one before is gone
		} {
			t.Run(c.name+" "+mode, func(t *testing.T) {
				bridge := strings.NewReplacer(" ", "-", "=", "-").Replace(c.name + mode)
				p := s.runChild(bridge, nil, mode)
				s.callText(bridge, "echo", "{}")
				pids := started(p, want)
				c.end(p)
				gone(t, pids...)
				s.until(bridge, "the tools to be away", away)
				if n := len(s.tools(bridge)); n != 5 {
					t.Errorf("%d tools are listed, want 5", n)
				}
			})
		}
	}
}

// TestRunStartsItsServerAgain: a server that dies comes back, and so do its tools. What
// it started ends before that.
func TestRunStartsItsServerAgain(t *testing.T) {
	for _, mode := range []string{"stubborn", "meek"} {
		t.Run(mode, func(t *testing.T) {
			s := serve(t, "--open")
			p := s.runChild("b", nil, mode)
			first := s.callText("b", "echo", "{}")
			want := 1
			if mode == "stubborn" {
				want = 4
			}
			pids := started(p, want)
			pid, _ := strconv.Atoi(strings.TrimPrefix(first, "pid "))
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			gone(t, pids...)
			p.find(p.stderr, `(?s)server started.*trying again.*server started`)
			s.until("b", "the next server", offers)
			second := s.callText("b", "echo", "{}")
			if second == first || !strings.HasPrefix(second, "pid ") {
				t.Errorf("answered by %q and then %q", first, second)
			}
			// The bridge restarts: both come back by themselves.
			s.restart()
			s.until("b", "the server after the restart", offers)
			if text := s.callText("b", "echo", "{}"); !strings.HasPrefix(text, "pid ") {
				t.Errorf("after the restart: %q", text)
			}
		})
	}
}

// TestRunOnceExitsWithItsServersStatus, even if the server leaves processes behind that
// take long to end, and if it only says nothing any more.
func TestRunOnceExitsWithItsServersStatus(t *testing.T) {
	s := serve(t, "--open")
	for _, c := range []struct {
		mode, tool string
		status     int
	}{{"meek", "exit", 7}, {"stubborn", "exit", 7}, {"meek", "mute", 0}} {
		t.Run(c.mode+" "+c.tool, func(t *testing.T) {
			bridge := c.mode + c.tool
			p := s.runChild(bridge, []string{"--once"}, c.mode)
			if c.mode == "stubborn" {
				p.find(p.stderr, `(?s)(\| started \d+.*){4}`)
			}
			s.callText(bridge, c.tool, `{"n":7}`)
			if o := p.outcome(); o.status != c.status || strings.Count(o.stderr, "server started") != 1 {
				t.Errorf("exit status %d, want %d\n%s", o.status, c.status, o.stderr)
			}
		})
	}
}

func TestRunSaysWhyItCannot(t *testing.T) {
	s := serve(t)
	b := createBridge(t, s, s.find(s.stderr, shownOnce))
	child := childArgs()
	try := func(args ...string) outcome { return run(t, append([]string{"run"}, args...)...) }
	try("--url", s.socketURL(b.ID), "--token", "wrong", "--", child[0], child[1]).
		want(t, 1, "", `mcpbridge: the token was refused: the bearer token is not valid \(4401\)\n`)
	try("--url", s.socketURL("none"), "--token", b.ProviderToken, "--", child[0], child[1]).
		want(t, 1, "", `mcpbridge: this is not a bridge of yours: there is no such bridge \(4403\)\n`)
	try("--url", s.socketURL(b.ID), "--", "no-such-command").
		want(t, 1, "", `mcpbridge: exec: "no-such-command": executable file not found in \$PATH\n`)
	try("--url", "nonsense", "--", child[0]).want(t, 2, "", `(?s).*--url is "nonsense", want a URL.*`)
	try("--url", s.socketURL(b.ID)).want(t, 2, "", `(?s).*command.*`)

	// The token may come from the environment; the server never sees it.
	t.Setenv("SOMETHING_ELSE", "kept")
	p := startProgram(t, newScreen(), "/usr/bin/env", append([]string{"MCPBRIDGE_TOKEN=" + b.ProviderToken, binary, "run", "--url", s.socketURL(b.ID), "--"}, child...)...)
	auth := bearer(b.ClientToken)
	s.until(b.ID, "the child", offers, auth...)
	text := s.callText(b.ID, "environment", "{}", auth...)
	if strings.Contains(text, b.ProviderToken) || !strings.Contains(text, "SOMETHING_ELSE=kept") {
		t.Errorf("the server's environment:\n%s", text)
	}
	if strings.Contains(p.stderr.String(), b.ProviderToken) {
		t.Errorf("the token is in the log:\n%s", p.stderr)
	}
}
