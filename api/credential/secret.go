package credential

import (
	"fmt"
	"log/slog"
)

// Secret holds a token's text so that it cannot be printed, logged or encoded by
// accident: everything but [Secret.Reveal] shows "[redacted]".
type Secret struct{ text string }

const redacted = "[redacted]"

// Reveal returns the text. Call it where the text is handed to its owner, and
// nowhere else.
func (s Secret) Reveal() string { return s.text }

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// Format implements fmt.Formatter for every verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
