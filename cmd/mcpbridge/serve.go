package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"mcpbridge/api"
	"mcpbridge/session"
	"mcpbridge/shard"
	"mcpbridge/store"
)

type serveCmd struct {
	serveConfig `embed:""`
	Demo        bool `help:"Also run the demo provider, call a tool through it, and print what clients need. With --open."`
}

// Validate implements kong's interface.
func (c *serveCmd) Validate() error {
	if c.Demo && !c.Open {
		return errors.New("--demo needs --open")
	}
	return errors.Join(c.check(), c.Limits.check())
}

// Run serves until ctx ends. The parts start from the store upwards and stop in
// reverse.
func (c *serveCmd) Run(ctx context.Context, p *Program) error {
	log := newLogger(p.Stderr, c.LogLevel, c.LogFormat)
	adminText, err := c.adminText()
	if err != nil {
		return err
	}
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	if c.PublicURL == "" {
		c.PublicURL = "http://" + listener.Addr().String()
	}

	stopDebug, err := debugServer(ctx, c.Debug, log)
	if err != nil {
		return err
	}
	defer stopDebug()

	st, err := store.OpenBolt(c.Data, store.BoltOptions{}) //nolint:contextcheck // opening a file has no context to end it
	if err != nil {
		return err
	}
	defer func() {
		if err := st.Close(); err != nil {
			log.Error("closing the store", "err", err)
		}
	}()
	if c.Open {
		log.Warn("--open: no authentication; every program on this machine may use every bridge")
	} else {
		secret, minted, err := provideAdminToken(ctx, st, adminText, time.Now())
		if err != nil {
			return err
		}
		if minted {
			fmt.Fprintf(p.Stderr, "Admin token, shown this once; keep it: %s\n", secret.Reveal())
		}
	}

	c.Limits.Memory = max(byteSize(budgetMemory(c.Limits.Memory)), c.Limits.leastMemory())
	host, _ := os.Hostname()
	dir, err := shard.Open(ctx, shard.Config{
		Store:         st,
		Limits:        c.Limits.limits(),
		Policy:        c.policy(),
		Owner:         fmt.Sprintf("%s/%d", host, os.Getpid()),
		CreateMissing: c.Open,
		Log:           log,
	})
	if err != nil {
		return err
	}
	defer dir.Close()

	handler, err := c.handler(ctx, st, dir, log)
	if err != nil {
		return err
	}
	// A small server's live memory is a few MiB, and the collector would run every
	// few MiB more: a tenth of a small call's cost. This much, never touched and so
	// never resident, makes it wait.
	headroom := make([]byte, 16<<20)
	defer runtime.KeepAlive(headroom)
	trimming, stop := context.WithCancel(context.WithoutCancel(ctx))
	var trimmed sync.WaitGroup
	trimmed.Go(func() { trim(trimming, dir.Stats()) })
	defer trimmed.Wait()
	defer stop()
	return c.serve(ctx, p, listener, handler, dir, log)
}

// policy is what a bridge's own leaves open: who runs the bridge for themselves alone
// writes the tools too.
func (c *serveCmd) policy() session.Policy {
	if c.Open {
		return session.Policy{Definitions: session.Trust}
	}
	return session.Policy{}
}

// handler is every route of the server.
func (c *serveCmd) handler(ctx context.Context, st *store.Bolt, dir *shard.Directory, log *slog.Logger) (*api.Server, error) {
	proxies, err := c.proxies()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	return api.New(ctx, api.Config{
		Store:          st,
		Directory:      dir,
		Backup:         st.Backup,
		PublicURL:      c.PublicURL,
		Loopback:       isLoopback(host),
		Open:           c.Open,
		CompatRooms:    c.Open || c.Rooms,
		AllowOrigins:   c.Origins,
		TrustedProxies: proxies,
		Limits:         c.Limits.limits(),
		Version:        buildVersion(),
		Log:            log,
	})
}

// serve answers requests until ctx ends or a part fails, and then drains: it
// returns once every request has been answered, or cut off after the grace.
func (c *serveCmd) serve(ctx context.Context, p *Program, listener net.Listener, handler *api.Server, dir *shard.Directory, log *slog.Logger) error {
	// Requests outlive the signal that ends ctx, and end with base.
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	leaving := takesLeave(server)
	parts, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) { // of no use any more once we leave
			fail(fmt.Errorf("serving: %w", err))
		}
	})
	log.Info("serving", "listen", listener.Addr().String(), "url", c.PublicURL, "data", c.Data, "version", buildVersion())
	if c.Demo {
		wg.Go(func() {
			if err := show(parts, p, c.PublicURL, listener.Addr().String(), filepath.Join(c.Data, "demo-counter"), log); err != nil {
				fail(fmt.Errorf("demo: %w", err))
			}
		})
	}

	<-parts.Done()
	cause := context.Cause(parts)
	log.Info("stopping", "cause", cause, "grace", c.Grace)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Grace)
	defer cancel()
	handler.Drain()
	if err := leaving.leave(grace, c.Notice, listener); err != nil {
		log.Warn("calls are cut off", "err", err)
	}
	// Providers stay for as long as a request may want them.
	polite, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	handler.Close(polite)
	dir.Close() // what still runs is answered: its outcome is unknown
	leaving.part(polite)
	cut(session.ErrShutdown)
	_ = server.Close()
	wg.Wait()
	if ctx.Err() != nil { // we were told to
		return nil
	}
	return cause
}

// listen opens the listener, and checks that --open ended up on loopback.
func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	listener, err := listenTCP(ctx, c.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another program: end that one, or choose another address with --listen HOST:PORT", c.Listen)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not listen on %s: choose a port above 1023 with --listen HOST:PORT", c.Listen)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w", c.Listen, err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); c.Open && (!ok || !tcp.IP.IsLoopback()) {
		_ = listener.Close()
		return nil, usagef("--open needs a loopback address: --listen %s is %s", c.Listen, listener.Addr())
	}
	return listener, nil
}

func newLogger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // one of four words
	options := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
