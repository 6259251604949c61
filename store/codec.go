package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"mcpbridge/session"
)

// Every value is one record:
//
//	version   1 byte, recordV1, or recordV2 for what says so
//	checksum  4 bytes, big endian: CRC-32C of key and payload
//	payload   fields in order, no names
//
// A payload is made of uvarint and varint as in encoding/binary, of strings
// (uvarint length, bytes) and of times: one byte 0 for the zero time, or one byte
// 1, varint Unix seconds, uvarint nanoseconds. Raw JSON is a string: it must come
// back byte for byte, which encoding/json does not promise for a RawMessage (it
// compacts it and escapes <, > and &).
const (
	recordV1   = 1
	recordV2   = 2
	recordHead = 5 // version and checksum, in bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Reasons why a record cannot be read.
var (
	errShort    = errors.New("the record is cut short")
	errLong     = errors.New("the record has bytes left over")
	errValue    = errors.New("the record has a value out of its range")
	errChecksum = errors.New("the record's checksum is wrong")
)

// newerRecordError is a whole record of a version that this program does not know.
type newerRecordError byte

func (v newerRecordError) Error() string {
	return fmt.Sprintf("the record's version is %d, this program reads %d to %d", byte(v), recordV1, recordV2)
}

// checksum covers the key too: a record that strayed to another key is damage.
func checksum(key, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, payload)
}

// payloadOf checks a record's version and checksum. The payload is part of record.
func payloadOf(key, record []byte) ([]byte, error) {
	if len(record) < recordHead {
		return nil, errShort
	}
	payload := record[recordHead:]
	whole := binary.BigEndian.Uint32(record[1:]) == checksum(key, payload)
	switch v := record[0]; {
	case v > recordV2 && whole:
		return nil, newerRecordError(v)
	case v < recordV1 || v > recordV2:
		return nil, fmt.Errorf("the record's version is %d, this program reads %d to %d", v, recordV1, recordV2)
	case !whole:
		return nil, errChecksum
	}
	return payload, nil
}

// encoder appends fields to a record.
type encoder []byte

func newEncoder(size int) encoder {
	return append(make(encoder, 0, recordHead+size), recordV1, 0, 0, 0, 0)
}

func (e *encoder) uint(v uint64) { *e = binary.AppendUvarint(*e, v) }
func (e *encoder) int(v int64)   { *e = binary.AppendVarint(*e, v) }

func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		*e = append(*e, 0)
		return
	}
	*e = append(*e, 1)
	e.int(t.Unix())
	e.uint(uint64(t.Nanosecond())) //nolint:gosec // 0 to 999,999,999
}

func put[T ~string | ~[]byte](e *encoder, s T) {
	e.uint(uint64(len(s)))
	*e = append(*e, s...)
}

// seal writes the checksum and returns the finished record.
func (e encoder) seal(key []byte) []byte {
	binary.BigEndian.PutUint32(e[1:], checksum(key, e[recordHead:]))
	return e
}

// decoder reads fields from a copy of the payload, so that nothing it returns
// can point into the file's memory map. The first fault sticks; the values read
// after it are zero.
type decoder struct {
	s   string
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.s = ""
}

func (d *decoder) byte() byte {
	if len(d.s) == 0 {
		d.fail(errShort)
		return 0
	}
	b := d.s[0]
	d.s = d.s[1:]
	return b
}

func (d *decoder) uint() uint64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		b := d.byte()
		if shift == 63 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	d.fail(errValue)
	return 0
}

func (d *decoder) int() int64 {
	u := d.uint()
	v := int64(u >> 1) //nolint:gosec // zigzag, as in encoding/binary
	if u&1 != 0 {
		v = ^v
	}
	return v
}

// upTo reads a number of 0 to limit.
func (d *decoder) upTo(limit int) int {
	v := d.uint()
	if v > uint64(limit) { //nolint:gosec // limit is a length
		d.fail(errValue)
		return 0
	}
	return int(v) //nolint:gosec // at most limit
}

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.s)) {
		d.fail(errShort)
		return ""
	}
	s := d.s[:n]
	d.s = d.s[n:]
	return s
}

func (d *decoder) bytes() []byte {
	if s := d.string(); s != "" {
		return []byte(s)
	}
	return nil
}

func (d *decoder) time() time.Time {
	switch d.byte() {
	case 0:
		return time.Time{}
	case 1:
		sec := d.int()
		return time.Unix(sec, int64(d.upTo(999_999_999))).UTC()
	}
	d.fail(errValue)
	return time.Time{}
}

