// Package seal makes handles: short texts that only the holder of the store's
// key can make or read, so that what they say need not be kept anywhere.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
)

// KeySize is the size of a Box's key, in bytes.
const KeySize = 32

// NewKey mints a key.
func NewKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key) //nolint:errcheck // never fails since Go 1.24
	return key
}

// Box seals and opens handles with one key: AES-256-GCM with a random nonce. Its
// methods may be called at once.
type Box struct{ aead cipher.AEAD }

// NewBox makes a Box from a key of KeySize bytes.
func NewBox(key []byte) (*Box, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Box{aead}, nil
}

// Seal makes a handle of text for a purpose, in characters that are safe in URLs
// and headers (base64url, RFC 4648 section 5). Its length is 4/3 of text's and 38
// more.
func (b *Box) Seal(purpose string, text []byte) string {
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(nil, nil, text, []byte(purpose)))
}

// Open reads a handle that was sealed for the same purpose. False for any other
// text.
func (b *Box) Open(purpose, handle string) ([]byte, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(handle)
	if err != nil {
		return nil, false
	}
	text, err := b.aead.Open(nil, nil, raw, []byte(purpose))
	return text, err == nil
}
