package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mcpbridge/session"
)

var update = flag.Bool("update", false, "write the golden files of the current record version")

var golden = struct {
	bridge       Bridge
	token        Token
	registration session.Registration
	number       uint64
	ending       time.Time
	secret       []byte
	task         session.Task
	pin          session.Pinned
	tenant       Tenant
}{
	bridge: Bridge{
		ID: "abcdefghijklmnopqrstuvwxyz", Name: "Ann's <bridge>", Owner: "ann",
		Policy:  json.RawMessage("{ \"instances\" : \"single\",\n\"x\":9007199254740993 }"),
		Created: time.Unix(1_785_240_000, 123_456_789).UTC(), Updated: time.Unix(-1, 0).UTC(), Version: 300,
	},
	token: Token{
		ID: "t0123", Kind: ProviderToken, Bridge: "abcdefghijklmnopqrstuvwxyz",
		Hash: [32]byte{0: 0xff, 31: 0x01}, Created: time.Unix(1_785_240_000, 1).UTC(),
	},
	registration: session.Registration{
		Provider: "default", Title: "T", Version: "1.0", Retain: 24 * time.Hour, LeftAt: time.Unix(1_785_240_001, 0).UTC(),
		Tools: []session.Tool{
			{
				Name: "add", Exposed: "add-1a2b", Definition: json.RawMessage("{ \"name\":\"add\", \"description\":\"<b>&\u2028\\u2028\" }\n"),
				NameAt: 9, NameEnd: 14, Timeout: 90 * time.Second, Headers: true,
			},
			{Name: "bare", Exposed: "bare"},
		},
	},
	tenant: Tenant{ID: "team", Name: "The <team>", Created: time.Unix(1_785_240_000, 123_456_789).UTC(), Updated: time.Unix(1_785_240_001, 0).UTC(), Version: 300},
	number: 1<<64 - 1,
	ending: time.Unix(1_785_240_002, 5).UTC(),
	secret: []byte("\x00secret\xff"),
	task: session.Task{
		ID: "abcdefghijklmnopqrstuvwxyz", Principal: "client:ann", Tool: "add-1a2b",
		Created: time.Unix(1_785_240_000, 1).UTC(), Updated: time.Unix(1_785_240_003, 2).UTC(),
		Expires: time.Unix(1_785_326_400, 1).UTC(), Deadline: time.Unix(1_785_243_600, 1).UTC(),
		Status: session.TaskAsking, Message: "half done",
		Inputs: []session.TaskInput{
			{Key: "name", Own: "name", Request: json.RawMessage(`{"method":"elicitation/create"}`), Answer: json.RawMessage(`{"action":"accept"}`)},
			{Key: "name-2", Own: "name", Request: json.RawMessage(`{ "method":"roots/list" }`)},
		},
		State: json.RawMessage(`"s"`), Result: json.RawMessage(`{"n":9007199254740993}`),
		Failure:  &session.TaskFailure{Reason: session.ReasonProtocolError, Code: -32603, Message: "m", Data: json.RawMessage(`[1]`)},
		Provider: "default", Key: "k", CallID: "ABCDEFGH-7", Arguments: json.RawMessage(`{ }`),
		ClientName: json.RawMessage(`"c"`), ClientVersion: json.RawMessage(`"1"`), Capabilities: json.RawMessage(`{}`),
	},
	pin: session.Pinned{
		PinKey: session.PinKey{Provider: "default", Kind: session.KindPrompt, Name: "add\x00"},
		Hash:   [32]byte{0: 0xff, 31: 0x01}, Rejected: true, Since: time.Unix(1_785_240_004, 3).UTC(),
		Held: &session.Tool{
			Kind: session.KindPrompt, Name: "add\x00", Definition: json.RawMessage("{ \"name\":\"add\\u0000\" }\n"),
			NameAt: 9, NameEnd: 20, Timeout: 90 * time.Second, Headers: true,
		},
	},
}

var key = []byte("key")