// end returns the first fault; bytes left over are one.
func (d *decoder) end() error {
	if d.err == nil && d.s != "" {
		return errLong
	}
	return d.err
}

// decode reads a whole record of version 1 with fields.
func decode(key, record []byte, fields func(*decoder)) error {
	return decodeGrown(key, record, fields, nil)
}

// decodeGrown reads a record that has more fields in version 2; nil for one that has none.
func decodeGrown(key, record []byte, fields, more func(*decoder)) error {
	payload, err := payloadOf(key, record)
	if err != nil {
		return err
	}
	if record[0] != recordV1 && more == nil {
		return fmt.Errorf("the record's version is %d, this program reads %d", record[0], recordV1)
	}
	d := decoder{s: string(payload)}
	fields(&d)
	if record[0] != recordV1 {
		more(&d)
	}
	return d.end()
}

// Bridge: id, name, owner, policy, created, updated, version; in recordV2 also
// tenant.
func encodeBridge(key []byte, b Bridge) []byte {
	e := newEncoder(len(b.ID) + len(b.Name) + len(b.Owner) + len(b.Policy) + 64)
	put(&e, b.ID)
	put(&e, b.Name)
	put(&e, b.Owner)
	put(&e, b.Policy)
	e.time(b.Created)
	e.time(b.Updated)
	e.uint(b.Version)
	if b.Tenant != "" {
		e[0] = recordV2
		put(&e, b.Tenant)
	}
	return e.seal(key)
}

func decodeBridge(key, record []byte) (b Bridge, err error) {
	err = decodeGrown(key, record, func(d *decoder) {
		b = Bridge{
			ID:      session.BridgeID(d.string()),
			Name:    d.string(),
			Owner:   d.string(),
			Policy:  d.bytes(),
			Created: d.time(),
			Updated: d.time(),
			Version: d.uint(),
		}
	}, func(d *decoder) { b.Tenant = TenantID(d.string()) })
	return b, err
}

// Token: id, kind, bridge, hash (32 bytes without a length), created, expires; in
// recordV2 also tenant, name, scopes, by. LastUsed is a record of its own.
func encodeToken(key []byte, t Token) []byte {
	e := newEncoder(len(t.ID) + len(t.Kind) + len(t.Bridge) + len(t.Hash) + len(t.Tenant) + len(t.Name) + len(t.Scopes) + len(t.By) + 64)
	put(&e, t.ID)
	put(&e, t.Kind)
	put(&e, t.Bridge)
	e = append(e, t.Hash[:]...)
	e.time(t.Created)
	e.time(t.Expires)
	if t.Tenant != "" || t.Name != "" || t.Scopes != "" || t.By != "" {
		e[0] = recordV2
		put(&e, t.Tenant)
		put(&e, t.Name)
		put(&e, t.Scopes)
		put(&e, t.By)
	}
	return e.seal(key)
}

func decodeToken(key, record []byte) (t Token, err error) {
	err = decodeGrown(key, record, func(d *decoder) {
		t = Token{ID: d.string(), Kind: TokenKind(d.string()), Bridge: session.BridgeID(d.string())}
		if len(d.s) < len(t.Hash) {
			d.fail(errShort)
			return
		}
		d.s = d.s[copy(t.Hash[:], d.s):]
		t.Created, t.Expires = d.time(), d.time()
	}, func(d *decoder) {
		t.Tenant, t.Name, t.Scopes, t.By = TenantID(d.string()), d.string(), d.string(), d.string()
	})
	return t, err
}

// minTool is the least a tool takes in a registration's head, in bytes: it
// bounds what a lying count makes the decoder allocate.
const minTool = 7

// Registration: uvarint length of the head; the head: provider, title, version,
// varint retain (ns), left at, uvarint number of tools, and for each name,
// exposed, uvarint name at, uvarint name end, varint timeout (ns), one byte
// headers (0 or 1), uvarint length of the definition; then the definitions, end
// to end. So a load makes one copy of the definitions, whatever their number.
// In recordV2 the head ends with instructions, extensions and experimental.
// A tool's flags: one byte.
const (
	headersFlag = 1 // Headers
	kindShift   = 1 // Kind is in the bits above it
)

