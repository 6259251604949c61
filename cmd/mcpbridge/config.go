package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"mcpbridge/session"
)

// serveConfig is everything the server can be told. Each field is a flag and an
// environment variable, MCPBRIDGE_ and the flag's name in capitals.
type serveConfig struct {
	Listen    string   `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen. Default: ${default}."`
	Data      string   `default:"./data" type:"path" placeholder:"DIR" help:"Directory of the store, made with mode 0700. Default: ./data."`
	PublicURL string   `name:"public-url" placeholder:"URL" help:"How the world reaches the server; every URL handed out begins with it. Default on a loopback address: http://HOST:PORT."`
	Open      bool     `help:"No authentication: anybody may use any bridge, which is made on first use. On a loopback address only."`
	Rooms     bool     `name:"compat-rooms" help:"Serve the room routes of mcp-bridge-cf (/new, /mcp?room=, /ws/extension?room=), as --open does."`
	Origins   []string `name:"allow-origin" placeholder:"ORIGIN" help:"A web origin that may use the server, such as https://app.example.com. May be repeated."`
	Proxies   []string `name:"trusted-proxy" placeholder:"CIDR" help:"Network of a reverse proxy whose X-Forwarded-For is believed. May be repeated."`
	TokenFile string   `name:"admin-token-file" type:"path" placeholder:"FILE" help:"File of the admin token, at least 32 characters; or give the token itself as MCPBRIDGE_ADMIN_TOKEN. Without either one is made at the first start and printed once."`

	Debug     string        `name:"debug-listen" placeholder:"HOST:PORT" help:"Serve the profiles of net/http/pprof there, under /debug/pprof/. On a loopback address only."`
	LogLevel  string        `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error. Default: ${default}."`
	LogFormat string        `enum:"text,json" default:"text" help:"text or json. Default: ${default}."`
	Notice    time.Duration `name:"shutdown-notice" default:"250ms" placeholder:"DURATION" help:"How long a server that is told to stop answers new requests with 503, and /readyz with no, before it takes no more connections. Default: ${default}."`
	Grace     time.Duration `name:"shutdown-grace" default:"10s" placeholder:"DURATION" help:"How long running calls may take to end once the server is told to stop. Default: ${default}."`

	Limits limitFlags `embed:"" group:"Limits"`
}

