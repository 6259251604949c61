package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// created is what `bridge create -o json` prints.
type created struct {
	ID, MCPURL, ProviderURL, HealthURL string
	ClientToken, ProviderToken         string
}

func createBridge(t *testing.T, s *server, admin string) (b created) {
	t.Helper()
	o := run(t, "bridge", "create", "--server", s.url(""), "--token", admin, "--name", "from outside", "-o", "json")
	if err := json.Unmarshal([]byte(o.stdout), &b); err != nil || o.status != 0 || o.stderr != "" {
		t.Fatalf("bridge create: %+v, %v", o, err)
	}
	for what, got := range map[string]string{
		"mcpUrl": b.MCPURL, "providerUrl": b.ProviderURL, "healthUrl": b.HealthURL,
	} {
		want := map[string]string{"mcpUrl": s.mcpURL(b.ID), "providerUrl": s.socketURL(b.ID), "healthUrl": s.url("/b/" + b.ID + "/health")}[what]
		if got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
	}
	if b.ID == "" || b.ClientToken == "" || b.ProviderToken == "" || b.ClientToken == b.ProviderToken {
		t.Fatalf("bridge create printed no two tokens for %q", b.ID)
	}
	return b
}

const shownOnce = `Admin token, shown this once; keep it: (\S+)\n`

// The first start prints an admin token, which provisions a bridge, whose tokens
// let a provider and a client in. None of them is kept in clear.
func TestTokensOpenWhatTheyAreForAndNothingElse(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log-level", "debug")
	admin := s.find(s.stderr, shownOnce)
	first := createBridge(t, s, admin)
	second := createBridge(t, s, admin)

	s.provide(first.ID, first.ProviderToken, greet("greet"))
	run(t, "call", first.MCPURL, "greet", `{"name":"you"}`, "--token", first.ClientToken).want(t, 0, `Hello, you!\n`, ``)
	run(t, "tools", first.ID, "--server", s.url(""), "--token", first.ClientToken).want(t, 0, `NAME +DESCRIPTION\ngreet +Greets somebody\.\n`, ``)

	// Whoever holds no token of the bridge is answered as if it did not exist, at
	// each of its doors.
	tokens := map[string]string{
		"none": "", "no token at all": "x", "another bridge's client token": second.ClientToken,
		"another bridge's provider token": second.ProviderToken, "admin token": admin,
		"mistyped": first.ClientToken[:len(first.ClientToken)-1] + "-",
		"unknown":  strings.Repeat("0123456789", 5),
	}
	for name, token := range tokens {
		for door := range doors {
			want := http.StatusNotFound
			if name == "none" || name == "no token at all" || name == "mistyped" || name == "unknown" {
				want = http.StatusUnauthorized
			}
			got, absent := s.knock(door, first.ID, token), s.knock(door, "nobody-has-this-one", token)
			if got != absent {
				t.Errorf("%s, token %s: the bridge answers\n%s\none that does not exist\n%s", door, name, got, absent)
			}
			if door == "WebSocket provider" { // which tells it with a close code
				want = map[int]int{http.StatusUnauthorized: 4401, http.StatusNotFound: 4403}[want]
			}
			if !strings.HasPrefix(got, fmt.Sprint(want, " ")) {
				t.Errorf("%s, token %s: %s, want %d", door, name, got, want)
			}
		}
	}
	// A bridge's own token of the wrong kind opens no door either.
	for door, kind := range doors {
		token := map[string]string{"client": first.ProviderToken, "provider": first.ClientToken}[kind]
		if kind == "both" {
			continue
		}
		if got, absent := s.knock(door, first.ID, token), s.knock(door, "nobody-has-this-one", token); got != absent {
			t.Errorf("%s, token of the wrong kind: the bridge answers\n%s\none that does not exist\n%s", door, got, absent)
		}
	}
	// Neither opens the administrator's.
	for name, token := range map[string]string{"none": "", "client": first.ClientToken, "provider": first.ProviderToken} {
		got := s.do(http.MethodGet, "/api/v1/bridges/"+first.ID, "", bearer(token)...)
		absent := s.do(http.MethodGet, "/api/v1/bridges/nobody-has-this-one", "", bearer(token)...)
		if got.status != http.StatusUnauthorized || got.body != absent.body {
			t.Errorf("token %s: the API answers %d %s and %d %s", name, got.status, got.body, absent.status, absent.body)
		}
		run(t, "bridge", "list", "--server", s.url(""), "--token", token).want(t, 1, ``, `mcpbridge: 401 [^\n]*\n`)
	}

	// The second start knows everybody and prints nothing.
	log := s.stderr.String()
	s.restart()
	if strings.Contains(s.stderr.String(), "Admin token") {
		t.Errorf("the second start prints a token:\n%s", s.stderr)
	}
	run(t, "bridge", "list", "--server", s.url(""), "--token", admin).want(t, 0, `ID .*`+first.ID+`.*`, ``)
	s.connected(first)
	run(t, "call", first.MCPURL, "greet", `{"name":"you"}`, "--token", first.ClientToken).want(t, 0, `Hello, you!\n`, ``)
	s.stop()
	log = strings.Replace(log, admin, "", 1) + s.stderr.String() + s.stdout.String()

	file, err := os.ReadFile(filepath.Join(s.data, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"admin": admin, "client": first.ClientToken, "provider": first.ProviderToken,
		"second client": second.ClientToken, "second provider": second.ProviderToken,
	} {
		// The kind and the ID, which come first, are no secret.
		secret := token[strings.LastIndexByte(token, '_')+1:]
		if len(secret) < 40 {
			t.Fatalf("the %s token has no secret part", name)
		}
		for where, text := range map[string][]byte{"the store": file, "the log": []byte(log)} {
			if bytes.Contains(text, []byte(secret)) || bytes.Contains(text, []byte(secret[:40])) {
				t.Errorf("%s has the %s token", where, name)
			}
		}
	}
}

// connected waits until the bridge's one provider has come back.
func (s *server) connected(b created) {
	s.t.Helper()
	s.until(b.ID, "the provider's return", func(h health) bool { return len(h.Providers) == 1 && h.Providers[0].Connected }, bearer(b.ClientToken)...)
}

func bearer(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + token}
}