// readers decode a golden file each and tell whether it is as it was.
var readers = map[string]struct {
	encode func() []byte
	same   func(record []byte) (bool, error)
}{
	"bridge": {
		func() []byte { return encodeBridge(key, golden.bridge) },
		func(r []byte) (bool, error) {
			v, err := decodeBridge(key, r)
			return reflect.DeepEqual(v, golden.bridge), err
		},
	},
	"token": {
		func() []byte { return encodeToken(key, golden.token) },
		func(r []byte) (bool, error) { v, err := decodeToken(key, r); return v == golden.token, err },
	},
	"registration": {
		func() []byte { r, _ := encodeRegistration(key, golden.registration); return r },
		func(r []byte) (bool, error) {
			v, err := decodeRegistration(key, r)
			return reflect.DeepEqual(v, golden.registration), err
		},
	},
	"number": {
		func() []byte { return encodeNumber(key, golden.number) },
		func(r []byte) (bool, error) { v, err := decodeNumber(key, r); return v == golden.number, err },
	},
	"ending": {
		func() []byte { return encodeEnding(key, golden.ending) },
		func(r []byte) (bool, error) { v, err := decodeEnding(key, r); return v.Equal(golden.ending), err },
	},
	"secret": {
		func() []byte { return encodeSecret(key, golden.secret) },
		func(r []byte) (bool, error) {
			v, err := decodeSecret(key, r)
			return bytes.Equal(v, golden.secret), err
		},
	},
	"task": {
		func() []byte { return encodeTask(key, golden.task) },
		func(r []byte) (bool, error) {
			v, err := decodeTask(key, r)
			return reflect.DeepEqual(v, golden.task), err
		},
	},
	"pin": {
		func() []byte { return encodePin(key, golden.pin) },
		func(r []byte) (bool, error) {
			v, err := decodePin(key, r)
			return reflect.DeepEqual(v, golden.pin), err
		},
	},
	"tenant": {
		func() []byte { return encodeTenant(key, golden.tenant) },
		func(r []byte) (bool, error) { v, err := decodeTenant(key, r); return v == golden.tenant, err },
	},
	"empty": {
		func() []byte { return encodeEmpty(key) },
		func(r []byte) (bool, error) { v, err := payloadOf(key, r); return len(v) == 0, err },
	},
}

// TestRecordsOfVersion1StayReadable reads files that older programs wrote. A
// changed record gets a new version and new files; these stay.
func TestRecordsOfVersion1StayReadable(t *testing.T) {
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "v1", name)
			if *update {
				if err := os.WriteFile(path, r.encode(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			record, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := r.same(record); err != nil || !same {
				t.Errorf("read back: same %t, %v", same, err)
			}
			if now := r.encode(); !bytes.Equal(now, record) {
				t.Errorf("now written as %x, was %x", now, record)
			}
		})
	}
}

// TestRegistrationsOfVersion2StayReadable: what a provider says of itself came with
// version 2; a registration without it is still written as version 1.
func TestRegistrationsOfVersion2StayReadable(t *testing.T) {
	want := golden.registration
	want.About = session.About{
		Instructions: "Call add first.\n", Extensions: json.RawMessage(`{"io.example/x":{ }}`), Experimental: json.RawMessage(`{"y":1}`),
	}
	path := filepath.Join("testdata", "v2", "registration")
	now, err := encodeRegistration(key, want)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	record, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeRegistration(key, record); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read back %+v, %v", got, err)
	}
	if !bytes.Equal(now, record) {
		t.Errorf("now written as %x, was %x", now, record)
	}
	if _, err := decodeNumber(key, encoder(bytes.Clone(record)).seal(key)); err == nil {
		t.Error("another kind of record is read in version 2")
	}
	record[0] = 3
	if _, err := decodeRegistration(key, record); err == nil || err.Error() != "the record's version is 3, this program reads 1 to 2" {
		t.Errorf("version 3: %v", err)
	}
}