func encodeRegistration(key []byte, r session.Registration) ([]byte, error) {
	if err := validRegistration(r); err != nil {
		return nil, err
	}
	size := 0
	var h encoder
	put(&h, r.Provider)
	put(&h, r.Title)
	put(&h, r.Version)
	h.int(int64(r.Retain))
	h.time(r.LeftAt)
	h.uint(uint64(len(r.Tools)))
	for i := range r.Tools {
		t := &r.Tools[i]
		put(&h, t.Name)
		put(&h, t.Exposed)
		h.uint(uint64(t.NameAt))  //nolint:gosec // valid: not negative
		h.uint(uint64(t.NameEnd)) //nolint:gosec // valid: not negative
		h.int(int64(t.Timeout))
		flags := byte(t.Kind) << kindShift
		if t.Headers {
			flags |= headersFlag
		}
		h = append(h, flags)
		h.uint(uint64(len(t.Definition)))
		size += len(t.Definition)
	}
	version := byte(recordV1) // as long as it has no more to say
	if a := r.About; a.Instructions != "" || len(a.Extensions) > 0 || len(a.Experimental) > 0 {
		version = recordV2
		put(&h, a.Instructions)
		put(&h, a.Extensions)
		put(&h, a.Experimental)
	}
	e := newEncoder(binary.MaxVarintLen64 + len(h) + size)
	e[0] = version
	put(&e, h)
	for i := range r.Tools {
		e = append(e, r.Tools[i].Definition...)
	}
	return e.seal(key), nil
}

func decodeRegistration(key, record []byte) (session.Registration, error) {
	payload, err := payloadOf(key, record)
	if err != nil {
		return session.Registration{}, err
	}
	n, at := binary.Uvarint(payload)
	if at <= 0 || n > uint64(len(payload)-at) {
		return session.Registration{}, errShort
	}
	d := decoder{s: string(payload[at : at+int(n)])} //nolint:gosec // n is at most len(payload)
	bodies := slices.Clone(payload[at+int(n):])      //nolint:gosec // as above
	r := session.Registration{
		Provider: session.ProviderID(d.string()),
		Title:    d.string(),
		Version:  d.string(),
		Retain:   time.Duration(d.int()),
		LeftAt:   d.time(),
	}
	if count := d.upTo(len(d.s) / minTool); count > 0 {
		r.Tools = make([]session.Tool, count)
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		t.Name, t.Exposed = d.string(), d.string()
		at, end := d.uint(), d.uint()
		t.Timeout = time.Duration(d.int())
		flags := d.byte()
		size := d.uint()
		switch {
		case d.err != nil:
			return session.Registration{}, d.err
		case flags>>kindShift >= byte(session.NumKinds) || at > end || end > size:
			return session.Registration{}, errValue
		case size > uint64(len(bodies)):
			return session.Registration{}, errShort
		}
		t.NameAt, t.NameEnd, t.Headers = int(at), int(end), flags&headersFlag != 0 //nolint:gosec // at most size
		t.Kind = session.Kind(flags >> kindShift)
		if size > 0 {
			t.Definition = json.RawMessage(bodies[:size:size])
		}
		bodies = bodies[size:]
	}
	if record[0] == recordV2 {
		r.About = session.About{Instructions: d.string(), Extensions: d.bytes(), Experimental: d.bytes()}
	}
	if err := d.end(); err != nil {
		return session.Registration{}, err
	}
	if len(bodies) > 0 {
		return session.Registration{}, errLong
	}
	return r, nil
}

// Empty: no fields. It is the value of a key that says all; its checksum keeps
// the key from changing unseen.
func encodeEmpty(key []byte) []byte { return newEncoder(0).seal(key) }

// Number: one uvarint. A bridge's revision is one.
func encodeNumber(key []byte, v uint64) []byte {
	e := newEncoder(binary.MaxVarintLen64)
	e.uint(v)
	return e.seal(key)
}

func decodeNumber(key, record []byte) (v uint64, err error) {
	err = decode(key, record, func(d *decoder) { v = d.uint() })
	return v, err
}

// Ending: the time until which an ended session is remembered.
func encodeEnding(key []byte, until time.Time) []byte {
	e := newEncoder(24)
	e.time(until)
	return e.seal(key)
}

func decodeEnding(key, record []byte) (until time.Time, err error) {
	err = decode(key, record, func(d *decoder) { until = d.time() })
	return until, err
}

// Secret: its bytes.
func encodeSecret(key, secret []byte) []byte {
	e := newEncoder(len(secret) + binary.MaxVarintLen64)
	put(&e, secret)
	return e.seal(key)
}

func decodeSecret(key, record []byte) (secret []byte, err error) {
	err = decode(key, record, func(d *decoder) { secret = d.bytes() })
	return secret, err
}
