package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/store"
)

// patience bounds every wait of these tests; nothing waits for it to pass.
const patience = 30 * time.Second

// screen keeps what a command writes and lets a test wait for it.
type screen struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next write
}

func newScreen() *screen { return &screen{changed: make(chan struct{})} }

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

// find waits until the pattern matches and returns its first group.
func (s *screen) find(ctx context.Context, t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		s.mu.Lock()
		m, changed := re.FindStringSubmatch(s.text.String()), s.changed
		s.mu.Unlock()
		if m != nil {
			return m[len(m)-1]
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%v while waiting for %q in:\n%s", context.Cause(ctx), pattern, s)
		}
	}
}

// started is a command that runs until it is stopped.
type started struct {
	t              *testing.T
	ctx            context.Context
	interrupt      context.CancelCauseFunc
	stdout, stderr *screen
	status         chan int
}

// start runs a command beside the test, which it does not outlive.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	patient, cancel := context.WithTimeout(t.Context(), patience)
	ctx, interrupt := context.WithCancelCause(patient)
	s := &started{t: t, ctx: ctx, interrupt: interrupt, stdout: newScreen(), stderr: newScreen(), status: make(chan int, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		s.status <- Program{Stdin: strings.NewReader(""), Stdout: s.stdout, Stderr: s.stderr}.Run(ctx, args)
		interrupt(nil)
	})
	t.Cleanup(func() { interrupt(errSignal); wg.Wait(); cancel() })
	return s
}

// serve starts the server on a port of its own and returns its URL.
func serve(t *testing.T, data string, args ...string) (*started, string) {
	t.Helper()
	s := start(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data}, args...)...)
	return s, s.stderr.find(s.ctx, t, `msg=serving listen=\S+ url=(\S+)`)
}

// stop interrupts the command and checks that it ends well.
func (s *started) stop() {
	s.t.Helper()
	began := time.Now()
	s.interrupt(errSignal)
	if status := <-s.status; status != exitOK {
		s.t.Errorf("exit status %d:\n%s", status, s.stderr)
	}
	if took := time.Since(began); took > 2*time.Second {
		s.t.Errorf("stopping took %v", took)
	}
}

