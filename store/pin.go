package store

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"mcpbridge/session"
)

// Flags of a Pin.
const (
	pinHeld     = 1 // something is held: it follows
	pinRejected = 2
)

// pinKey hides the name, which has no bound of its own.
func pinKey(bridge session.BridgeID, k session.PinKey) []byte {
	sum := sha256.Sum256(append([]byte{byte(k.Kind)}, string(k.Provider)+"\x00"+k.Name...)) // no provider ID has a 0x00
	return within(bridge, sum[:])
}

// Pin: provider, one byte kind, name, hash (32 bytes without a length), since, one byte
// flags; where something is held: uvarint name at, uvarint name end, varint timeout (ns),
// one byte headers (0 or 1), definition.
func encodePin(key []byte, p session.Pinned) []byte {
	e := newEncoder(len(p.Provider) + len(p.Name) + len(p.Hash) + 64)
	put(&e, p.Provider)
	e = append(e, byte(p.Kind))
	put(&e, p.Name)
	e = append(e, p.Hash[:]...)
	e.time(p.Since)
	var flags byte
	if p.Held != nil {
		flags |= pinHeld
	}
	if p.Rejected {
		flags |= pinRejected
	}
	e = append(e, flags)
	if t := p.Held; t != nil {
		e.uint(uint64(t.NameAt))  //nolint:gosec // valid: not negative
		e.uint(uint64(t.NameEnd)) //nolint:gosec // valid: not negative
		e.int(int64(t.Timeout))
		if t.Headers {
			e = append(e, 1)
		} else {
			e = append(e, 0)
		}
		put(&e, t.Definition)
	}
	return e.seal(key)
}

func decodePin(key, record []byte) (p session.Pinned, err error) {
	err = decode(key, record, func(d *decoder) {
		p.PinKey = session.PinKey{
			Provider: session.ProviderID(d.string()), Kind: session.Kind(d.enum(byte(session.NumKinds))), Name: d.string(),
		}
		if len(d.s) < len(p.Hash) {
			d.fail(errShort)
			return
		}
		d.s = d.s[copy(p.Hash[:], d.s):]
		p.Since = d.time()
		flags := d.enum(pinHeld | pinRejected + 1)
		p.Rejected = flags&pinRejected != 0
		if flags&pinHeld == 0 {
			return
		}
		at, end := d.uint(), d.uint()
		t := &session.Tool{Kind: p.Kind, Name: p.Name, Timeout: time.Duration(d.int()), Headers: d.enum(2) == 1, Definition: d.bytes()}
		if at > end || end > uint64(len(t.Definition)) {
			d.fail(errValue)
			return
		}
		t.NameAt, t.NameEnd = int(at), int(end) //nolint:gosec // at most the definition's length
		p.Held = t
	})
	return p, err
}

func sortPins(pins []session.Pinned) {
	slices.SortFunc(pins, func(a, b session.Pinned) int { return a.PinKey.Compare(b.PinKey) })
}

// validPin refuses what could not be read back.
func validPin(p *session.Pinned) error {
	if !p.Provider.Valid() {
		return fmt.Errorf("%.80q is not a provider ID", string(p.Provider))
	}
	if p.Kind >= session.NumKinds {
		return fmt.Errorf("pin %.80q: there is no kind %d", p.Name, p.Kind)
	}
	if t := p.Held; t != nil && (t.Kind != p.Kind || t.Name != p.Name) {
		return fmt.Errorf("pin %.80q holds %.80q", p.Name, t.Name)
	} else if t != nil {
		return validTool(t)
	}
	return nil
}
