package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAProviderThatSleepsIsAwayAndComesBack holds case O6: a laptop that sleeps closes
// no connection. Within two ping intervals its provider counts as away; a call made
// then waits, and is answered once the laptop wakes.
func TestAProviderThatSleepsIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	const ping, round = time.Second, 2
	s := serve(t, "--open", "--ping", ping.String())
	p := start(t, "demo", "--url", s.socketURL("home"), "--counter", filepath.Join(t.TempDir(), "counter"))
	p.find(p.stderr, `msg="tools registered"`)
	for range round {
		p.signal(syscall.SIGSTOP)
		t.Cleanup(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }) // so that it can be ended
		s.until("home", "the sleeping provider to be away", func(h health) bool {
			return len(h.Providers) == 1 && !h.Providers[0].Connected && len(h.Tools) == 5
		})
		call := start(t, "call", s.mcpURL("home"), "add", `{"a":2,"b":40}`)
		s.until("home", "the call to wait", func(h health) bool { return h.CallsInFlight == 1 })
		p.signal(syscall.SIGCONT)
		call.outcome().want(t, 0, `42\n`, ``)
	}
	p.signal(os.Interrupt)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, p.stderr)
	}
}