func TestServeDemoCallsAToolAndSaysHowToUseIt(t *testing.T) {
	s, url := serve(t, t.TempDir()+"/data", "--open", "--demo")
	s.stdout.find(s.ctx, t, `Ctrl-C ends it`)
	out := s.stdout.String()
	for _, want := range []string{
		"add {\"a\":2,\"b\":40}\n", `"text":"42"`,
		"offers: add, echo, get_counter, picture, slow\n",
		url + "/b/demo/mcp\n", "ws" + strings.TrimPrefix(url, "http") + "/b/demo/provider\n",
		"claude mcp add --transport http mcpbridge-demo " + url + "/b/demo/mcp\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	// Both pieces of JSON can be pasted.
	for _, block := range regexp.MustCompile(`(?s)\n(  \{\n.*?\n  \}\n)`).FindAllString(out, -1) {
		var config map[string]map[string]struct{ URL string }
		if err := json.Unmarshal([]byte(block), &config); err != nil {
			t.Errorf("%v in %s", err, block)
		}
		for kind, servers := range config {
			if got := servers["mcpbridge-demo"].URL; got != url+"/b/demo/mcp" {
				t.Errorf("%s: URL %q", kind, got)
			}
		}
	}
	run(s.ctx, "", "call", url+"/b/demo", "add", `{"a":1,"b":2}`).want(t, exitOK, `3\n`, ``)
	run(s.ctx, "", "tools", "demo", "--server", url).want(t, exitOK, `NAME +DESCRIPTION\nadd .*`, ``)
	run(s.ctx, "", "healthcheck", "--server", url).want(t, exitOK, ``, ``)
	s.stop()
}

func TestServeWithoutOpenLetsInTokensAlone(t *testing.T) {
	t.Setenv(adminTokenEnv, adminToken)
	data := t.TempDir() + "/data"
	s, url := serve(t, data)
	if strings.Contains(s.stderr.String(), "Admin token") {
		t.Errorf("a token was minted beside the one given:\n%s", s.stderr)
	}
	o := run(s.ctx, "", "bridge", "create", "--server", url, "-o", "json")
	o.want(t, exitOK, `\{.*\}\n`, ``)
	var b bridgeRecord
	if err := json.Unmarshal([]byte(o.stdout), &b); err != nil {
		t.Fatal(err)
	}

	demo := start(t, "demo", "--url", b.ProviderURL, "--token", b.ProviderToken, "--counter", filepath.Join(t.TempDir(), "counter"))
	demo.stderr.find(s.ctx, t, `tools=5 rejected=0`)
	run(s.ctx, "", "call", b.MCPURL, "add", `{"a":1,"b":2}`, "--token", b.ClientToken).want(t, exitOK, `3\n`, ``)
	for name, token := range map[string]string{"none": "", "the provider's": b.ProviderToken, "the admin's": adminToken} {
		o := run(s.ctx, "", "tools", b.MCPURL, "--token", token)
		if o.status != exitFailed || o.stdout != "" {
			t.Errorf("token %s: %+v", name, o)
		}
	}
	refused := start(t, "demo", "--url", b.ProviderURL, "--token", b.ClientToken, "--counter", filepath.Join(t.TempDir(), "counter"))
	if status := <-refused.status; status != exitFailed {
		t.Errorf("a client token opened the provider's door: %d", status)
	}
	demo.stop()

	// The bridge is still there after a restart.
	s.stop()
	s, url = serve(t, data)
	run(s.ctx, "", "bridge", "show", b.ID, "--server", url).want(t, exitOK, `id +`+b.ID+`.*`, ``)
	s.stop()
}

func TestMintedAdminTokenIsShownOnce(t *testing.T) {
	data := t.TempDir() + "/data"
	s, url := serve(t, data)
	token := s.stderr.find(s.ctx, t, `Admin token, shown this once; keep it: (\S+)\n`)
	if strings.Contains(s.stdout.String(), token) || strings.Count(s.stderr.String(), token) != 1 {
		t.Error("the token is shown more than once")
	}
	run(s.ctx, "", "bridge", "list", "--server", url, "--token", token).want(t, exitOK, `ID .*`, ``)
	s.stop()
	if file, err := os.ReadFile(filepath.Join(data, store.FileName)); err != nil || strings.Contains(string(file), token[20:40]) {
		t.Errorf("the store has the token itself, or %v", err)
	}

	s, url = serve(t, data)
	if strings.Contains(s.stderr.String(), "Admin token") {
		t.Errorf("a second token:\n%s", s.stderr)
	}
	run(s.ctx, "", "bridge", "list", "--server", url, "--token", token).want(t, exitOK, `ID .*`, ``)
	s.stop()

	// One that the administrator brings replaces it.
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, url = serve(t, data, "--admin-token-file", file)
	run(s.ctx, "", "bridge", "list", "--server", url, "--token", adminToken).want(t, exitOK, `ID .*`, ``)
	run(s.ctx, "", "bridge", "list", "--server", url, "--token", token).want(t, exitFailed, ``, `mcpbridge: 401 .*`)
	s.stop()
}

func TestAdminTokenGivenMustBeOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir() + "/data", "--admin-token-file", file}
	if err := os.WriteFile(file, []byte("  \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), "", args...).want(t, exitUsage, ``, `mcpbridge: --admin-token-file: \S+ is empty\n`)
	if err := os.WriteFile(file, []byte("too short to be one"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), "", args...).want(t, exitUsage, ``, `mcpbridge: the admin token given: an admin token needs 32 to 1024 characters\n`)
	_, secret := credential.New(store.ClientToken, "b", time.Now())
	t.Setenv(adminTokenEnv, secret.Reveal())
	run(t.Context(), "", args...).want(t, exitUsage, ``, `mcpbridge: both .*\n`)
	run(t.Context(), "", args[:5]...).want(t, exitUsage, ``, `mcpbridge: the admin token given: wrong kind of token\n`)
}

func TestPlainFailuresAreOneSentence(t *testing.T) {
	data := t.TempDir() + "/data"
	s, url := serve(t, data, "--open")
	address := strings.TrimPrefix(url, "http://")
	run(s.ctx, "", "serve", "--open", "--data", data, "--listen", address).want(t, exitFailed, ``,
		`mcpbridge: `+regexp.QuoteMeta(address)+` is in use by another program: [^\n]*--listen HOST:PORT\n`)
	run(s.ctx, "", "serve", "--open", "--data", data, "--listen", "127.0.0.1:0").want(t, exitFailed, ``,
		`mcpbridge: [^\n]* is locked by another process: [^\n]*\n`)
	s.stop()

	if err := os.WriteFile(filepath.Join(data, store.FileName), []byte("not a database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), "", "serve", "--open", "--data", data, "--listen", "127.0.0.1:0").want(t, exitFailed, ``, `mcpbridge: [^\n]+\n`)
}

// A request that does not end holds the process for the grace and no longer.
func TestGraceBoundsTheDrain(t *testing.T) {
	s, url := serve(t, t.TempDir()+"/data", "--open", "--shutdown-grace", "100ms")
	conn, err := new(net.Dialer).DialContext(s.ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST /b/x/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	// The server has begun the request once it reads no more than this.
	run(s.ctx, "", "healthcheck", "--server", url).want(t, exitOK, ``, ``)
	s.stop()
}

func TestProfilesAreServedOnLoopbackAlone(t *testing.T) {
	s, url := serve(t, t.TempDir()+"/data", "--open", "--debug-listen", "127.0.0.1:0")
	debug := s.stderr.find(s.ctx, t, `msg="serving profiles" listen=(\S+)`)
	for address, want := range map[string]int{"http://" + debug: 200, url: 404} {
		r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, address+"/debug/pprof/goroutine?debug=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || strings.HasPrefix(string(text), "goroutine profile: total ") != (want == 200) {
			t.Errorf("%s: %d %.100s", address, resp.StatusCode, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	s.stop()
	run(t.Context(), "", "serve", "--open", "--data", t.TempDir()+"/data", "--listen", "127.0.0.1:0", "--debug-listen", "0.0.0.0:0").
		want(t, exitUsage, ``, `mcpbridge: --debug-listen needs a loopback address.*`)
}

// asCommand makes TestMain the command itself, for tests of the whole process.
const asCommand = "MCPBRIDGE_TEST_AS_COMMAND"

func TestSignalsDrainAndASecondOneEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := func(args ...string) (*exec.Cmd, *screen) {
		cmd := exec.CommandContext(ctx, os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		out := newScreen()
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--open", "--demo", "--shutdown-grace", "1h", "--data", t.TempDir() + "/data"}

	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, out := command(args...)
		out.find(ctx, t, `Ctrl-C ends it`)
		_ = cmd.Process.Signal(sig)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", sig, err, out)
		}
	}

	// A request that never comes to its end keeps the first signal waiting.
	cmd, out := command(args...)
	address := out.find(ctx, t, `msg=serving listen=(\S+)`)
	out.find(ctx, t, `Ctrl-C ends it`)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST /b/x/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	run(ctx, "", "healthcheck", "--server", "http://"+address).want(t, exitOK, ``, ``)
	_ = cmd.Process.Signal(os.Interrupt)
	out.find(ctx, t, `msg=stopping`)
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("second signal: %v\n%s", err, out)
	}
}