// limitFlags is session.Limits as flags.
type limitFlags struct {
	Calls         int           `name:"max-calls" default:"${calls}" placeholder:"N" help:"Calls in flight on a bridge. Default: ${default}."`
	Tools         int           `name:"max-tools" default:"${tools}" placeholder:"N" help:"Tools on a bridge. Default: ${default}."`
	Providers     int           `name:"max-providers" default:"${providers}" placeholder:"N" help:"Providers known to a bridge. Default: ${default}."`
	Instances     int           `name:"max-instances" default:"${instances}" placeholder:"N" help:"Connections of one provider. Default: ${default}."`
	Streams       int           `name:"max-streams" default:"${streams}" placeholder:"N" help:"MCP streams on a bridge. Default: ${default}."`
	Sessions      int           `name:"max-sessions" default:"${sessions}" placeholder:"N" help:"MCP sessions in memory; others come back when they are used. Default: ${default}."`
	Registrations int           `name:"max-registrations" default:"${registrations}" placeholder:"N" help:"Registrations of one connection that are not yet durable. Default: ${default}."`
	Tasks         int           `name:"max-tasks" default:"${tasks}" placeholder:"N" help:"Tasks kept on a bridge. Default: ${default}."`
	Mailbox       int           `name:"mailbox" default:"${mailbox}" placeholder:"N" help:"Commands that wait for a bridge's turn. Default: ${default}."`
	Frame         byteSize      `name:"max-frame" default:"${frame}" placeholder:"SIZE" help:"A provider's message. Default: ${default}."`
	Body          byteSize      `name:"max-body" default:"${body}" placeholder:"SIZE" help:"An MCP request's body. Default: ${default}."`
	Tool          byteSize      `name:"max-tool" default:"${tool}" placeholder:"SIZE" help:"One tool definition. Default: ${default}."`
	Catalog       byteSize      `name:"max-catalog" default:"${catalog}" placeholder:"SIZE" help:"All tool definitions of a bridge together. Default: ${default}."`
	Outbox        byteSize      `name:"max-outbox" default:"${outbox}" placeholder:"SIZE" help:"What waits to be written to one connection. Default: ${default}."`
	TaskBytes     byteSize      `name:"max-task-bytes" default:"${taskbytes}" placeholder:"SIZE" help:"All tasks of a bridge together. Default: ${default}."`
	Events        byteSize      `name:"max-events" default:"${events}" placeholder:"SIZE" help:"Progress and log that wait for one call's client. Default: ${default}."`
	Memory        byteSize      `name:"memory-budget" default:"0" placeholder:"SIZE" help:"All messages under way in the server. Default: a quarter of the memory there is."`
	MessageDepth  int           `name:"max-message-depth" default:"${messagedepth}" placeholder:"N" help:"Nesting of any message. Default: ${default}."`
	SchemaDepth   int           `name:"max-schema-depth" default:"${schemadepth}" placeholder:"N" help:"Nesting of a tool's schemas. Default: ${default}."`
	CallTimeout   time.Duration `name:"call-timeout" default:"${calltimeout}" placeholder:"DURATION" help:"Deadline of a call that asks for none. Default: ${default}."`
	CallMax       time.Duration `name:"call-timeout-max" default:"${callmax}" placeholder:"DURATION" help:"Longest deadline that may be asked for. Default: ${default}."`
	Park          time.Duration `name:"park" default:"${park}" placeholder:"DURATION" help:"How long a call waits for its provider to come back, where its client hears no progress. Default: ${default}."`
	TaskAfter     time.Duration `name:"task-after" default:"${taskafter}" placeholder:"DURATION" help:"How long a call lasts before it becomes a task, for clients that know tasks. Default: ${default}."`
	TaskLife      time.Duration `name:"task-life" default:"${tasklife}" placeholder:"DURATION" help:"How long a task is kept, from its start. Default: ${default}."`
	Resume        time.Duration `name:"resume-grace" default:"${resume}" placeholder:"DURATION" help:"How long calls wait for a provider that lost its connection to resume. Default: ${default}."`
	Write         time.Duration `name:"write-timeout" default:"${write}" placeholder:"DURATION" help:"One write to a peer. Default: ${default}."`
	Ping          time.Duration `name:"ping" default:"${ping}" placeholder:"DURATION" help:"Between pings to a provider. Default: ${default}."`
	Idle          time.Duration `name:"idle" default:"${idle}" placeholder:"DURATION" help:"Unused before a bridge hibernates. Default: ${default}."`
	Messages      peerLimit     `name:"max-messages" default:"auto" placeholder:"N" help:"Messages and pings a second on one provider's connection, the results of calls aside; a registration counts as 20. Twice as many at once. Default: ${messages}."`
	TokenRequests peerLimit     `name:"max-token-requests" default:"auto" placeholder:"N" help:"MCP requests a second with one token, twice as many at once. Default: ${tokenrequests}${peers}"`
	AddrRequests  peerLimit     `name:"max-address-requests" default:"auto" placeholder:"N" help:"MCP requests a second from one address, twice as many at once. Default: ${addressrequests}${peers}"`
	TokenDials    peerLimit     `name:"max-token-dials" default:"auto" placeholder:"N" help:"Providers' connections begun a second with one token, ten times as many at once. Default: ${tokendials}${peers}"`
	AddrDials     peerLimit     `name:"max-address-dials" default:"auto" placeholder:"N" help:"Providers' connections begun a second from one address, ten times as many at once. Default: ${addressdials}${peers}"`
	TokenConns    peerLimit     `name:"max-token-providers" default:"auto" placeholder:"N" help:"Providers' connections with one token. Default: ${tokenproviders}${peers}"`
	AddrConns     peerLimit     `name:"max-address-providers" default:"auto" placeholder:"N" help:"Providers' connections from one address. Default: ${addressproviders}${peers}"`
	AddrStreams   peerLimit     `name:"max-address-streams" default:"auto" placeholder:"N" help:"MCP streams to one address. Default: ${addressstreams}${peers}"`
	AddrFailures  peerLimit     `name:"max-address-failures" default:"auto" placeholder:"N" help:"Tokens a second from one address that are not valid, sixty times as many at once. Default: ${addressfailures}${peers}"`
	Retain        time.Duration `name:"retain" default:"${retain}" placeholder:"DURATION" help:"How long a departed provider's tools stay listed, if it does not say. Default: ${default}."`
}

