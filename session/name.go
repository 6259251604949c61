package session

import (
	"crypto/sha256"
	"encoding/hex"
)

// MaxToolName is the longest exposed tool name, in bytes.
const MaxToolName = 128

// URIMark stands between a URI, or URI template, and the hash that tells it from
// another provider's: it begins a fragment, which no server resolves.
const URIMark = "#bridge-"

// SafeName is name in the characters that every client takes,
// [A-Za-z0-9_.-]: others become "_". A name that is too long is cut, and ends in
// a hash of the whole. The empty name stays empty.
func SafeName(name string) string {
	safe := []byte(name)
	for i, c := range safe {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-') {
			safe[i] = '_'
		}
	}
	if len(safe) > MaxToolName {
		return string(safe[:MaxToolName-9]) + "-" + nameHash(name, 8)
	}
	return string(safe)
}

// nameHash is the first hexadecimal digits of a name's SHA-256, at most 64.
func nameHash(name string, digits int) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:digits]
}