// TestBridgesAndTokensOfVersion2StayReadable: tenants and what is known of a key came
// with version 2; what has none of it is still written as version 1.
func TestBridgesAndTokensOfVersion2StayReadable(t *testing.T) {
	b, k := golden.bridge, golden.token
	b.Tenant = "team"
	k.Kind, k.Bridge, k.Tenant, k.Name, k.Scopes, k.By = RESTKey, "", "team", "Ann's script", "bridges:read tokens:write", "t0000"
	for name, now := range map[string][]byte{"bridge": encodeBridge(key, b), "token": encodeToken(key, k)} {
		path := filepath.Join("testdata", "v2", name)
		if *update {
			if err := os.WriteFile(path, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		record, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(now, record) {
			t.Errorf("%s: now written as %x, was %x", name, now, record)
		}
		switch name {
		case "bridge":
			if got, err := decodeBridge(key, record); err != nil || !reflect.DeepEqual(got, b) {
				t.Errorf("read back %+v, %v", got, err)
			}
		case "token":
			if got, err := decodeToken(key, record); err != nil || got != k {
				t.Errorf("read back %+v, %v", got, err)
			}
		}
	}
}

func TestEveryFlippedBitAndCutIsFound(t *testing.T) {
	for name, r := range readers {
		record := r.encode()
		for n := range record {
			if _, err := r.same(record[:n]); err == nil {
				t.Errorf("%s cut to %d bytes is read", name, n)
			}
			for bit := range 8 {
				flipped := bytes.Clone(record)
				flipped[n] ^= 1 << bit
				if _, err := r.same(flipped); err == nil {
					t.Errorf("%s with bit %d of byte %d flipped is read", name, bit, n)
				}
			}
		}
		if _, err := payloadOf([]byte("other"), record); !errors.Is(err, errChecksum) {
			t.Errorf("%s under another key: %v", name, err)
		}
	}
}

func TestALaterRecordVersionIsNamed(t *testing.T) {
	record := encodeNumber(key, 1)
	record[0] = 2
	if _, err := decodeNumber(key, record); err == nil || err.Error() != "the record's version is 2, this program reads 1" {
		t.Errorf("decode = %v", err)
	}
}

// TestDecodedValuesAreCopies writes over the record that was decoded, as bbolt
// does with its memory map.
func TestDecodedValuesAreCopies(t *testing.T) {
	record := func(name string) ([]byte, func()) {
		r := readers[name].encode()
		return r, func() { clear(r) }
	}
	r, wipe := record("registration")
	registration, _ := decodeRegistration(key, r)
	wipe()
	r, wipe = record("bridge")
	b, _ := decodeBridge(key, r)
	wipe()
	r, wipe = record("token")
	k, _ := decodeToken(key, r)
	wipe()
	r, wipe = record("secret")
	secret, _ := decodeSecret(key, r)
	wipe()
	if !reflect.DeepEqual(registration, golden.registration) || !reflect.DeepEqual(b, golden.bridge) || k != golden.token || !bytes.Equal(secret, golden.secret) {
		t.Error("a decoded value changed with its record")
	}
}

func TestRegistrationsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := session.Registration{
			Provider: session.ProviderID(rapid.StringMatching(`[ -~]{1,128}`).Draw(t, "provider")),
			Title:    rapid.String().Draw(t, "title"), Version: rapid.String().Draw(t, "version"),
			Retain: time.Duration(rapid.Int64().Draw(t, "retain")),
		}
		if rapid.Bool().Draw(t, "left") {
			want.LeftAt = time.Unix(rapid.Int64().Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		}
		for range rapid.IntRange(0, 5).Draw(t, "tools") {
			u := session.Tool{
				Name: rapid.String().Draw(t, "name"), Exposed: rapid.String().Draw(t, "exposed"),
				Timeout: time.Duration(rapid.Int64().Draw(t, "timeout")), Headers: rapid.Bool().Draw(t, "headers"),
			}
			if def := rapid.SliceOf(rapid.Byte()).Draw(t, "definition"); len(def) > 0 {
				u.Definition = def
				u.NameEnd = rapid.IntRange(0, len(def)).Draw(t, "end")
				u.NameAt = rapid.IntRange(0, u.NameEnd).Draw(t, "at")
			}
			want.Tools = append(want.Tools, u)
		}
		record, err := encodeRegistration(key, want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRegistration(key, record); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestALyingCountAllocatesLittle: a count is believed only as far as bytes follow.
func TestALyingCountAllocatesLittle(t *testing.T) {
	var head encoder
	for range 3 {
		put(&head, "x")
	}
	head.int(0)
	head.time(time.Time{})
	head.uint(1 << 40) // tools
	e := newEncoder(0)
	put(&e, head)
	record := e.seal(key)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := decodeRegistration(key, record); err == nil {
		t.Error("it was read")
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 64<<10 {
		t.Errorf("%d bytes allocated for a record of %d", allocated, len(record))
	}
}

// fuzz seeds with a golden payload and checks that whatever is read reads back
// the same once it has been written.
func fuzz[T any](f *testing.F, name string, decode func(key, record []byte) (T, error), encode func(T) ([]byte, error)) {
	f.Add(readers[name].encode()[recordHead:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		e := newEncoder(len(payload))
		e = append(e, payload...)
		v, err := decode(key, e.seal(key)) // sealed: else the checksum would be all that is tried
		if err != nil {
			return
		}
		record, err := encode(v)
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		if again, err := decode(key, record); err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("got %+v, %v, want %+v", again, err, v)
		}
	})
}

func FuzzBridge(f *testing.F) {
	fuzz(f, "bridge", decodeBridge, func(b Bridge) ([]byte, error) { return encodeBridge(key, b), nil })
}

func FuzzToken(f *testing.F) {
	fuzz(f, "token", decodeToken, func(k Token) ([]byte, error) { return encodeToken(key, k), nil })
}

func FuzzRegistration(f *testing.F) {
	decode := func(key, record []byte) (session.Registration, error) {
		r, err := decodeRegistration(key, record)
		if err == nil && !r.Provider.Valid() {
			err = errValue // it is read, but would not be written
		}
		return r, err
	}
	fuzz(f, "registration", decode, func(r session.Registration) ([]byte, error) { return encodeRegistration(key, r) })
}

func FuzzNumber(f *testing.F) {
	fuzz(f, "number", decodeNumber, func(v uint64) ([]byte, error) { return encodeNumber(key, v), nil })
}

func FuzzEnding(f *testing.F) {
	fuzz(f, "ending", decodeEnding, func(v time.Time) ([]byte, error) { return encodeEnding(key, v), nil })
}

func FuzzSecret(f *testing.F) {
	fuzz(f, "secret", decodeSecret, func(v []byte) ([]byte, error) { return encodeSecret(key, v), nil })
}

func FuzzTask(f *testing.F) {
	fuzz(f, "task", decodeTask, func(t session.Task) ([]byte, error) { return encodeTask(key, t), nil })
}

func FuzzPin(f *testing.F) {
	decode := func(key, record []byte) (session.Pinned, error) {
		p, err := decodePin(key, record)
		if err == nil {
			err = validPin(&p) // it is read, but would not be written
		}
		return p, err
	}
	fuzz(f, "pin", decode, func(p session.Pinned) ([]byte, error) { return encodePin(key, p), nil })
}

func FuzzTenant(f *testing.F) {
	fuzz(f, "tenant", decodeTenant, func(t Tenant) ([]byte, error) { return encodeTenant(key, t), nil })
}

func FuzzRecord(f *testing.F) {
	for _, r := range readers {
		f.Add(r.encode())
	}
	f.Fuzz(func(_ *testing.T, record []byte) {
		for _, r := range readers {
			_, _ = r.same(record)
		}
	})
}

func TestBytesLeftOverAreRefused(t *testing.T) {
	for name, r := range readers {
		e := encoder(append(r.encode(), 0))
		if same, err := r.same(e.seal(key)); name != "empty" && !errors.Is(err, errLong) || same && err == nil {
			t.Errorf("%s with a byte left over: same %t, %v", name, same, err)
		}
	}
}
