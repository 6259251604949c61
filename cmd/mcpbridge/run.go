package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"mcpbridge/clients/stdio"
)

type runCmd struct {
	URL       string   `name:"url" required:"" placeholder:"URL" help:"The bridge's provider URL."`
	Token     string   `placeholder:"TOKEN" help:"The bridge's provider token. Better given as the environment variable: others can see a command's flags."`
	Provider  string   `placeholder:"NAME" help:"The name under which the tools are kept. Default: the server's own."`
	Once      bool     `help:"End when the server does, with its exit status, instead of starting it again."`
	LogLevel  string   `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error. Default: ${default}."`
	LogFormat string   `enum:"text,json" default:"text" help:"text or json. Default: ${default}."`
	Command   []string `arg:"" name:"command" help:"The MCP server and its arguments, behind \"--\"."`
}

// Validate implements kong's interface.
func (c *runCmd) Validate() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || !strings.Contains(" ws wss http https ", " "+u.Scheme+" ") {
		return fmt.Errorf("--url is %q, want a URL of ws, wss, http or https", c.URL)
	}
	if strings.IndexFunc(c.Provider, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 || len(c.Provider) > 128 {
		return fmt.Errorf("--provider is %q, want at most 128 characters of printable ASCII", c.Provider)
	}
	return nil
}

// Run runs the server until ctx ends.
func (c *runCmd) Run(ctx context.Context, p *Program) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	err = stdio.Run(ctx, stdio.Config{
		URL: c.URL, Token: c.Token, Provider: c.Provider, Command: c.Command, Once: c.Once,
		Supervisor: []string{self, "supervise", "--"},
		Stderr:     p.Stderr, Log: newLogger(p.Stderr, c.LogLevel, c.LogFormat),
	})
	if e, ok := errors.AsType[*stdio.Exit](err); ok {
		return statusError(e.Status)
	}
	return err
}

// superviseCmd is the process that ends a server when its parent is gone.
type superviseCmd struct {
	Command []string `arg:"" name:"command"`
}

// Run is the whole of a process: it does not return.
func (c *superviseCmd) Run() error { return statusError(stdio.Supervise(c.Command)) }