// doors are the ways into a bridge, and which of its tokens opens each.
var doors = map[string]string{
	"POST mcp": "client", "GET mcp": "client", "DELETE mcp": "client", "POST mcp/": "client",
	"GET health": "both", "GET provider": "provider", "WebSocket provider": "provider",
}

// knock is all that an answer says, but for what every answer has of its own.
func (s *server) knock(door, bridge, token string) string {
	s.t.Helper()
	method, path, _ := strings.Cut(door, " ")
	if method == "WebSocket" {
		return s.knockSocket(bridge, token)
	}
	body := ""
	if method == http.MethodPost {
		body = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	}
	a := s.do(method, "/b/"+bridge+"/"+path, body, bearer(token)...)
	a.header.Del("Date")
	a.header.Del("X-Request-Id")
	return fmt.Sprintf("%d %v %s", a.status, a.header, a.body)
}

// knockSocket dials as a provider and returns how it was refused: with a status,
// or with a close code.
func (s *server) knockSocket(bridge, token string) string {
	s.t.Helper()
	ctx := patient(s.t)
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	ws, resp, err := websocket.Dial(ctx, s.socketURL(bridge), &websocket.DialOptions{HTTPClient: s.http, HTTPHeader: header})
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		if resp == nil {
			s.t.Fatal(err)
		}
		return fmt.Sprint(resp.StatusCode)
	}
	defer func() { _ = ws.CloseNow() }()
	_, text, err := ws.Read(ctx)
	closed, ok := errors.AsType[websocket.CloseError](err)
	if !ok {
		s.t.Errorf("the door is open: %s, %v", text, err)
	}
	return fmt.Sprint(int(closed.Code), " ", closed.Reason)
}
