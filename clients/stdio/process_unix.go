//go:build unix

package stdio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long a server that is to end has, with everything that it started.
const (
	leaveGrace = time.Second           // to end by itself, once its input has ended
	termGrace  = 2 * time.Second       // after SIGTERM, before SIGKILL
	killGrace  = 10 * time.Second      // after SIGKILL, until it is given up: long, for a busy machine
	killEvery  = 10 * time.Millisecond // what those that were killed had started comes next
)

// server is one running server under its supervisor.
type server struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	ended          chan struct{} // closed when the supervisor has ended; status is set before
	status         int

	cmd   *exec.Cmd
	life  *os.File // while it is open, the server may live
	group int      // of the server's processes; 0 when it did not start
}

func (s *server) pid() int { return s.group }

// startServer starts a command under a supervisor. The supervisor is told to end by
// the end of the pipe that is its descriptor 3, and says on 4 which process the server
// is.
func startServer(supervisor, command []string) (*server, error) {
	theirs, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	said, say, err := os.Pipe()
	if err != nil {
		life.Close()
		return nil, err
	}
	defer said.Close()
	//nolint:noctx // a context would kill the supervisor, which must end last
	cmd := exec.Command(supervisor[0], append(slices.Clone(supervisor[1:]), command...)...)
	cmd.ExtraFiles = []*os.File{theirs, say}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is ours
	s := &server{cmd: cmd, life: life, ended: make(chan struct{})}
	if s.stdin, err = cmd.StdinPipe(); err == nil {
		// Pipes of our own: Wait would close its own before all is read.
		var out, errs *os.File
		if s.stdout, out, err = os.Pipe(); err == nil {
			defer out.Close()
			if s.stderr, errs, err = os.Pipe(); err == nil {
				defer errs.Close()
				cmd.Stdout, cmd.Stderr = out, errs
				err = cmd.Start()
			}
		}
	}
	say.Close()
	if err != nil {
		life.Close()
		return nil, err
	}
	line, _ := bufio.NewReader(said).ReadString('\n') // its end means that nothing was started
	s.group, _ = strconv.Atoi(strings.TrimSpace(line))
	go s.wait()
	return s, nil
}

// wait waits for the supervisor. One that was killed could not end the server.
func (s *server) wait() {
	_ = s.cmd.Wait() // its status is read below
	s.status = statusOf(s.cmd.ProcessState.Sys().(syscall.WaitStatus))
	if s.cmd.ProcessState.ExitCode() < 0 && s.group > 0 {
		_ = syscall.Kill(-s.group, syscall.SIGKILL) // none may be left
	}
	inherit()
	s.life.Close()
	close(s.ended)
}

// inherit ends what a supervisor that was killed, or gave up, left to this process.
func inherit() {
	for until := time.Now().Add(killGrace); time.Now().Before(until); time.Sleep(killEvery) {
		pids := adopted()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids { // its own children are there the next time
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// stop ends the server and waits until nothing of it is left.
func (s *server) stop() {
	_ = s.stdin.Close()
	_ = s.life.Close()
	t := time.NewTimer(leaveGrace + termGrace + 2*killGrace)
	defer t.Stop()
	select {
	case <-s.ended:
	case <-t.C: // the supervisor hangs
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// forget gives up what the server may still say.
func (s *server) forget() {
	_ = s.stdout.Close()
	_ = s.stderr.Close()
}

func statusOf(w syscall.WaitStatus) int {
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

// Supervise runs a command to its end and returns its exit status; it ends the command
// early when descriptor 3 does. Nothing that the command started is left after it. It
// is the whole of a process.
func Supervise(command []string) int {
	runtime.LockOSThread() // the server is to die with this thread
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // it is told in another way
	adopt()
	life, say := os.NewFile(3, "life"), os.NewFile(4, "say")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	path, err := exec.LookPath(command[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	p, err := os.StartProcess(path, command, &os.ProcAttr{
		Env: environment(os.Environ()), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attributes(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 126
	}
	fmt.Fprintln(say, p.Pid)
	_ = say.Close()
	_ = os.Stdin.Close() // their ends are the server's alone
	_ = os.Stdout.Close()

	status, gone := make(chan int, 1), make(chan struct{})
	go reap(p.Pid, status, gone)
	told := make(chan struct{})
	go func() {
		_, _ = life.Read(make([]byte, 1)) // nothing is ever written
		close(told)
	}()
	code, ended := 0, false
	select {
	case code = <-status:
		ended = true
	case <-told:
		select {
		case code = <-status:
			ended = true
		case <-time.After(leaveGrace):
		}
	}
	endAll(p.Pid, gone)
	if !ended {
		select {
		case code = <-status:
		default:
			code = 128 + int(syscall.SIGKILL)
		}
	}
	return code
}

// reap waits for the server, and for whatever else becomes a child of this process,
// until none is left.
func reap(pid int, status chan<- int, gone chan<- struct{}) {
	for {
		var w syscall.WaitStatus
		got, err := syscall.Wait4(-1, &w, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(gone)
			return
		case got == pid:
			status <- statusOf(w)
		}
	}
}

// endAll ends what is left of the server.
func endAll(group int, gone <-chan struct{}) {
	for _, round := range []struct {
		signal       syscall.Signal
		grace, every time.Duration
	}{{syscall.SIGTERM, termGrace, termGrace / 10}, {syscall.SIGKILL, killGrace, killEvery}} {
		until := time.After(round.grace)
		for again := true; again; {
			select {
			case <-gone:
				return
			default:
			}
			_ = syscall.Kill(-group, round.signal)
			for _, pid := range adopted() {
				_ = syscall.Kill(pid, round.signal)
			}
			select {
			case <-gone:
				return
			case <-until:
				again = false
			case <-time.After(round.every): // what was started meanwhile
			}
		}
	}
}

// environment is what the server gets: all but the credentials of this program.
func environment(all []string) []string {
	return slices.DeleteFunc(all, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "MCPBRIDGE_") && strings.HasSuffix(name, "TOKEN")
	})
}
