package api_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/api"
	"mcpbridge/session"
)

// behindProxy makes the server one that the world reaches through a proxy on this
// machine, so that X-Forwarded-For tells where a request came from.
func behindProxy(w *world) {
	w.closed = true
	w.change = func(c *api.Config) {
		c.PublicURL = "https://bridge.example.com"
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	}
}

// accounts makes bridges without the URLs that provision checks.
func (w *world) accounts(n int) (all []keys) {
	w.t.Helper()
	change := w.change
	w.end()
	w.change = nil
	w.begin()
	_, all = w.provision(n)
	w.end()
	w.change = change
	w.begin()
	return all
}

const pingBody = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// pings sends pings until one is refused, and returns how many were answered.
func (w *world) pings(k keys, from string, most int) (n int, refused answer) {
	w.t.Helper()
	for n < most {
		if a := w.post(k.id, pingBody, "Authorization", k.client, "X-Forwarded-For", from); a.status != http.StatusOK {
			return n, a
		}
		n++
	}
	return n, answer{}
}

func (a answer) wantBusy(t *testing.T, what string) {
	t.Helper()
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, "limit reached: at most "+what) {
		t.Errorf("%d, Retry-After %q, %s; want 429 for %q", a.status, a.header.Get("Retry-After"), a.body, what)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, behindProxy, withLimits(session.Limits{TokenRequests: 5, AddressRequests: 8}))
		b := w.accounts(3)
		n, a := w.pings(b[0], "192.0.2.1", 100)
		if a.wantBusy(t, "5 requests a second with one token"); n != 10 {
			t.Errorf("%d requests with one token, want 10", n)
		}
		if n, _ = w.pings(b[0], "192.0.2.2", 1); n != 0 {
			t.Error("another address makes the token a new one")
		}
		n, a = w.pings(b[1], "192.0.2.1", 100)
		if a.wantBusy(t, "8 requests a second from one address"); n != 6 {
			t.Errorf("%d requests of the rest of the address, want 6", n)
		}
		if n, a = w.pings(b[2], "192.0.2.3", 10); n != 10 {
			t.Errorf("another token from another address: %d, %s", n, a.body)
		}
		time.Sleep(2 * time.Second)
		if n, _ = w.pings(b[0], "192.0.2.1", 100); n != 10 {
			t.Errorf("%d requests after a rest, want 10", n)
		}
		w.end()
	})
}

func TestAnAddressIsTheNearestThatIsNotTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, behindProxy, withLimits(session.Limits{TokenRequests: -1, AddressRequests: 1}))
		b := w.accounts(1)[0]
		for _, c := range []struct {
			name, first, second string
			same                bool
		}{
			{"what a client writes itself", "192.0.2.1", "203.0.113.7, 192.0.2.1", true},
			{"behind two proxies", "192.0.2.2", "192.0.2.2, 10.1.2.3", true},
			{"with a port", "192.0.2.3", "192.0.2.3:4711", true},
			{"IPv4 in IPv6", "192.0.2.4", "::ffff:192.0.2.4", true},
			{"one /64", "2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
			{"two /64", "2001:db8:1:3::1", "2001:db8:1:4::1", false},
			{"two", "192.0.2.5", "192.0.2.6", false},
		} {
			w.pings(b, c.first, 2)
			if n, _ := w.pings(b, c.second, 1); (n == 0) != c.same {
				t.Errorf("%s: %q and %q: same address %v, want %v", c.name, c.first, c.second, n == 0, c.same)
			}
		}
		// What no proxy wrote, and the proxy's own address, is nobody's.
		for _, from := range []string{"", "rubbish", "127.0.0.1"} {
			if n, _ := w.pings(b, from, 5); n != 5 {
				t.Errorf("%q counts as one address", from)
			}
		}
		w.end()
	})
}

func TestInvalidTokensAreBoundedAndLockNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, behindProxy)
		b := w.accounts(2)
		try := func(token, from string) answer {
			return w.post(b[0].id, pingBody, "Authorization", token, "X-Forwarded-For", from)
		}
		forged := b[0].client[:len(b[0].client)-7] + "abcdefg"
		for i := range 60 {
			token, want := forged, http.StatusUnauthorized
			if i%2 == 1 {
				token, want = b[1].client, http.StatusNotFound // good, but not here
			}
			if a := try(token, "192.0.2.1"); a.status != want {
				t.Fatalf("the %d.: %d %s", i+1, a.status, a.body)
			}
		}
		for _, token := range []string{forged, b[1].client} {
			try(token, "192.0.2.1").wantBusy(t, "1 tokens a second from one address that are not valid")
		}
		if a := w.do("GET", w.url("/api/v1/bridges"), "", "Authorization", forged, "X-Forwarded-For", "192.0.2.1"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" {
			t.Errorf("REST: %d %s", a.status, a.body)
		}
		if _, err := w.tryDial("/b/"+b[0].id+"/provider", "Authorization", forged, "X-Forwarded-For", "192.0.2.1"); err == nil || !strings.Contains(err.Error(), "429") {
			t.Errorf("a provider: %v", err)
		}
		if a := try(b[0].client, "192.0.2.1"); a.status != http.StatusOK {
			t.Errorf("a valid token behind the same address: %d %s", a.status, a.body)
		}
		if a := try("", "192.0.2.1"); a.status != http.StatusUnauthorized {
			t.Errorf("no token: %d %s", a.status, a.body) // clients find out so how to get one
		}
		if a := try(forged, "192.0.2.2"); a.status != http.StatusUnauthorized {
			t.Errorf("another address: %d %s", a.status, a.body)
		}
		time.Sleep(time.Second)
		if a := try(forged, "192.0.2.1"); a.status != http.StatusUnauthorized {
			t.Errorf("a second later: %d %s", a.status, a.body)
		}
		w.end()
	})
}

func TestProvidersConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, behindProxy, withLimits(session.Limits{TokenDials: 1, AddressDials: 2, TokenProviders: 3, AddressProviders: 4}))
		b := w.accounts(4)
		dial := func(k keys, from string) (*peer, error) {
			return w.tryDial("/b/"+k.id+"/provider", "Authorization", k.provider, "X-Forwarded-For", from)
		}
		must := func(k keys, from string, n int) (all []*peer) {
			for range n {
				p, err := dial(k, from)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, p)
			}
			return all
		}
		refused := func(k keys, from, why string) {
			t.Helper()
			a := w.do("GET", w.url("/b/"+k.id+"/provider"), "", "Authorization", k.provider, "X-Forwarded-For", from,
				"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			a.wantBusy(t, why)
		}
		ones := must(b[0], "192.0.2.1", 3)
		refused(b[0], "192.0.2.9", "3 connections of providers with one token")
		twos := must(b[1], "192.0.2.1", 1)
		refused(b[1], "192.0.2.1", "4 connections of providers from one address")
		must(b[1], "192.0.2.2", 1)

		// Whoever goes makes room.
		_ = ones[0].ws.CloseNow()
		_ = twos[0].ws.CloseNow()
		time.Sleep(time.Second)
		must(b[0], "192.0.2.1", 1)
		must(b[2], "192.0.2.1", 1)
		refused(b[2], "192.0.2.1", "4 connections of providers from one address")

		// Ten at once, then one a second: with one token, and two from one address.
		n := 0
		for ; n < 20; n++ {
			p, err := dial(b[3], "192.0.2.3")
			if err != nil {
				break
			}
			_ = p.ws.CloseNow()
			synctest.Wait()
		}
		if refused(b[3], "192.0.2.4", "1 connections of providers begun a second with one token"); n != 10 {
			t.Errorf("%d connections at once, want 10", n)
		}
		w.end()
	})
}

func TestDialsFromOneAddressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, behindProxy, withLimits(session.Limits{TokenDials: -1, AddressDials: 2}))
		b := w.accounts(1)[0]
		dial := func(from string) error {
			p, err := w.tryDial("/b/"+b.id+"/provider", "Authorization", b.provider, "X-Forwarded-For", from)
			if err == nil {
				_ = p.ws.CloseNow()
				synctest.Wait()
			}
			return err
		}
		for i := range 20 {
			if err := dial("192.0.2.1"); err != nil {
				t.Fatalf("the %d.: %v", i+1, err)
			}
		}
		if err := dial("192.0.2.1"); err == nil || !strings.Contains(err.Error(), "429") {
			t.Errorf("one more: %v", err)
		}
		if err := dial("192.0.2.2"); err != nil {
			t.Errorf("from elsewhere: %v", err)
		}
		time.Sleep(time.Second / 2)
		if err := dial("192.0.2.1"); err != nil {
			t.Errorf("half a second later: %v", err)
		}
		w.end()
	})
}

func TestStreamsToOneAddressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, behindProxy, withLimits(session.Limits{AddressStreams: 2}))
		b := w.accounts(2)
		from := func(i int, address string) []string {
			return []string{"Authorization", b[i].client, "X-Forwarded-For", address}
		}
		first := w.stream("GET", w.url("/b/"+b[0].id+"/sse"), "", from(0, "192.0.2.1")...)
		body, headers := modernRequest("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
		w.stream("POST", w.mcpURL(b[1].id), body, append(headers, from(1, "192.0.2.1")...)...)
		w.do("GET", w.url("/b/"+b[1].id+"/sse"), "", from(1, "192.0.2.1")...).wantBusy(t, "2 MCP streams to one address")
		if a := w.do("POST", w.mcpURL(b[0].id), body, append(headers, from(0, "192.0.2.1")...)...); !strings.Contains(a.body, "2 MCP streams to one address") {
			t.Errorf("listen: %d %s", a.status, a.body)
		}
		w.stream("GET", w.url("/b/"+b[1].id+"/sse"), "", from(1, "192.0.2.2")...)
		first.close()
		synctest.Wait()
		w.stream("GET", w.url("/b/"+b[1].id+"/sse"), "", from(1, "192.0.2.1")...)
		w.end()
	})
}

// Where only this machine reaches the server, nobody is a stranger.
func TestPeersOfOneMachineAreNotLimited(t *testing.T) {
	w := start(t, withAuth)
	_, b := w.provision(1)
	for i := range 100 {
		if a := w.post(b[0].id, pingBody, "Authorization", "Bearer wrong"); a.status != http.StatusUnauthorized {
			t.Fatalf("the %d.: %d %s", i+1, a.status, a.body)
		}
	}
}
