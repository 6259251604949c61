package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"mcpbridge/api/credential"
	"mcpbridge/store"
)

// idOf is the ID of a token that is given as an Authorization header.
func idOf(t *testing.T, bearer string) string {
	t.Helper()
	_, id, err := credential.Parse(strings.TrimPrefix(bearer, "Bearer "))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// issue makes a token or key through the API.
func (w *world) issue(admin, path, body string) (id, bearer string) {
	w.t.Helper()
	a := w.do("POST", w.url(path), body, "Authorization", admin)
	var made struct{ ID, Token string }
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.status != 201 || made.Token == "" {
		w.t.Fatalf("POST %s: %d %s", path, a.status, a.body)
	}
	return made.ID, "Bearer " + made.Token
}

func (w *world) remove(admin, path string) {
	w.t.Helper()
	if a := w.do("DELETE", w.url(path), "", "Authorization", admin); a.status != 204 {
		w.t.Fatalf("DELETE %s: %d %s", path, a.status, a.body)
	}
}

// Key revoked while a provider socket, an SSE stream and a listen stream are open: all
// three end within 1 s. So do the session's GET stream and what is under way; what
// another token of the bridge opened, stays.
func TestRevokedKeyEndsProviderSocketSSEStreamAndListenStreamWithinASecond(t *testing.T) {
	w := start(t, withAuth)
	admin, b := w.provision(1)
	id, client, provider := b[0].id, b[0].client, b[0].provider
	tokens := "/api/v1/bridges/" + id + "/tokens"
	_, otherClient := w.issue(admin, tokens, `{"kind":"client","name":"other"}`)
	_, otherProvider := w.issue(admin, tokens, `{"kind":"provider","name":"other"}`)

	dial := func(name, token string) *peer {
		p := w.dial("/b/"+id+"/provider", "Authorization", token)
		p.send(`{"type":"hello","protocol":1,"provider":"` + name + `"}`)
		p.want("welcome")
		return p
	}
	p := dial("p", provider)
	stays := dial("stays", otherProvider)
	stays.register(tool("a"))

	listen := func(token string) *events {
		e := w.stream("POST", w.mcpURL(id), first(modernRequest("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen", "Authorization", token)
		e.want("acknowledged")
		return e
	}
	a := w.post(id, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, "Authorization", client)
	streams := map[string]*events{
		"the listen stream": listen(client),
		"the SSE stream":    w.stream("GET", w.url("/b/"+id+"/sse"), "", "Authorization", client),
		"the session's stream": w.stream("GET", w.mcpURL(id), "", "Authorization", client,
			"Mcp-Session-Id", a.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", "2025-11-25"),
	}
	streams["the SSE stream"].want("/message?sessionId=")
	other := listen(otherClient)
	call := make(chan answer, 1)
	go func() {
		call <- w.post(id, callBody("1", "a", "{}"), "Authorization", client, "Accept", "application/json")
	}()
	stays.want("callTool")

	begun := time.Now()
	w.remove(admin, tokens+"/"+idOf(t, client))
	w.remove(admin, tokens+"/"+idOf(t, provider))
	if code, reason := p.closed(); code != 4401 || !strings.Contains(reason, "revoked") {
		t.Errorf("the provider was closed with %d %q", code, reason)
	}
	for what, e := range streams {
		for {
			if _, err := e.next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s ended with %v", what, err)
				break
			}
		}
	}
	if a := <-call; a.status != 401 || !strings.Contains(a.body, "revoked") {
		t.Errorf("the call under way: %d %s", a.status, a.body)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v", took)
	} else {
		t.Logf("all ended %v after the first DELETE was sent", took)
	}
	stays.want("cancelCall")
	for what, token := range map[string]string{"client": client, "provider": provider} {
		if a := w.do("GET", w.url("/b/"+id+"/health"), "", "Authorization", token); a.status != 401 {
			t.Errorf("the %s token is answered %d", what, a.status)
		}
	}
	stays.register(tool("b"))
	other.want("list_changed")
}

// A provider that does not answer the close frame is cut all the same.
func TestRevokedProviderThatDoesNotAnswerIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withAuth)
		admin, b := w.provision(1)
		c := w.connect()
		if _, err := io.WriteString(c, "GET /b/"+b[0].id+"/provider HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: "+b[0].provider+
			"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, len("HTTP/1.1 101 "))
		if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 101 " {
			t.Fatalf("upgrade: %q, %v", head, err)
		}
		ended := make(chan time.Time, 1)
		go func() {
			_, _ = io.Copy(io.Discard, c)
			ended <- time.Now()
		}()
		synctest.Wait()
		begun := time.Now()
		w.remove(admin, "/api/v1/bridges/"+b[0].id+"/tokens/"+idOf(t, b[0].provider))
		if took := (<-ended).Sub(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
		w.end()
	})
}

