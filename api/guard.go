package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guard refuses requests that a web page of somebody else's may have made a
// browser send (DNS rebinding, MCP 2025-11-25 basic/transports, "Security
// Warning").
type guard struct {
	public   *url.URL
	allowed  []string // origins
	loopback bool     // the listener is on loopback
}

// check tells whether a request's Origin and Host are acceptable.
func (g *guard) check(r *http.Request) bool {
	if g.loopback && !g.knownHost(r.Host) {
		return false
	}
	origins := r.Header["Origin"]
	switch len(origins) {
	case 0:
		return true
	case 1:
		return g.origin(origins[0])
	default:
		return false
	}
}

func (g *guard) knownHost(host string) bool {
	return strings.EqualFold(host, g.public.Host) || isLoopback(host)
}

// isLoopback tells whether a host, with or without a port, is this machine's own.
func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func (g *guard) origin(text string) bool {
	if slices.ContainsFunc(g.allowed, func(o string) bool { return strings.EqualFold(o, text) }) {
		return true
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return false
	}
	if strings.EqualFold(u.Scheme, g.public.Scheme) && strings.EqualFold(u.Host, g.public.Host) {
		return true
	}
	if !g.loopback {
		return false
	}
	switch u.Scheme {
	case "http", "https":
		return isLoopback(u.Host)
	case "chrome-extension", "moz-extension":
		return true
	}
	return false
}

// What a browser's MCP client may send and read.
const (
	corsMethods = "GET, POST, DELETE, OPTIONS"
	corsHeaders = "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
	corsExpose  = "Mcp-Session-Id, WWW-Authenticate"
)

// cors lets a page whose origin is acceptable read the answer, and answers its
// preflight. There are no cookies, so the origin alone gives it nothing. It tells
// whether the request was a preflight.
func cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", corsExpose)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	headers := []string{corsHeaders}
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		// Their names are the tools' own, so they cannot be listed.
		if name = strings.TrimSpace(name); len(name) < 128 && strings.HasPrefix(strings.ToLower(name), "mcp-param-") {
			headers = append(headers, name)
		}
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", strings.Join(headers, ", "))
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}
