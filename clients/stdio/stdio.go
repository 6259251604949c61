package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Config is what to run, and where its tools go.
type Config struct {
	URL      string   // of the bridge's provider socket; ws, wss, http or https
	Token    string   // the bridge's provider token; may be empty
	Provider string   // the stable name; empty takes the server's own
	Command  []string // the server and its arguments
	// Supervisor is the command that calls [Supervise] with the arguments that follow
	// it.
	Supervisor []string
	Once       bool      // Run ends when the server does
	Stderr     io.Writer // gets what the server says beside the protocol; written to by one goroutine at a time
	Log        *slog.Logger
	HTTP       *http.Client // may be nil
}

const (
	dialTimeout  = 10 * time.Second
	pingEvery    = 20 * time.Second // and how long the answer may take
	backoffStart = 500 * time.Millisecond
	backoffCap   = 30 * time.Second
	// stableAfter is how long server and connection must have held for the back-off to
	// start over.
	stableAfter = 10 * time.Second
	// A write may take writeTimeout and a second for each writePace bytes.
	writeTimeout = 10 * time.Second
	writePace    = 32 << 10
	// defaultFrame is the longest message of a bridge that does not say, in bytes.
	defaultFrame = 8 << 20
	// readLimit is the longest message taken from a bridge, in bytes.
	readLimit = 64 << 20
	// headerMaxFrame is how a bridge says how long a message may be, in bytes.
	headerMaxFrame = "Mcpbridge-Max-Frame"
)

// Close codes after which dialling again is pointless.
var finalCodes = map[websocket.StatusCode]string{
	4400: "the server could not be used",
	4401: "the token was refused",
	4403: "this is not a bridge of yours",
	4409: "another connection took this one's place",
}

// Refused says why the bridge will not have the provider. Trying again is pointless.
type Refused struct {
	Code   int // of the WebSocket's closure, or the HTTP status
	Reason string
}

func (r *Refused) Error() string { return fmt.Sprintf("%s (%d)", r.Reason, r.Code) }

// Exit is the exit status of a server, with Once.
type Exit struct{ Status int }

func (e *Exit) Error() string { return fmt.Sprintf("the server ended with status %d", e.Status) }

var (
	errEnded  = errors.New("the server ended")
	errClosed = errors.New("the server closed its output")
)

// closedGrace is how long a server may live on without its output, and its output
// without the server.
const closedGrace = 2 * time.Second

// Run connects, starts the server and passes messages, again and again, until ctx ends
// (nil), the bridge refuses ([Refused]), or, with Once, the server has ended ([Exit]).
// Each connection has a server of its own: a stdio server is initialised once. When Run
// returns, no process is left. This process should have no children but Run's: what a
// supervisor leaves behind when it is killed becomes one, and is ended.
func Run(ctx context.Context, cfg Config) error {
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		return err
	}
	target, err := address(cfg.URL, cfg.Provider)
	if err != nil {
		return err
	}
	r := &runner{cfg: cfg, target: target, name: filepath.Base(cfg.Command[0])}
	adopt()
	for {
		began := time.Now()
		err := r.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end, and has
		}
		if _, ok := errors.AsType[*Refused](err); ok {
			return err
		}
		if e, ok := errors.AsType[*Exit](err); ok && cfg.Once {
			return e
		}
		if time.Since(began) > stableAfter {
			r.attempts = 0
		}
		wait := r.backoff()
		cfg.Log.Warn("trying again", "after", wait.Round(time.Millisecond), "err", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

func address(text, provider string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	if provider != "" {
		q := u.Query()
		q.Set("provider", provider)
		u.RawQuery = q.Encode()
	}
	return u.String(), nil
}

type runner struct {
	cfg      Config
	target   string
	name     string // of the server, for people
	attempts int
	known    bool // the bridge has taken a connection

	mu sync.Mutex // guards Stderr
}

// backoff doubles from backoffStart to backoffCap; each wait is drawn from the upper
// half.
func (r *runner) backoff() time.Duration {
	d := min(backoffStart<<min(r.attempts, 10), backoffCap)
	r.attempts++
	return d/2 + rand.N(d/2)
}

// once makes one connection and runs one server on it, until either ends.
func (r *runner) once(ctx context.Context) error {
	ws, limit, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer ws.CloseNow() //nolint:errcheck // it has been closed where that matters
	hello, err := first(ctx, ws)
	if err != nil {
		return r.refused(err)
	}
	s, err := startServer(r.cfg.Supervisor, r.cfg.Command)
	if err != nil {
		return err
	}
	r.cfg.Log.Info("server started", "command", r.name, "pid", s.pid())
	linked, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	var wg sync.WaitGroup
	wg.Go(func() { r.show(s.stderr, " | ") })
	wg.Go(func() {
		if err := r.up(linked, ws, s.stdout, s.stdin, limit); err != nil {
			cut(err)
			return
		}
		select { // its last words have been passed on
		case <-s.ended:
			cut(errEnded)
		case <-time.After(closedGrace):
			cut(errClosed)
		}
	})
	wg.Go(func() { cut(r.down(linked, ws, hello, s.stdin)) })
	wg.Go(func() { cut(keep(linked, ws)) })
	<-linked.Done()
	s.stop()
	cause := context.Cause(linked)
	// A server without its output is over: it can say nothing any more, or has ended and
	// left processes that take their time.
	over := errors.Is(cause, errEnded) || errors.Is(cause, errClosed)
	if ctx.Err() != nil || over {
		_ = ws.Close(websocket.StatusNormalClosure, "") // the bridge may be gone
	} else {
		_ = ws.CloseNow()
	}
	late := time.AfterFunc(closedGrace, s.forget) // whoever holds the outputs still is not waited for
	wg.Wait()
	late.Stop()
	s.forget()
	if over {
		return &Exit{s.status}
	}
	return r.refused(cause)
}

// refused is what the end of a connection means.
func (r *runner) refused(err error) error {
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		if what, ok := finalCodes[e.Code]; ok {
			if e.Reason != "" {
				what += ": " + e.Reason
			}
			return &Refused{int(e.Code), what}
		}
	}
	return err
}

