package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"mcpbridge/api/limit"
	"mcpbridge/session"
)

// peers keeps each token and each address to its share.
type peers struct {
	limits  session.Limits // with defaults
	proxies []netip.Prefix // whose X-Forwarded-For is believed
	local   bool           // only this machine reaches the server

	tokenRequests, tokenDials     *limit.Rates[string]
	addressRequests, addressDials *limit.Rates[netip.Addr]
	addressFailures               *limit.Rates[netip.Addr]
	tokenProviders                *limit.Counts[string]
	addressProviders              *limit.Counts[netip.Addr]
	addressStreams                *limit.Counts[netip.Addr]
}

// How much of a rate, in seconds, a peer may take at once.
const (
	requestBurst = 2
	dialBurst    = 10
	failureBurst = 60
)

func newPeers(l session.Limits, proxies []netip.Prefix, local bool) *peers {
	return &peers{
		limits: l, proxies: proxies, local: local,
		tokenRequests:    limit.NewRates[string](l.TokenRequests, requestBurst*l.TokenRequests),
		tokenDials:       limit.NewRates[string](l.TokenDials, dialBurst*l.TokenDials),
		addressRequests:  limit.NewRates[netip.Addr](l.AddressRequests, requestBurst*l.AddressRequests),
		addressDials:     limit.NewRates[netip.Addr](l.AddressDials, dialBurst*l.AddressDials),
		addressFailures:  limit.NewRates[netip.Addr](l.AddressFailures, failureBurst*l.AddressFailures),
		tokenProviders:   limit.NewCounts[string](l.TokenProviders),
		addressProviders: limit.NewCounts[netip.Addr](l.AddressProviders),
		addressStreams:   limit.NewCounts[netip.Addr](l.AddressStreams),
	}
}

// address is where a request came from: the nearest peer that is no trusted proxy. An
// IPv6 address stands for its /64, which one household or machine has for itself. False
// when it cannot be known: behind a proxy of this machine's own that is not trusted, all
// the world would be one.
func (p *peers) address(r *http.Request) (netip.Addr, bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	addr := peer.Addr().Unmap()
	if p.trusted(addr) {
		addr = p.forwarded(addr, r.Header["X-Forwarded-For"])
	}
	if addr.IsLoopback() && !p.local {
		return netip.Addr{}, false
	}
	if addr.Is6() {
		whole, _ := addr.WithZone("").Prefix(64) // of IPv6, always there
		addr = whole.Addr()
	}
	return addr, true
}

// forwarded walks the chain of proxies back, as far as each is trusted. What a client
// itself put into the header is to the left of what the first of them added.
func (p *peers) forwarded(addr netip.Addr, headers []string) netip.Addr {
	for _, header := range slices.Backward(headers) {
		for rest := header; rest != ""; {
			j := strings.LastIndexByte(rest, ',')
			text := strings.TrimSpace(rest[j+1:])
			rest = rest[:max(j, 0)]
			before, err := netip.ParseAddr(text)
			if port, err2 := netip.ParseAddrPort(text); err2 == nil { // as some proxies write it
				before, err = port.Addr(), nil
			}
			if err != nil {
				return addr
			}
			if addr = before.Unmap(); !p.trusted(addr) {
				return addr
			}
		}
	}
	return addr
}

func (p *peers) trusted(addr netip.Addr) bool {
	for _, network := range p.proxies {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// allowAt takes one event of a rate from where a request came from.
func (p *peers) allowAt(rates *limit.Rates[netip.Addr], r *http.Request) bool {
	if rates == nil {
		return true
	}
	addr, ok := p.address(r)
	return !ok || rates.Allow(addr)
}

// request counts a request of an MCP client.
func (p *peers) request(r *http.Request, principal string) error {
	if principal != openPrincipal && !p.tokenRequests.Allow(principal) {
		return &session.LimitError{Limit: "requests a second with one token", Max: p.limits.TokenRequests}
	}
	if !p.allowAt(p.addressRequests, r) {
		return &session.LimitError{Limit: "requests a second from one address", Max: p.limits.AddressRequests}
	}
	return nil
}

// failed counts a request whose token is not valid; err is what else it is told. Those
// whose token is valid are not counted, nor kept waiting by the others of their address.
func (p *peers) failed(r *http.Request, err error) error {
	if !p.allowAt(p.addressFailures, r) {
		return &session.LimitError{Limit: "tokens a second from one address that are not valid", Max: p.limits.AddressFailures}
	}
	return err
}

// provider counts a provider's connection; done is to be called at its end. One that
// was closed for saying too much counts as all those of a second.
func (p *peers) provider(r *http.Request, principal string) (done func(flooded bool), err error) {
	open := principal == openPrincipal
	if !open && !p.tokenDials.Allow(principal) {
		return nil, &session.LimitError{Limit: "connections of providers begun a second with one token", Max: p.limits.TokenDials}
	}
	if !p.allowAt(p.addressDials, r) {
		return nil, &session.LimitError{Limit: "connections of providers begun a second from one address", Max: p.limits.AddressDials}
	}
	if !open && !p.tokenProviders.Take(principal) {
		return nil, &session.LimitError{Limit: "connections of providers with one token", Max: p.limits.TokenProviders}
	}
	gone, err := p.hold(r, p.addressProviders, "connections of providers from one address", p.limits.AddressProviders)
	if err != nil {
		if !open {
			p.tokenProviders.Give(principal)
		}
		return nil, err
	}
	addr, known := p.address(r)
	return func(flooded bool) {
		gone()
		if !open {
			p.tokenProviders.Give(principal)
		}
		if !flooded {
			return
		}
		if !open {
			p.tokenDials.Charge(principal, p.limits.TokenDials)
		}
		if known {
			p.addressDials.Charge(addr, p.limits.AddressDials)
		}
	}, nil
}

// stream counts an MCP stream; done is to be called at its end.
func (p *peers) stream(r *http.Request) (done func(), err error) {
	return p.hold(r, p.addressStreams, "MCP streams to one address", p.limits.AddressStreams)
}

func (p *peers) hold(r *http.Request, counts *limit.Counts[netip.Addr], what string, most int) (done func(), err error) {
	if counts == nil {
		return func() {}, nil
	}
	addr, ok := p.address(r)
	if !ok {
		return func() {}, nil
	}
	if !counts.Take(addr) {
		return nil, &session.LimitError{Limit: what, Max: most}
	}
	return func() { counts.Give(addr) }, nil
}
