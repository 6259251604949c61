package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait; nothing waits for it to pass.
const patience = 60 * time.Second

// patient is a context that ends with the test, or after patience.
func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("out of patience"))
	t.Cleanup(cancel)
	return ctx
}

// screen keeps what a process writes and lets a test wait for it.
type screen struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next write
}

func newScreen() *screen { return &screen{changed: make(chan struct{})} }

// Write implements [io.Writer].
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	close(s.changed)
	s.changed = make(chan struct{})
	return len(b), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) match(re *regexp.Regexp) (group string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := re.FindStringSubmatch(s.text.String()); m != nil {
		return m[len(m)-1], nil
	}
	return "", s.changed
}

// process is a child.
type process struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr *screen
	ended          chan struct{} // closed when it has ended and all it wrote is here
	seen           bool          // the test has looked at all it wrote
}

// start runs the binary beside the test, which it does not outlive.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return startProgram(t, io.Discard, binary, args...)
}

// startProgram runs a program whose standard output also goes to tee.
func startProgram(t testing.TB, tee io.Writer, program string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	p := &process{t: t, cmd: cmd, stdout: newScreen(), stderr: newScreen(), ended: make(chan struct{})}
	cmd.Env = environment()
	cmd.Dir = t.TempDir() // where it would leave what it is not told to put elsewhere
	cmd.Stdout, cmd.Stderr = io.MultiWriter(p.stdout, tee), p.stderr
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the child, which the clean-up ends
		defer close(p.ended)
		_ = cmd.Wait() // its status is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		text := p.stderr.String()
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") || strings.Contains(text, "goroutine ") {
			t.Errorf("the child crashed:\n%s", text)
		} else if t.Failed() && !p.seen {
			t.Logf("%s wrote:\n%s", strings.Join(cmd.Args[1:], " "), text)
		}
	})
	return p
}

// find waits until the pattern matches and returns its last group, or the whole
// match.
func (p *process) find(s *screen, pattern string) string {
	p.t.Helper()
	ctx := patient(p.t)
	re := regexp.MustCompile(pattern)
	for last := false; ; {
		group, changed := s.match(re)
		switch {
		case changed == nil:
			return group
		case last:
			p.t.Fatalf("the process ended without %q:\n%s", pattern, s)
		}
		select {
		case <-changed:
		case <-p.ended:
			last = true // what it wrote last may have it
		case <-ctx.Done():
			p.t.Fatalf("%v while waiting for %q in:\n%s", context.Cause(ctx), pattern, s)
		}
	}
}

// signal sends the child, and nobody else, a signal.
func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Errorf("signal %v: %v", sig, err)
	}
}

// wait waits for the end and returns the exit status; -1 if a signal ended it.
func (p *process) wait() int {
	p.t.Helper()
	ctx := patient(p.t)
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.t.Fatalf("%v while waiting for the process to end:\n%s", context.Cause(ctx), p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the child as kill -9 does, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails if it has ended
	<-p.ended
}

// stop ends the child as Ctrl-C does, which must go well.
func (p *process) stop() {
	p.t.Helper()
	p.signal(os.Interrupt)
	if status := p.wait(); status != 0 {
		p.t.Errorf("exit status %d after an interrupt:\n%s", status, p.stderr)
	}
}

// outcome is what a command left behind.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs a whole command.
func run(t testing.TB, args ...string) outcome {
	t.Helper()
	return start(t, args...).outcome()
}

func (p *process) outcome() outcome {
	p.t.Helper()
	p.seen = true
	return outcome{p.wait(), p.stdout.String(), p.stderr.String()}
}

// want checks an outcome; stdout and stderr are patterns of the whole text.
func (o outcome) want(t testing.TB, status int, stdout, stderr string) {
	t.Helper()
	if o.status != status {
		t.Errorf("exit status %d, want %d", o.status, status)
	}
	if !regexp.MustCompile(`(?s)^(?:` + stdout + `)$`).MatchString(o.stdout) {
		t.Errorf("stdout %q, want %q", o.stdout, stdout)
	}
	if !regexp.MustCompile(`(?s)^(?:` + stderr + `)$`).MatchString(o.stderr) {
		t.Errorf("stderr %q, want %q", o.stderr, stderr)
	}
}
