package session

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// BridgeID names a Bridge in its URL: 1 to 64 of [A-Za-z0-9_-].
type BridgeID string

// MaxBridgeID is the longest BridgeID, in bytes.
const MaxBridgeID = 64

// mintAlphabet is lower-case base32 (RFC 4648, section 6), without padding.
var mintAlphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewBridgeID mints an unguessable ID: 26 characters of base32, 128 bits.
func NewBridgeID() BridgeID {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return BridgeID(mintAlphabet.EncodeToString(b[:]))
}

// Valid tells whether the ID has the permitted length and characters.
func (id BridgeID) Valid() bool {
	if len(id) == 0 || len(id) > MaxBridgeID {
		return false
	}
	return strings.IndexFunc(string(id), func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	}) < 0
}

// ProviderID is the stable name of a Provider within its Bridge: 1 to 128 bytes
// of printable text.
type ProviderID string

// DefaultProvider is who speaks on a socket that names nobody.
const DefaultProvider ProviderID = "default"

// MaxProviderID is the longest ProviderID, in bytes.
const MaxProviderID = 128

// Valid tells whether the name has the permitted length and only printable
// ASCII, so that it is safe in logs, headers and pages.
func (id ProviderID) Valid() bool {
	if len(id) == 0 || len(id) > MaxProviderID {
		return false
	}
	return strings.IndexFunc(string(id), func(r rune) bool { return r < ' ' || r > '~' }) < 0
}