// dial makes one attempt, and tells how long a message may be.
func (r *runner) dial(ctx context.Context) (*websocket.Conn, int, error) {
	header := http.Header{"User-Agent": {"mcpbridge-run"}}
	if r.cfg.Token != "" {
		header.Set("Authorization", "Bearer "+r.cfg.Token)
	}
	attempt, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	//nolint:bodyclose // Dial says that nobody need close it
	ws, resp, err := websocket.Dial(attempt, r.target, &websocket.DialOptions{
		HTTPClient: r.cfg.HTTP, HTTPHeader: header, Subprotocols: []string{"mcp"},
	})
	if err != nil {
		return nil, 0, r.unreachable(resp, err)
	}
	if ws.Subprotocol() != "mcp" {
		_ = ws.Close(websocket.StatusPolicyViolation, "dialect mcp is needed")
		return nil, 0, &Refused{resp.StatusCode, "the server at this URL does not speak dialect mcp"}
	}
	r.known = true
	ws.SetReadLimit(readLimit)
	limit := defaultFrame
	if n, err := strconv.Atoi(resp.Header.Get(headerMaxFrame)); err == nil && n > 0 {
		limit = n
	}
	return ws, limit, nil
}

func (r *runner) unreachable(resp *http.Response, err error) error {
	if resp == nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			return e.Err // its own text repeats the URL, which may carry a credential
		}
		return err
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return &Refused{resp.StatusCode, "the bridge refused: " + http.StatusText(resp.StatusCode)}
	case http.StatusNotFound:
		if !r.known { // later it may be a router that does not know yet
			return &Refused{resp.StatusCode, "there is no such bridge"}
		}
	}
	return fmt.Errorf("the bridge answered %s", resp.Status)
}

// keep sends pings, so that a bridge that is gone is noticed.
func keep(ctx context.Context, ws *websocket.Conn) error {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		ping, cancel := context.WithTimeout(ctx, pingEvery)
		err := ws.Ping(ping)
		cancel()
		if err != nil {
			return fmt.Errorf("the bridge has gone silent: %w", err)
		}
	}
}

// first waits for the bridge's first message: it speaks first, and until it has, it may
// still refuse the connection, for which no server need be started.
func first(ctx context.Context, ws *websocket.Conn) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, frame, err := ws.Read(ctx)
	return frame, err
}

// down passes the bridge's messages to the server, a line each, from the first on.
func (r *runner) down(ctx context.Context, ws *websocket.Conn, frame []byte, stdin io.Writer) error {
	for {
		for i, c := range frame { // only as white space between tokens
			if c == '\n' || c == '\r' {
				frame[i] = ' '
			}
		}
		if _, err := stdin.Write(append(frame, '\n')); err != nil {
			<-ctx.Done() // the server has ended, or closed its input: its end tells
			return ctx.Err()
		}
		kind := websocket.MessageBinary
		for kind != websocket.MessageText {
			var err error
			if kind, frame, err = ws.Read(ctx); err != nil {
				return err
			}
		}
	}
}

// write writes one frame.
func write(ctx context.Context, ws *websocket.Conn, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout+time.Duration(len(frame)/writePace)*time.Second)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, frame)
}