// defaults gives the flags the limits' own defaults.
func defaults() kong.Vars {
	l := session.Limits{}.WithDefaults()
	count, duration := strconv.Itoa, shortDuration
	size := func(n int) string { return byteSize(n).String() }
	return kong.Vars{
		"calls": count(l.Calls), "tools": count(l.Tools), "providers": count(l.Providers),
		"instances": count(l.Instances), "streams": count(l.Streams), "sessions": count(l.MCPSessions), "registrations": count(l.Registrations),
		"tasks": count(l.Tasks), "taskbytes": size(l.TaskBytes), "taskafter": duration(l.TaskAfter),
		"tasklife": duration(l.TaskLife), "park": duration(l.Park), "resume": duration(l.ResumeGrace),
		"mailbox": count(l.Mailbox), "messagedepth": count(l.MessageDepth), "schemadepth": count(l.SchemaDepth),
		"frame": size(l.FrameBytes), "body": size(l.BodyBytes), "tool": size(l.ToolBytes),
		"catalog": size(l.CatalogBytes), "outbox": size(l.OutboxBytes), "events": size(l.EventBytes),
		"calltimeout": duration(l.CallTimeout), "callmax": duration(l.CallTimeoutMax), "write": duration(l.WriteTimeout),
		"messages": count(l.Messages), "tokenrequests": count(l.TokenRequests), "addressrequests": count(l.AddressRequests),
		"tokendials": count(l.TokenDials), "addressdials": count(l.AddressDials), "tokenproviders": count(l.TokenProviders),
		"addressproviders": count(l.AddressProviders), "addressstreams": count(l.AddressStreams), "addressfailures": count(l.AddressFailures),
		"peers": "; off where only this machine reaches the server.",
		"ping":  duration(l.Ping), "idle": duration(l.IdleAfter), "retain": duration(l.Retain),
	}
}

// limits is what the flags say.
func (f *limitFlags) limits() session.Limits {
	return session.Limits{
		Mailbox: f.Mailbox, Calls: f.Calls, Providers: f.Providers, Instances: f.Instances,
		Tools: f.Tools, Streams: f.Streams, MCPSessions: f.Sessions, Registrations: f.Registrations,
		Tasks: f.Tasks, TaskBytes: int(f.TaskBytes), TaskAfter: f.TaskAfter, TaskLife: f.TaskLife, ResumeGrace: f.Resume, Park: f.Park,
		FrameBytes: int(f.Frame), BodyBytes: int(f.Body), ToolBytes: int(f.Tool),
		CatalogBytes: int(f.Catalog), OutboxBytes: int(f.Outbox), EventBytes: int(f.Events), MemoryBytes: int(f.Memory),
		MessageDepth: f.MessageDepth, SchemaDepth: f.SchemaDepth,
		CallTimeout: f.CallTimeout, CallTimeoutMax: f.CallMax, WriteTimeout: f.Write,
		Ping: f.Ping, IdleAfter: f.Idle, Retain: f.Retain,
		Messages: int(f.Messages), TokenRequests: int(f.TokenRequests), AddressRequests: int(f.AddrRequests),
		TokenDials: int(f.TokenDials), AddressDials: int(f.AddrDials), TokenProviders: int(f.TokenConns),
		AddressProviders: int(f.AddrConns), AddressStreams: int(f.AddrStreams), AddressFailures: int(f.AddrFailures),
	}
}

// leastMemory lets the largest message in: large requests have half of the budget.
func (f *limitFlags) leastMemory() byteSize { return 4 * max(f.Frame, f.Body) }