// A token that expires ends what is live under it too, within a minute.
func TestExpiredTokenEndsWhatIsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withAuth)
		admin, b := w.provision(1)
		tokens := "/api/v1/bridges/" + b[0].id + "/tokens"
		p := w.dial("/b/"+b[0].id+"/provider", "Authorization", b[0].provider)
		p.send(`{"type":"hello","protocol":1,"provider":"p"}`)
		p.want("welcome")
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for p.ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"pong"}`)) == nil {
				time.Sleep(10 * time.Second)
			}
		}()
		_, next := w.issue(admin, tokens+"/"+idOf(t, b[0].provider)+"/rotate", `{"overlapSeconds":3600}`)
		begun := time.Now()
		code, reason := p.closed()
		ended := time.Now()
		<-answered
		if lived := ended.Sub(begun); code != 4401 || lived < time.Hour || lived > time.Hour+time.Minute {
			t.Errorf("closed with %d %q after %v", code, reason, lived)
		}
		if a := w.do("GET", w.url("/b/"+b[0].id+"/health"), "", "Authorization", b[0].provider); a.status != 401 {
			t.Errorf("the old token: %d", a.status)
		}
		if a := w.do("GET", w.url("/b/"+b[0].id+"/health"), "", "Authorization", next); a.status != 200 {
			t.Errorf("the new token: %d", a.status)
		}
		w.end()
	})
}

// counting is a store that counts what tokens cost it.
type counting struct {
	store.Store
	reads, writes atomic.Int64
}

func (c *counting) Token(ctx context.Context, id string) (store.Token, error) {
	c.reads.Add(1)
	return c.Store.Token(ctx, id)
}

func (c *counting) TouchTokens(ctx context.Context, used map[string]time.Time) error {
	c.writes.Add(1)
	return c.Store.TouchTokens(ctx, used)
}

// TestUseOfTokensIsNotedNowAndThen: a request reads nothing of the store for its token,
// and when a token was last used is written for many together.
func TestUseOfTokensIsNotedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &counting{Store: store.NewMemory(1)}
		w := start(t, inBubble, withAuth, func(w *world) { w.store = st })
		_, b := w.provision(2)
		ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		begun := time.Now()
		for range 60 { // for ten minutes
			for _, k := range b {
				if a := w.post(k.id, ping, "Authorization", k.client); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		// Each of the two and the admin's once; the check of each minute reads those in use.
		if reads, writes := st.reads.Load(), st.writes.Load(); reads > 3+3*10 || writes < 2 || writes > 3 {
			t.Errorf("%d reads of tokens, %d writes of their use", reads, writes)
		}
		k, err := st.Token(t.Context(), idOf(t, b[0].client))
		if used := k.LastUsed.Sub(begun); err != nil || used < 5*time.Minute || used > 10*time.Minute {
			t.Errorf("last used %v after the first, %v", used, err)
		}
		w.end()
	})
}

// TestDatabaseHoldsNoSecretThatWasIssued searches a store's file, and the log, for each
// secret of every kind.
func TestDatabaseHoldsNoSecretThatWasIssued(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	st, err := store.OpenBolt(dir, store.BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, withAuth, func(w *world) { w.store = st })
	admin, b := w.provision(2)
	secrets := []string{admin, b[0].client, b[0].provider, b[1].client, b[1].provider}
	tokens := "/api/v1/bridges/" + b[0].id + "/tokens"
	for _, kind := range []string{"client", "provider"} {
		id, secret := w.issue(admin, tokens, `{"kind":"`+kind+`","name":"n"}`)
		_, next := w.issue(admin, tokens+"/"+id+"/rotate", `{}`)
		secrets = append(secrets, secret, next)
	}
	if a := w.do("POST", w.url("/api/v1/tenants"), `{"id":"team"}`, "Authorization", admin); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	id, key := w.issue(admin, "/api/v1/keys", `{"tenant":"team"}`)
	_, next := w.issue(admin, "/api/v1/keys/"+id+"/rotate", `{"overlapSeconds":60}`)
	secrets = append(secrets, key, next)
	for _, secret := range secrets { // so that each was seen by the server, here and there
		w.post(b[0].id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", secret)
		w.do("GET", w.url("/api/v1/bridges"), "", "Authorization", secret)
		_ = w.dial("/b/"+b[0].id+"/provider", "Authorization", secret).ws.CloseNow()
	}
	w.end()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	log := []byte(w.log.String())
	for _, secret := range secrets {
		id := idOf(t, secret)
		part := []byte(secret[strings.LastIndexByte(secret, '_')+1:][:20])
		if !bytes.Contains(file, []byte(id)) {
			t.Errorf("the file does not know the token %s, so it proves nothing", id)
		}
		if bytes.Contains(file, part) || bytes.Contains(log, part) {
			t.Errorf("the secret of %s is kept", id)
		}
	}
}
