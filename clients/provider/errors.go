package provider

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/coder/websocket"
)

// Causes ([context.Cause]) of the end of a handler's context, and what Run and
// SetTools return.
var (
	// ErrStopped ends calls and SetTools when Run's context has ended.
	ErrStopped = errors.New("provider: stopped")
	// ErrRunning is Run's answer when it was called before.
	ErrRunning = errors.New("provider: Run was called before")
	// ErrCancelled ends a call that the bridge cancelled: the client cancelled
	// it, went away, or the bridge's own deadline passed.
	ErrCancelled = errors.New("provider: call cancelled by the bridge")
	// ErrDeadline ends a call whose deadline passed.
	ErrDeadline = errors.New("provider: call deadline passed")
	// ErrForgotten ends a call that the bridge does not know any more after a
	// lost connection.
	ErrForgotten = errors.New("provider: the bridge no longer waits for this call")
)

// JSON-RPC error codes, for [Error].
const (
	CodeInvalidParams = -32602
	CodeInternal      = -32603
)

// Error, returned by a [Handler], reaches the client as a JSON-RPC error. It is
// for faults of the protocol. What the model should read and act upon belongs in
// a result: see [Failure].
type Error struct {
	// Code is the JSON-RPC code. The bridge passes -32602, -32603, -32000 to
	// -32019 and every code outside -32768 to -32000, and replaces others by
	// -32603.
	Code    int
	Message string
	// Data is encoded as JSON; a json.RawMessage passes byte for byte. Nil sends
	// none.
	Data any
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// The bridge's own close codes that make a difference.
const (
	closeBadHello   websocket.StatusCode = 4400
	closeCredential websocket.StatusCode = 4401
	closeNotYours   websocket.StatusCode = 4403
	closeReplaced   websocket.StatusCode = 4409
	closeFlood      websocket.StatusCode = 4429
)

// finalCodes are those with which a bridge says that dialling again is
// pointless.
var finalCodes = []websocket.StatusCode{closeBadHello, closeCredential, closeNotYours, closeReplaced}

// Refused is Run's error when the bridge will not have this provider, so that
// another attempt would end the same way.
type Refused struct {
	// Code is the WebSocket close code (4400 bad hello, 4401 credential refused
	// or revoked, 4403 not your bridge, 4409 replaced by a newer connection), or
	// the HTTP status (401, 403, 404) where the bridge refused the upgrade.
	Code int
	// Reason is the bridge's own text; may be empty.
	Reason string
}

func (r *Refused) Error() string {
	why := "refused"
	switch r.Code {
	case int(closeBadHello):
		why = "hello not accepted"
	case int(closeCredential), http.StatusUnauthorized:
		why = "credential refused or revoked"
	case int(closeNotYours), http.StatusForbidden:
		why = "not this provider's bridge"
	case int(closeReplaced):
		why = "replaced by a newer connection of the same provider"
	case http.StatusNotFound:
		why = "no such bridge"
	}
	if r.Reason != "" {
		return fmt.Sprintf("provider: the bridge says %d, %s: %s", r.Code, why, r.Reason)
	}
	return fmt.Sprintf("provider: the bridge says %d, %s", r.Code, why)
}

// RegisterError is SetTools's error when the bridge refused the whole set. Tools
// refused one by one are in [Registration.Rejected] instead.
type RegisterError struct {
	Code    string // the bridge's stable word for it
	Message string
}

func (e *RegisterError) Error() string {
	return fmt.Sprintf("provider: tools not registered: %s (%s)", e.Message, e.Code)
}

// TooBigError tells that a message exceeds the largest frame that the bridge
// takes. It was not sent.
type TooBigError struct {
	Bytes int // size of the frame that was not sent
	Limit int // limits.frameBytes of the bridge's welcome, or 8 MiB where it named none
}

func (e *TooBigError) Error() string {
	return fmt.Sprintf("the message is %d bytes and the bridge takes frames of at most %d bytes (limits.frameBytes)", e.Bytes, e.Limit)
}
