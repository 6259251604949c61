package provider

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// Config is what a Provider needs. The zero value of a field is its default.
type Config struct {
	// URL is the bridge's provider URL: ws, wss, http or https. Required.
	URL string
	// Token is sent as a bearer credential; empty sends none.
	Token string
	// Provider is the stable name of this provider on its bridge, 1 to 128
	// bytes of printable ASCII: the same each time the program starts. Required.
	Provider string
	// Title and Version are for people.
	Title, Version string
	// Instance names this process among several of one provider; default a
	// random one.
	Instance string
	// Retain is how long the tools stay listed once the last instance has left,
	// in whole seconds. Default: the bridge's own (24 h); negative: not at all.
	Retain time.Duration
	// Tools is the first set, as for SetTools. Nil registers nothing until
	// SetTools is called.
	Tools []Tool
	// Registered, if set, is told what the bridge made of the tools, each time
	// it has acknowledged them: at every connection and every SetTools. It must
	// not block.
	Registered func(Registration)
	// MaxCalls bounds the handlers that run at once; default 256. The bridge is
	// told of each call beyond it with an error result.
	MaxCalls int
	// HTTP dials the bridge; default http.DefaultClient. Its Timeout, if set,
	// bounds the handshake, which ends after 10 s in any case.
	HTTP *http.Client
	// Log gets connections, refusals and dropped answers; default slog.Default.
	Log *slog.Logger
}

// checked is the configuration with its defaults filled in.
func (c Config) checked() (Config, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		// The text of err repeats the URL, which may carry a credential.
		return c, errors.New("provider: URL does not parse")
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return c, fmt.Errorf("provider: URL scheme %q is none of ws, wss, http, https", u.Scheme)
	}
	if u.Host == "" {
		return c, errors.New("provider: URL names no host")
	}
	if c.Provider == "" {
		return c, errors.New("provider: Config.Provider is empty")
	}
	if c.Instance == "" {
		c.Instance = rand.Text()
	}
	if c.MaxCalls <= 0 {
		c.MaxCalls = 256
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Log = c.Log.With("provider", c.Provider)
	return c, nil
}

// hello is the first message of a connection. resume is the token of the last
// welcome, or empty.
func (c *Config) hello(resume string) []byte {
	var o object
	o.text("type", "hello")
	o.raw("protocol", []byte("1"))
	o.text("provider", c.Provider)
	o.optional("title", c.Title)
	o.optional("version", c.Version)
	o.text("instance", c.Instance)
	o.optional("resume", resume)
	if c.Retain != 0 {
		o.number("retainSeconds", max(0, c.Retain.Truncate(time.Second).Seconds()))
	}
	return o.end()
}
