package credential

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
	"time"

	"mcpbridge/session"
	"mcpbridge/store"
)

// Errors of [Parse], [Lookup] and [FromText]. None of them, and no error that
// wraps one, carries any part of the text.
var (
	// ErrMalformed: the text does not have the shape of a token.
	ErrMalformed = errors.New("not a token: want mcpb_<kind>_<id>_<secret>")
	// ErrChecksum: the text has a token's shape but was mistyped or cut.
	ErrChecksum = errors.New("the token is mistyped or cut: its checksum does not match")
	// ErrKind: the token is of a kind that this program does not know, or of
	// one that does not fit the use.
	ErrKind = errors.New("wrong kind of token")
	// ErrShort: a text of the administrator's own has fewer than MinText
	// characters, or more than MaxText.
	ErrShort = fmt.Errorf("an admin token needs %d to %d characters", MinText, MaxText)
)

// Bounds of an administrator's own token text, in bytes.
const (
	MinText = 32
	MaxText = 1024
)

// AdminTextID is the ID under which the store keeps the token made from an
// administrator's own text. No minted token has it: theirs have 12 characters.
const AdminTextID = "admin"

// Ticket is the kind of a one-time ticket, which no store keeps.
const Ticket store.TokenKind = "tkt"

const (
	prefix    = "mcpb_"
	kindLen   = 3
	idLen     = 12 // 60 bits when minted: unique, not secret
	secretLen = 43 // 256 bits
	crcLen    = 6  // 32 bits

	idAt      = len(prefix) + kindLen + 1
	secretAt  = idAt + idLen + 1
	crcAt     = secretAt + secretLen
	tokenLen  = crcAt + crcLen
	secretNum = 32 // bytes
)

// New mints a token of that kind; bridge is empty for an admin token and a REST key. The Secret
// is the only copy of the token's text. The token never expires unless the caller
// sets Expires.
func New(kind store.TokenKind, bridge session.BridgeID, now time.Time) (store.Token, Secret) {
	if !known(kind) {
		panic(fmt.Sprintf("credential: no such kind of token: %q", string(kind)))
	}
	id := rand.Text()[:idLen]
	var random [secretNum]byte
	rand.Read(random[:]) //nolint:errcheck // never fails since Go 1.24
	body := prefix + string(kind) + "_" + id + "_" + encode62(new(big.Int).SetBytes(random[:]), secretLen)
	text := body + checksum(body)
	return store.Token{
		ID:      id,
		Kind:    kind,
		Bridge:  bridge,
		Hash:    sha256.Sum256([]byte(text)),
		Created: now,
	}, Secret{text}
}

// Parse splits a minted token's text into its kind and ID, without telling
// whether such a token exists. ErrMalformed, ErrKind, ErrChecksum.
func Parse(text string) (store.TokenKind, string, error) {
	if len(text) != tokenLen || text[:len(prefix)] != prefix || text[idAt-1] != '_' || text[secretAt-1] != '_' {
		return "", "", ErrMalformed
	}
	id, rest := text[idAt:idAt+idLen], text[secretAt:]
	if !all62(id) || !all62(rest) {
		return "", "", ErrMalformed
	}
	kind := store.TokenKind(text[len(prefix) : idAt-1])
	if !known(kind) {
		return "", "", ErrKind
	}
	if checksum(text[:crcAt]) != text[crcAt:] {
		return "", "", ErrChecksum
	}
	return kind, id, nil
}

// Lookup tells under which ID the store would keep the token of that text,
// minted or the administrator's own: what an authenticator asks the store for,
// before [Verify]. ErrMalformed, ErrKind, ErrChecksum, ErrShort.
func Lookup(text string) (store.TokenKind, string, error) {
	if strings.HasPrefix(text, prefix) {
		return Parse(text)
	}
	if len(text) < MinText || len(text) > MaxText {
		return "", "", ErrShort
	}
	return store.AdminToken, AdminTextID, nil
}

// Verify tells whether text is the token's. It takes the same time for every
// token, so an authenticator verifies against the zero Token, which no text
// matches, when it finds none. It does not look at Expires.
func Verify(t store.Token, text string) bool {
	hash := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(hash[:], t.Hash[:]) == 1
}

// FromText makes an admin token of a text that the administrator brings: either
// one minted before, which keeps its ID, or any other of MinText to MaxText
// characters, which gets AdminTextID. A text that begins like a minted token must
// be a whole one. ErrShort, ErrMalformed, ErrKind, ErrChecksum.
func FromText(text string, now time.Time) (store.Token, error) {
	kind, id, err := Lookup(text)
	if err != nil {
		return store.Token{}, err
	}
	if kind != store.AdminToken {
		return store.Token{}, ErrKind
	}
	return store.Token{ID: id, Kind: kind, Hash: sha256.Sum256([]byte(text)), Created: now}, nil
}

func known(kind store.TokenKind) bool {
	switch kind {
	case store.ClientToken, store.ProviderToken, store.AdminToken, store.RESTKey, Ticket:
		return true
	}
	return false
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func all62(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(base62, s[i]) < 0 {
			return false
		}
	}
	return true
}

// encode62 is n in width digits, the most significant first.
func encode62(n *big.Int, width int) string {
	digits := make([]byte, width)
	radix, digit := big.NewInt(62), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, radix, digit)
		digits[i] = base62[digit.Int64()]
	}
	return string(digits)
}

func checksum(body string) string {
	return encode62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), crcLen)
}
