package credential_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestMintedTokenHasThePublishedShape(t *testing.T) {
	shape := regexp.MustCompile(`^mcpb_(cli|prv|adm|pat|tkt)_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$`)
	seen := make(map[string]bool)
	for _, kind := range []store.TokenKind{store.ClientToken, store.ProviderToken, store.AdminToken, store.RESTKey, credential.Ticket} {
		for range 200 {
			token, secret := credential.New(kind, "b1", now)
			text := secret.Reveal()
			if !shape.MatchString(text) {
				t.Fatalf("token %q does not match %v", text, shape)
			}
			if seen[text] || seen[token.ID] {
				t.Fatal("minted the same token or ID twice")
			}
			seen[text], seen[token.ID] = true, true

			gotKind, id, err := credential.Parse(text)
			if err != nil || gotKind != kind || id != token.ID {
				t.Fatalf("Parse = %v, %v, %v, want %v, %v", gotKind, id, err, kind, token.ID)
			}
			if token.Kind != kind || token.Bridge != "b1" || !token.Created.Equal(now) || !token.Expires.IsZero() {
				t.Fatalf("New = %+v", token)
			}
			if !credential.Verify(token, text) {
				t.Fatal("Verify refuses the token's own text")
			}
		}
	}
}

func TestOnlyTheTokensOwnTextVerifies(t *testing.T) {
	token, secret := credential.New(store.ClientToken, "b1", now)
	_, other := credential.New(store.ClientToken, "b1", now)
	text := secret.Reveal()
	for _, wrong := range []string{"", other.Reveal(), text[:len(text)-1], text + "0", strings.ToUpper(text), token.ID} {
		if credential.Verify(token, wrong) {
			t.Errorf("Verify accepts %q", wrong)
		}
	}
	for _, any := range []string{"", text} {
		if credential.Verify(store.Token{}, any) {
			t.Errorf("the zero token accepts %q", any)
		}
	}
}

// Any one character changed, and any two neighbours swapped, is a typo that a
// CRC-32 always finds.
func TestTypoIsFoundWithoutTheStore(t *testing.T) {
	_, secret := credential.New(store.ProviderToken, "b1", now)
	text := secret.Reveal()
	for i := range len(text) {
		typo := []byte(text)
		if typo[i] == 'x' {
			typo[i] = 'y'
		} else {
			typo[i] = 'x'
		}
		if _, _, err := credential.Parse(string(typo)); err == nil {
			t.Errorf("Parse accepts a wrong character at %d", i)
		}
		if i > 0 && text[i] != text[i-1] {
			swapped := []byte(text)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			if _, _, err := credential.Parse(string(swapped)); err == nil {
				t.Errorf("Parse accepts swapped characters at %d", i)
			}
		}
	}
}

func TestParseTellsWhatIsWrong(t *testing.T) {
	_, secret := credential.New(store.ClientToken, "b1", now)
	text := secret.Reveal()
	cases := []struct {
		name, text string
		want       error
	}{
		{"empty", "", credential.ErrMalformed},
		{"cut", text[:70], credential.ErrMalformed},
		{"longer", text + "0", credential.ErrMalformed},
		{"space in front", " " + text[:70], credential.ErrMalformed},
		{"other prefix", "ghpx" + text[4:], credential.ErrMalformed},
		{"not base62", text[:70] + "-", credential.ErrMalformed},
		{"not ASCII", text[:69] + "é", credential.ErrMalformed},
		{"separator", strings.Replace(text, "_cli_", "_cli-", 1), credential.ErrMalformed},
		{"unknown kind", strings.Replace(text, "_cli_", "_xyz_", 1), credential.ErrKind},
		{"other kind", strings.Replace(text, "_cli_", "_adm_", 1), credential.ErrChecksum},
		{"last digit", text[:70] + string("01"[(text[70]-'0'+1)%2]), credential.ErrChecksum},
	}
	for _, c := range cases {
		_, _, err := credential.Parse(c.text)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: Parse = %v, want %v", c.name, err, c.want)
		}
	}
}