// check finds every fault at once; each names its flag and the bound.
func (f *limitFlags) check() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	v := reflect.ValueOf(*f)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("name")
		switch n := v.Field(i).Interface().(type) {
		case int:
			fault(n < 1, "--%s is %d, want at least 1", name, n)
		case byteSize:
			if name == "memory-budget" {
				break
			}
			fault(n < 1<<10 || n > 1<<30, "--%s is %v, want 1KiB to 1GiB", name, n)
		case time.Duration:
			fault(n < time.Second, "--%s is %v, want at least 1s", name, n)
		}
	}
	fault(f.CallTimeout > f.CallMax, "--call-timeout is %v, more than the %v of --call-timeout-max", f.CallTimeout, f.CallMax)
	fault(f.Tool > f.Frame, "--max-tool is %v, more than the %v of --max-frame", f.Tool, f.Frame)
	fault(f.Frame > f.Outbox, "--max-frame is %v, more than the %v of --max-outbox", f.Frame, f.Outbox)
	fault(f.Memory != 0 && f.Memory < f.leastMemory(), "--memory-budget is %v, want at least the %v that four of the largest messages have", f.Memory, f.leastMemory())
	fault(f.SchemaDepth > f.MessageDepth, "--max-schema-depth is %d, more than the %d of --max-message-depth", f.SchemaDepth, f.MessageDepth)
	return errors.Join(errs...)
}

// check finds what is wrong with the configuration, or fills in what follows
// from the rest. Its errors are for exit status 2.
func (c *serveConfig) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return usagef("--listen is %q, want HOST:PORT such as 127.0.0.1:8080", c.Listen)
	}
	loopback := isLoopback(host)
	switch {
	case c.Open && !loopback:
		return usagef("--open turns authentication off, so it needs a loopback address: --listen is %s, want 127.0.0.1:PORT", c.Listen)
	case c.PublicURL == "" && !loopback:
		return usagef("--listen %s is reached from other machines: say how with --public-url, such as https://bridge.example.com", c.Listen)
	case c.Notice < 0:
		return usagef("--shutdown-notice is %v, want 0 or more", c.Notice)
	case c.Grace < 0:
		return usagef("--shutdown-grace is %v, want 0 or more", c.Grace)
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return usagef("--public-url is %q, want http or https, a host, and nothing after the path", c.PublicURL)
		}
		c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	}
	for _, origin := range c.Origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
			return usagef("--allow-origin is %q, want scheme://host such as https://app.example.com", origin)
		}
	}
	_, err = c.proxies()
	return err
}

// proxies parses the networks of trusted proxies; an address alone is a network
// of one.
func (c *serveConfig) proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range c.Proxies {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		} else if addr, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
		} else {
			return nil, usagef("--trusted-proxy is %q, want a network such as 10.0.0.0/8", text)
		}
	}
	return all, nil
}

// isLoopback tells whether only this machine can reach the host.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// byteSize is a number of bytes, written with or without a unit: 4194304, 4MiB,
// 4MB.
type byteSize int64

var (
	byteSizeType = reflect.TypeFor[byteSize]()

	units = []struct {
		name string
		n    int64
	}{
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"GB", 1e9},
		{"MB", 1e6},
		{"KB", 1e3},
		{"kB", 1e3},
		{"B", 1},
		{"", 1},
	}
)

// String is the size in the largest unit that divides it.
func (b byteSize) String() string {
	for _, u := range units[:3] {
		if b >= byteSize(u.n) && int64(b)%u.n == 0 {
			return strconv.FormatInt(int64(b)/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func parseByteSize(text string) (byteSize, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.n {
			break
		}
		return byteSize(n * u.n), nil
	}
	return 0, fmt.Errorf("%q is not a size: want bytes, or a number with KiB, MiB or GiB", text)
}

// decodeByteSize is kong's reader of the type.
func decodeByteSize(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("size", &text); err != nil {
		return err
	}
	n, err := parseByteSize(text)
	if err != nil {
		return err
	}
	target.SetInt(int64(n))
	return nil
}

// shortDuration is time.Duration.String without the zero minutes and seconds.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
