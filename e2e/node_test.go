package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// packages installs the JavaScript clients where the lock file is newer than what
// is installed, as the Makefile does.
var packages = sync.OnceValue(func() error {
	node, err := exec.LookPath("node")
	if err != nil {
		return errors.New("node is missing; install Node.js 20 or newer")
	}
	out, err := exec.Command(node, "--version").Output()
	if err != nil {
		return fmt.Errorf("node does not run: %w", err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		return fmt.Errorf("node is %s; install Node.js 20 or newer", strings.TrimSpace(string(out)))
	}
	const lock, mark = "package-lock.json", "node_modules/.package-lock.json"
	wanted, err := os.Stat(lock)
	if err != nil {
		return err
	}
	if installed, err := os.Stat(mark); err == nil && !installed.ModTime().Before(wanted.ModTime()) {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is missing; install Node.js 20 or newer with npm")
	}
	if out, err := exec.Command(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts").CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	now := time.Now()
	return os.Chtimes(mark, now, now)
})

// scriptClient is a client of clients/, which reads commands and tells what
// happens: see clients/drive.mjs.
type scriptClient struct {
	*process
	seen *sightings
	read chan struct{} // closed when its output has ended

	mu      sync.Mutex // guards what follows, and writing to the process
	lastID  int
	waiting map[int]chan line
}

// line is one line of a script's output.
type line struct {
	ID    int
	Value json.RawMessage
	Error string

	Event, Method, Session string
	Status                 int
	report
}

// script runs a script of clients/ with the URL and these arguments.
func script(name string, args ...string) func(testing.TB, string, *sightings) mcpClient {
	return func(t testing.TB, url string, seen *sightings) mcpClient {
		t.Helper()
		path, err := filepath.Abs(filepath.Join("clients", name))
		if err != nil {
			t.Fatal(err)
		}
		c := &scriptClient{seen: seen, read: make(chan struct{}), waiting: map[int]chan line{}}
		in, out := io.Pipe()
		c.process = startProgram(t, out, "node", append([]string{path, url}, args...)...)
		go func() { // ends with the process, which its clean-up ends
			<-c.ended
			_ = out.Close()
		}()
		go func() {
			defer close(c.read)
			c.listenTo(in)
		}()
		t.Cleanup(func() { c.kill(); <-c.read })
		return c
	}
}

// listenTo reads the script's output to its end.
func (c *scriptClient) listenTo(in io.Reader) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			c.t.Errorf("%v in %s", err, lines.Bytes())
			continue
		}
		switch l.Event {
		case "":
			c.mu.Lock()
			answer := c.waiting[l.ID]
			delete(c.waiting, l.ID)
			c.mu.Unlock()
			if answer != nil {
				answer <- l
			}
		case "changed":
			c.seen.changed <- struct{}{}
		case "ended":
			c.seen.ended <- struct{}{}
		case "progress":
			c.seen.progress <- l.report
		case "request":
			c.seen.note(exchange{l.Method, l.Session, l.Status})
		case "told":
			c.seen.told <- noteOf(c.t, l.Value)
		case "asked":
			c.seen.asked <- noteOf(c.t, l.Value)
		case "error": // what the library tells of its streams
			c.t.Logf("the library says: %s", l.Error)
		}
	}
}

// do runs one command and decodes its value.
func (c *scriptClient) do(ctx context.Context, name string, members map[string]any, value any) error {
	if members == nil {
		members = map[string]any{}
	}
	answer := make(chan line, 1)
	c.mu.Lock()
	c.lastID++
	c.waiting[c.lastID] = answer
	members["id"], members["do"] = c.lastID, name
	text, err := json.Marshal(members)
	if err == nil {
		_, err = c.stdin.Write(append(text, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case l := <-answer:
		if l.Error != "" {
			return errors.New(l.Error)
		}
		return json.Unmarshal(l.Value, value)
	case <-c.read:
		return fmt.Errorf("the script ended: %s", c.stderr)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *scriptClient) connect(ctx context.Context) (id identity, err error) {
	return id, c.do(ctx, "connect", nil, &id)
}

func (c *scriptClient) list(ctx context.Context) (all []definition, err error) {
	return all, c.do(ctx, "list", nil, &all)
}

func (c *scriptClient) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	var r struct {
		Content json.RawMessage
		IsError bool
	}
	if arguments == nil {
		arguments = map[string]any{}
	}
	if err := c.do(ctx, "call", map[string]any{"tool": tool, "arguments": arguments}, &r); err != nil {
		return "", err
	}
	return firstText(r.Content, r.IsError)
}

func (c *scriptClient) listen(ctx context.Context) error { return c.do(ctx, "listen", nil, new(any)) }

// close ends the script as the end of its input does.
func (c *scriptClient) close() error {
	if err := c.stdin.Close(); err != nil {
		return err
	}
	if status := c.wait(); status != 0 {
		return fmt.Errorf("exit status %d", status)
	}
	return nil
}
