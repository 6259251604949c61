package store

import (
	"fmt"

	"mcpbridge/session"
)

// Task: ID, principal, tool; created, updated, expires, deadline; one byte status,
// message; uvarint number of inputs and for each key, own, request, answer; state;
// result; one byte 1 and the failure, which is reason (one byte), varint code, message
// and data, or one byte 0; provider, key, call ID, arguments, client's name and
// version, capabilities.
func encodeTask(key []byte, t session.Task) []byte {
	e := newEncoder(len(t.Arguments) + len(t.Result) + 1024)
	put(&e, t.ID)
	put(&e, t.Principal)
	put(&e, t.Tool)
	e.time(t.Created)
	e.time(t.Updated)
	e.time(t.Expires)
	e.time(t.Deadline)
	e = append(e, byte(t.Status))
	put(&e, t.Message)
	e.uint(uint64(len(t.Inputs)))
	for _, in := range t.Inputs {
		put(&e, in.Key)
		put(&e, in.Own)
		put(&e, in.Request)
		put(&e, in.Answer)
	}
	put(&e, t.State)
	put(&e, t.Result)
	if f := t.Failure; f != nil {
		e = append(e, 1, byte(f.Reason))
		e.int(int64(f.Code))
		put(&e, f.Message)
		put(&e, f.Data)
	} else {
		e = append(e, 0)
	}
	put(&e, t.Provider)
	put(&e, t.Key)
	put(&e, t.CallID)
	put(&e, t.Arguments)
	put(&e, t.ClientName)
	put(&e, t.ClientVersion)
	put(&e, t.Capabilities)
	return e.seal(key)
}

// minInput is the least that an input takes, in bytes.
const minInput = 4

func decodeTask(key, record []byte) (t session.Task, err error) {
	err = decode(key, record, func(d *decoder) {
		t = session.Task{
			ID: session.TaskID(d.string()), Principal: d.string(), Tool: d.string(),
			Created: d.time(), Updated: d.time(), Expires: d.time(), Deadline: d.time(),
			Status: session.TaskStatus(d.enum(byte(session.NumTaskStatus))), Message: d.string(),
		}
		if n := d.upTo(len(d.s) / minInput); n > 0 {
			t.Inputs = make([]session.TaskInput, n)
		}
		for i := range t.Inputs {
			t.Inputs[i] = session.TaskInput{Key: d.string(), Own: d.string(), Request: d.bytes(), Answer: d.bytes()}
		}
		t.State, t.Result = d.bytes(), d.bytes()
		if d.enum(2) == 1 {
			t.Failure = &session.TaskFailure{
				Reason: session.Reason(d.enum(byte(session.NumReasons))), Code: int(d.int()), Message: d.string(), Data: d.bytes(),
			}
		}
		t.Provider, t.Key, t.CallID = session.ProviderID(d.string()), d.string(), d.string()
		t.Arguments, t.ClientName, t.ClientVersion, t.Capabilities = d.bytes(), d.bytes(), d.bytes(), d.bytes()
	})
	return t, err
}

// enum reads a byte below n.
func (d *decoder) enum(n byte) byte {
	b := d.byte()
	if b >= n {
		d.fail(errValue)
		return 0
	}
	return b
}

// validTask refuses what could not be read back.
func validTask(t *session.Task) error {
	if id := session.BridgeID(t.ID); !id.Valid() { // the same characters
		return fmt.Errorf("%.80q is not a task ID", string(t.ID))
	}
	if t.Status >= session.NumTaskStatus || t.Failure != nil && t.Failure.Reason >= session.NumReasons {
		return fmt.Errorf("task %s has no known status", t.ID)
	}
	return nil
}
