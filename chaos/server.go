package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// startWait is how long the server may take to be ready.
	startWait = 30 * time.Second
	// stopWait is how long it may take to end once it was told to: its grace, and more.
	stopWait = 20 * time.Second
	grace    = 5 * time.Second
)

// Server is `mcpbridge serve` on an address and a directory that outlive its
// processes. One goroutine uses it.
type Server struct {
	binary, address, data string
	args                  []string
	log                   *os.File // of all processes
	h                     *History
	http                  *http.Client

	cmd      *exec.Cmd
	ended    chan struct{} // closed when cmd has ended
	expected *atomic.Bool  // it is going to end
	starts   int
}

// serverArgs makes what takes long by default take little.
var serverArgs = []string{
	"--open", "--ping", "2s", "--park", "5s", "--resume-grace", "3s", "--call-timeout", "15s",
	"--idle", "3s", "--shutdown-grace", grace.String(), "--log-level", "warn",
}

func newServer(h *History, binary, address, data, log string, args ...string) (*Server, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	return &Server{
		binary: binary, address: address, data: data, log: f, h: h, args: args,
		http: &http.Client{Transport: transport, Timeout: 2 * time.Second},
	}, nil
}

func (s *Server) url() string { return "http://" + s.address }

// launch starts a process.
func (s *Server) launch() error {
	//nolint:noctx // it ends by the signals of the faults, and by close
	cmd := exec.Command(s.binary, append([]string{"serve", "--listen", s.address, "--data", s.data}, s.args...)...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.ended, s.expected = cmd, make(chan struct{}), &atomic.Bool{}
	s.starts++
	go func(ended chan struct{}, expected *atomic.Bool) { // ends with the process
		defer close(ended)
		err := cmd.Wait()
		if !expected.Load() {
			s.h.Add(Event{Kind: Broke, Text: fmt.Sprintf("the server ended by itself: %v\n%s", err, s.tail())})
		}
	}(s.ended, s.expected)
	return nil
}

// start starts a process and waits until it is ready.
func (s *Server) start(ctx context.Context) error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.ready(ctx)
}

// ready waits until the server says that it is.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for !s.says(ctx, "/readyz") {
		select {
		case <-s.ended:
			return fmt.Errorf("chaos: the server ended instead of serving:\n%s", s.tail())
		default:
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("chaos: the server was not ready within %v:\n%s", startWait, s.tail())
		}
	}
	return nil
}

// says tells whether the server answers a GET with 200.
func (s *Server) says(ctx context.Context, path string) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+path, nil)
	if err != nil {
		return false
	}
	resp, err := s.http.Do(q)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (s *Server) signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// kill ends the process as a power cut would, and waits for its end.
func (s *Server) kill() {
	s.expected.Store(true)
	_ = s.signal(syscall.SIGKILL) // fails if it has ended
	<-s.ended
}

// stop tells the process to end, which must go well.
func (s *Server) stop() error {
	s.expected.Store(true)
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	t := time.NewTimer(stopWait)
	defer t.Stop()
	select {
	case <-s.ended:
	case <-t.C:
		s.kill()
		return fmt.Errorf("chaos: the server did not end within %v of SIGTERM:\n%s", stopWait, s.tail())
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("chaos: the server ended with status %d after SIGTERM:\n%s", code, s.tail())
	}
	return nil
}

// refuses starts a process that must end at once, with status 1 and one sentence.
func (s *Server) refuses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, s.binary, append([]string{"serve", "--listen", s.address, "--data", s.data}, s.args...)...)
	cmd.Stderr = &said
	err := cmd.Run()
	s.starts++
	text := said.String()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 ||
		!strings.HasPrefix(text, "mcpbridge: ") || strings.Count(text, "\n") != 1 {
		return fmt.Errorf("chaos: the server should have refused to start, in one sentence: %w, %q", err, text)
	}
	return nil
}

// file is the store's file.
func (s *Server) file() string { return filepath.Join(s.data, "mcpbridge.db") }

// close ends what there is.
func (s *Server) close() {
	if s.cmd != nil {
		s.kill()
	}
	_ = s.log.Close()
}

// crashed is what a panic or a race has left in the log, or empty.
func (s *Server) crashed() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	for _, mark := range []string{"panic", "DATA RACE", "goroutine ", "fatal error"} {
		if i := bytes.Index(b, []byte(mark)); i >= 0 {
			return string(b[max(0, i-200):min(len(b), i+2000)])
		}
	}
	return ""
}

// tail is the end of the log.
func (s *Server) tail() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
