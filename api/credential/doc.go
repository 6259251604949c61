// Package credential makes and checks bearer tokens.
//
// A token's text is
//
//	mcpb_<kind>_<id12>_<secret43><crc6>
//
// 71 characters of which double-click selects all: kind is a [store.TokenKind]
// (cli, prv, adm, pat), or that of a [Ticket] (tkt), id the public part by which the store finds the token, secret
// 256 random bits, and crc the CRC-32 (IEEE) of everything before it, so that a
// mistyped token is told from a revoked one without asking the store. The last
// three are base62 (0-9A-Za-z), fixed width.
//
// The store keeps the SHA-256 of the whole text and never the text. A plain hash
// is right for a secret of 256 bits; it would not be for a password.
//
// The administrator may bring a text of their own, of [MinText] characters or
// more, instead of a minted admin token: see [FromText].
package credential
