package stdio

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
)

// idOf feeds a message in pieces of a size.
func idOf(message []byte, size int) (id []byte, method bool) {
	e := &envelope{}
	for len(message) > 0 {
		n := min(size, len(message))
		e.feed(message[:n])
		message = message[n:]
	}
	return e.id, e.method
}

func TestEnvelopeFindsTheIDOfALongMessage(t *testing.T) {
	for _, c := range []struct {
		message, id string
		method      bool
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{"id":8,"method":"no"}}`, `7`, false},
		{`{"result":{"a":[{"id":1}],"s":"}\"{"},"id":"a\"b"}`, `"a\"b"`, false},
		{` { "id" : -1.5e3 , "error":{} } `, `-1.5e3`, false},
		{`{"id":1,"method":"x"}`, `1`, true},
		{`{"method":"x","params":{"id":1}}`, ``, true},
		{`{"id":null,"result":{}}`, `null`, false},
		{`{"x":"id","result":{}}`, ``, false},
		{`{"id":"` + strings.Repeat("x", maxID) + `"}`, ``, false},
		{`{"id":tru}`, ``, false},
		{`[{"id":1}]`, ``, false},
	} {
		for _, size := range []int{1, 3, 1 << 20} {
			if id, method := idOf([]byte(c.message), size); string(id) != c.id || method != c.method {
				t.Errorf("%.60s in pieces of %d: id %q, method %t", c.message, size, id, method)
			}
		}
	}
}

// FuzzEnvelope: of what is a JSON object, the id is the one that encoding/json finds
// first, however the message is cut.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`), 3)
	f.Add([]byte(`{"a":"\\","id":"\"","id":2}`), 1)
	f.Fuzz(func(t *testing.T, message []byte, size int) {
		if size < 1 || size > len(message) {
			size = 1
		}
		id, method := idOf(message, size)
		if again, also := idOf(message, len(message)); !bytes.Equal(id, again) || method != also {
			t.Fatalf("cut otherwise: %q %t and %q %t", id, method, again, also)
		}
		if id != nil && !json.Valid(id) {
			t.Fatalf("the id %q is no JSON", id)
		}
		if !json.Valid(message) || bytes.Contains(message, []byte(`\u`)) { // a name may be written with escapes
			return
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(message, &members) != nil || members == nil {
			if id != nil || method {
				t.Fatalf("%q is no object, but has %q %t", message, id, method)
			}
			return
		}
		if _, has := members["method"]; has != method {
			t.Fatalf("method is there: %t, found: %t", has, method)
		}
		if want, has := members["id"]; !has && id != nil {
			t.Fatalf("found %q, there is none", id)
		} else if has && want[0] != '{' && want[0] != '[' && len(want) <= maxID && bytes.Count(message, []byte(`"id"`)) == 1 && !bytes.Equal(id, want) {
			t.Fatalf("found %q, want %q", id, want)
		}
	})
}

func TestBackoffDoublesToItsCap(t *testing.T) {
	r := &runner{}
	want := backoffStart
	for n := range 100 {
		if d := r.backoff(); d < want/2 || d > want {
			t.Fatalf("wait %d is %v, want %v to %v", n, d, want/2, want)
		}
		want = min(2*want, backoffCap)
	}
}

func TestLinesThatAreNoMessagesAreShown(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":1}`: true, `[{"a":1}]`: true, `{"a":1`: false, `hello`: false, "{\"a\":\"\xff\"}": false, `7`: false,
	} {
		if isMessage([]byte(text)) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
	var b bytes.Buffer
	r := &runner{cfg: Config{Stderr: &b, Log: slog.New(slog.DiscardHandler)}, name: "srv"}
	r.show(strings.NewReader("one\r\n\ntwo"), " | ")
	r.print(" > ", bytes.Repeat([]byte("x"), shown+1))
	if want := "srv | one\nsrv | two\nsrv > " + strings.Repeat("x", shown) + "...\n"; b.String() != want {
		t.Errorf("shown %q", b.String())
	}
}

func TestMessagesThatAreTooLongBecomeErrors(t *testing.T) {
	r := &runner{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	for message, want := range map[string][2]string{
		`{"id":"a","result":{}}`: {`{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"the answer has 9 bytes; the bridge takes at most 8"}}`, ``},
		`{"id":1,"method":"x"}`:  {``, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the request has 9 bytes; the bridge takes at most 8"}}` + "\n"},
		`{"method":"x"}`:         {}, `{"result":1}`: {},
	} {
		e := &envelope{}
		e.feed([]byte(message))
		if on, back := r.tooLong(e, 9, 8); string(on) != want[0] || string(back) != want[1] {
			t.Errorf("instead of %s: %q on, %q back", message, on, back)
		}
	}
}

// TestARequestThatIsTooLongIsAnsweredHere: nobody else will.
func TestARequestThatIsTooLongIsAnsweredHere(t *testing.T) {
	r := &runner{cfg: Config{Log: slog.New(slog.DiscardHandler)}}
	request := `{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"x":"` + strings.Repeat("y", 200_000) + `"}}` + "\n"
	stdin, theirs := io.Pipe()
	defer stdin.Close()
	if err := r.up(t.Context(), nil, strings.NewReader(request), theirs, 100_000); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdin).ReadString('\n')
	if want := `{"jsonrpc":"2.0","id":"q","error":{"code":-32603,"message":"the request has 200079 bytes; the bridge takes at most 100000"}}` + "\n"; err != nil || line != want {
		t.Errorf("the server reads %q, %v", line, err)
	}
}
