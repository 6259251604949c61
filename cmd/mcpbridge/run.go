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
	URL       string   `name:"url" placeholder:"URL" help:"The bridge's provider URL, as \"mcpbridge bridge create\" prints it: wss://HOST/b/BRIDGE/provider."`
	Pair      string   `placeholder:"CODE" help:"A pairing code of \"mcpbridge pair\", instead of --url and --token. What it is swapped for is kept for the user's later runs with that --url."`
	Server    string   `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server that made the pairing code. Default: ${default}."`
	Token     string   `placeholder:"TOKEN" help:"The bridge's provider token. Better given as the environment variable: others can see a command's flags."`
	Provider  string   `placeholder:"NAME" help:"The name under which the bridge keeps the tools. Default: what the server calls itself."`
	Once      bool     `help:"End with the server, with its exit status, instead of starting it again. Lost connections are still made anew, with a new server."`
	LogLevel  string   `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error. Default: ${default}."`
	LogFormat string   `enum:"text,json" default:"text" help:"text or json. Default: ${default}."`
	Command   []string `arg:"" name:"command" help:"The MCP server and its arguments, after \"--\"."`
}

// Validate implements kong's interface.
func (c *runCmd) Validate() error {
	if (c.URL == "") == (c.Pair == "") {
		return errors.New("want --url or --pair, one of them")
	}
	if c.Pair != "" && c.Token != "" {
		return errors.New("--pair brings a token of its own: want no --token")
	}
	u, err := url.Parse(c.URL)
	if c.Pair != "" {
		u, err = url.Parse("ws://later") // the answer says
	}
	if err != nil || u.Host == "" || !strings.Contains(" ws wss http https ", " "+u.Scheme+" ") {
		return fmt.Errorf("--url is %q, want a URL of ws, wss, http or https", c.URL)
	}
	if strings.IndexFunc(c.Provider, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 || len(c.Provider) > 128 {
		return fmt.Errorf("--provider is %q, want at most 128 characters of printable ASCII", c.Provider)
	}
	return nil
}

// Help implements kong's interface.
func (c *runCmd) Help() string {
	return `The server's tools, prompts and resources can be used at the bridge's MCP URL for as long as this runs. It starts the server again when it ends, and connects again when the connection is lost, each time with a new process: what the server kept in memory is gone then. What the server prints beside the protocol is shown on stderr. Ctrl-C ends the server and everything that it started.

Example:

  MCPBRIDGE_TOKEN=… mcpbridge run --url wss://bridge.example.com/b/BRIDGE/provider -- npx -y @modelcontextprotocol/server-everything stdio`
}

// Run runs the server until ctx ends.
func (c *runCmd) Run(ctx context.Context, p *Program) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := c.credential(ctx, p); err != nil {
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

// credential gets the provider token: for a pairing code, or the one that an earlier code
// was swapped for.
func (c *runCmd) credential(ctx context.Context, p *Program) (err error) {
	if c.Pair == "" {
		if c.Token == "" {
			c.Token, err = loadPaired(c.URL)
		}
		return err
	}
	got, err := swap(ctx, c.Server, c.Pair)
	if err != nil {
		return err
	}
	c.URL, c.Token = got.ProviderURL, got.Token
	if err := got.save(); err != nil {
		fmt.Fprintf(p.Stderr, "mcpbridge: paired, but the token cannot be kept for later runs: %v\n", err)
		return nil
	}
	fmt.Fprintf(p.Stderr, "Paired; from now on: mcpbridge run --url %s -- …\n", oneLine(c.URL, 500))
	return nil
}

// superviseCmd is the process that ends a server when its parent is gone.
type superviseCmd struct {
	Command []string `arg:"" name:"command"`
}

// Run is the whole of a process: it does not return.
func (c *superviseCmd) Run() error { return statusError(stdio.Supervise(c.Command)) }