func TestAdministratorMayBringTheirOwnText(t *testing.T) {
	own := strings.Repeat("p", credential.MinText)
	token, err := credential.FromText(own, now)
	if err != nil {
		t.Fatal(err)
	}
	if token.ID != credential.AdminTextID || token.Kind != store.AdminToken || token.Bridge != "" {
		t.Fatalf("FromText = %+v", token)
	}
	if !credential.Verify(token, own) || credential.Verify(token, own+"p") {
		t.Fatal("Verify does not tell the text from another")
	}
	kind, id, err := credential.Lookup(own)
	if err != nil || kind != store.AdminToken || id != token.ID {
		t.Fatalf("Lookup = %v, %v, %v", kind, id, err)
	}

	minted, secret := credential.New(store.AdminToken, "", now)
	again, err := credential.FromText(secret.Reveal(), now)
	if err != nil || again != minted {
		t.Fatalf("FromText of a minted token = %+v, %v, want %+v", again, err, minted)
	}

	_, client := credential.New(store.ClientToken, "b1", now)
	for text, want := range map[string]error{
		"":                                      credential.ErrShort,
		own[1:]:                                 credential.ErrShort,
		strings.Repeat("p", 1025):               credential.ErrShort,
		client.Reveal():                         credential.ErrKind,
		secret.Reveal()[:60]:                    credential.ErrMalformed,
		secret.Reveal()[:65] + "000000":         credential.ErrChecksum,
		"mcpb_" + strings.Repeat("p", 40):       credential.ErrMalformed,
		strings.Repeat("p", credential.MinText): nil,
	} {
		if _, err := credential.FromText(text, now); !errors.Is(err, want) {
			t.Errorf("FromText of %d characters = %v, want %v", len(text), err, want)
		}
	}
}

func TestNewRefusesAnUnknownKind(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("New minted a token of an unknown kind")
		}
	}()
	credential.New("xyz", session.BridgeID("b1"), now)
}

func TestSecretShowsItselfToNobody(t *testing.T) {
	_, secret := credential.New(store.AdminToken, "", now)
	holder := struct{ Token credential.Secret }{secret}

	var logged bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(h).Info("minted", "token", secret, "pointer", &secret, "holder", holder)
	}
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{logged.String(), string(encoded), secret.String(), secret.GoString()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%T"} {
		shown = append(shown, fmt.Sprintf(verb, secret), fmt.Sprintf(verb, &secret))
	}
	// A part of the secret is as bad as the whole, and so is its hex.
	part := secret.Reveal()[30:50]
	for _, s := range shown {
		if strings.Contains(s, part) || strings.Contains(strings.ToLower(s), fmt.Sprintf("%x", part)) {
			t.Errorf("the secret shows in %q", s)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, kind := range []store.TokenKind{store.ClientToken, store.ProviderToken, store.AdminToken} {
		_, secret := credential.New(kind, "b1", now)
		f.Add(secret.Reveal())
	}
	f.Add("")
	f.Add("mcpb_cli_")
	f.Add("mcpb_cli_000000000000_0000000000000000000000000000000000000000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		kind, id, err := credential.Parse(text)
		if err != nil {
			if kind != "" || id != "" {
				t.Fatalf("Parse = %q, %q with %v", kind, id, err)
			}
			// One of three fixed texts, so that none carries a part of the token.
			fixed := []error{credential.ErrMalformed, credential.ErrKind, credential.ErrChecksum}
			if !slices.Contains(fixed, err) {
				t.Fatalf("Parse = %v, want one of %v", err, fixed)
			}
			return
		}
		if len(id) != 12 || !strings.HasPrefix(text, "mcpb_"+string(kind)+"_"+id+"_") {
			t.Fatalf("Parse(%q) = %q, %q", text, kind, id)
		}
		if k, i, err := credential.Lookup(text); k != kind || i != id || err != nil {
			t.Fatalf("Lookup(%q) = %q, %q, %v", text, k, i, err)
		}
		if kind == store.AdminToken {
			token, err := credential.FromText(text, now)
			if err != nil || !credential.Verify(token, text) {
				t.Fatalf("FromText = %+v, %v", token, err)
			}
		}
	})
}
