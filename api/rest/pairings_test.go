package rest_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/api/rest"
	"mcpbridge/store"
)

type paired struct{ Bridge, ProviderURL, TokenID, Token string }

// code asks for a pairing code.
func (e *edge) code(bridge, body string, header ...string) string {
	e.t.Helper()
	made := made[struct {
		Code    string
		Expires time.Time
	}](e, bridges+"/"+bridge+"/pairings", body, header...)
	if !regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{5}-[0-9A-HJKMNP-TV-Z]{5}$`).MatchString(made.Code) || !made.Expires.Equal(e.now.Add(10*time.Minute)) {
		e.t.Fatalf("pairing %+v", made)
	}
	return made.Code
}

func TestACodeIsSwappedOnceForAProviderToken(t *testing.T) {
	e := newEdge(t)
	if admin, err := credential.FromText(adminText, e.now); err != nil || e.store.PutToken(t.Context(), admin) != nil {
		t.Fatal(err)
	}
	b := made[bridgeMade](e, bridges, `{}`)
	nobody := []string{"Authorization", ""}
	refused := func(what, code string) {
		t.Helper()
		answer, text := e.do(http.MethodPost, "/api/v1/pair", `{"code":"`+code+`"}`, nobody...)
		if p := e.problem(http.StatusNotFound, answer, text); !strings.Contains(p.Detail, "no such code") || len(p.Errors) > 0 {
			t.Errorf("%s: %s", what, text)
		}
	}
	code := e.code(b.ID, `{"name":"Ada's laptop"}`)
	typed := strings.ToLower(strings.Replace(code, "-", " ", 1)) // as people do
	typed = strings.NewReplacer("0", "o", "1", "l").Replace(typed)
	got := made[paired](e, "/api/v1/pair", `{"code":"`+typed+`"}`, nobody...)
	if got.Bridge != b.ID || got.ProviderURL != "wss://bridge.example.com/base/b/"+b.ID+"/provider" {
		t.Errorf("paired %+v", got)
	}
	stored, err := e.store.Token(t.Context(), got.TokenID)
	if err != nil || !credential.Verify(stored, got.Token) || stored.Kind != store.ProviderToken || string(stored.Bridge) != b.ID ||
		stored.Name != "Ada's laptop" || stored.By != credential.AdminTextID {
		t.Errorf("stored %+v, %v", stored, err)
	}
	refused("used", code)
	refused("mistyped", "AAAAA-AAAAA")
	refused("empty of letters", "-")

	late := e.code(b.ID, ``)
	e.now = e.now.Add(10 * time.Minute)
	refused("old", late)

	// Who asked for it, or what it is for, may be gone.
	key := made[shown](e, "/api/v1/keys", `{}`)
	e.actors["key"] = rest.Actor{Token: key.ID, Scopes: strings.Join(key.Scopes, " ")}
	void := e.code(b.ID, `{}`, "Authorization", "Bearer key")
	answer, text := e.do(http.MethodDelete, "/api/v1/keys/"+key.ID, "")
	e.status(http.StatusNoContent, answer, text)
	refused("of a revoked key", void)
	orphan := e.code(b.ID, `{}`)
	answer, text = e.do(http.MethodDelete, bridges+"/"+b.ID, "")
	e.status(http.StatusNoContent, answer, text)
	refused("of a bridge that is gone", orphan)
	for _, secret := range []string{code, void, got.Token[20:]} {
		if strings.Contains(e.log.String(), secret) {
			t.Error("a code or token is in the log")
		}
	}
}

func TestCodesAreBoundedAndGuessesLimited(t *testing.T) {
	e := newEdge(t)
	b := made[bridgeMade](e, bridges, `{}`)
	for range 1000 {
		e.code(b.ID, ``)
	}
	answer, text := e.do(http.MethodPost, bridges+"/"+b.ID+"/pairings", ``)
	e.problem(http.StatusTooManyRequests, answer, text)
	e.now = e.now.Add(11 * time.Minute) // none of them is good any more
	e.code(b.ID, ``)

	limited := false
	for range 2000 { // 200 at once, and 20 a second
		answer, text := e.do(http.MethodPost, "/api/v1/pair", `{"code":"AAAAA-AAAAA"}`)
		if answer.StatusCode == http.StatusTooManyRequests {
			e.problem(http.StatusTooManyRequests, answer, text)
			if answer.Header.Get("Retry-After") == "" {
				t.Errorf("no Retry-After: %v", answer.Header)
			}
			limited = true
			break
		}
		e.problem(http.StatusNotFound, answer, text)
	}
	if !limited {
		t.Error("2,000 guesses are answered")
	}
}
