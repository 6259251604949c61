package session

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on. Each has a row in the error table (package api).
var (
	// ErrUnknownTool: no provider known to the bridge offers a tool of that name.
	ErrUnknownTool = errors.New("unknown tool")
	// ErrBusy is what every [LimitError] is: the same request may succeed later.
	ErrBusy = errors.New("limit reached")
	// ErrTimeout: the call's deadline passed. Whether the tool ran is unknown.
	ErrTimeout = errors.New("the call's deadline passed")
	// ErrCancelled: the client no longer wants the answer.
	ErrCancelled = errors.New("the call was cancelled")
	// ErrAway is what every [AwayError] is: the call was never delivered.
	ErrAway = errors.New("the tool's provider is not connected")
	// ErrProviderGone: the provider left after the call was handed to its
	// connection. Whether the tool ran is unknown.
	ErrProviderGone = errors.New("the tool's provider disconnected during the call; the outcome is unknown")
	// ErrCutOff: the session ended after the call was handed to a provider's connection.
	// It wraps beside why, so that what may be repeated can be told from what may not.
	ErrCutOff = errors.New("the call was delivered, and its outcome is unknown")
	// ErrNotHeld: what is to be approved or rejected is not what is held.
	ErrNotHeld = errors.New("that definition is not held: look again at what is")
	// ErrHeld: the provider has taken back what the tool's listed definition promises,
	// and the changed one waits for approval. The call was never delivered.
	ErrHeld = errors.New("the tool's provider has changed its definition and no longer promises what is listed (annotations); the call was not delivered: the bridge's owner can look at the change and approve it")
	// ErrBadResult: the provider's answer is not a tool result.
	ErrBadResult = errors.New("the provider's answer is not a tool result")
	// ErrResumed: a newer connection of the same instance has taken this one's place.
	ErrResumed = errors.New("a newer connection has resumed this one")
	// ErrReplaced: another live instance has taken this one's place, as the bridge's
	// policy wants it.
	ErrReplaced = errors.New("another instance has taken this one's place: the bridge allows a provider one")
	// ErrTaken: the provider has a live instance, and the bridge's policy wants no other.
	ErrTaken = errors.New("the provider has a live instance, and the bridge allows it one")
	// ErrNameTaken: another provider offers something of that name, and the bridge's
	// policy wants no other.
	ErrNameTaken = errors.New("another provider holds the name, and the bridge allows it one")
	// ErrEnded: the call has its outcome already.
	ErrEnded = errors.New("the call has ended")
	// ErrUnknownTask: the principal has no such task, or it was kept long enough.
	ErrUnknownTask = errors.New("there is no such task; it may have expired")
	// ErrStopped: the session had ended before it took the command, so nothing
	// has happened. Ask the directory for the bridge's session again, once.
	ErrStopped = errors.New("the session has ended")
	// ErrShutdown: the process is going away.
	ErrShutdown = errors.New("the bridge is shutting down")
	// ErrDeleted: the bridge was deleted.
	ErrDeleted = errors.New("the bridge was deleted")
	// ErrFenced: another process has taken over the bridge's shard.
	ErrFenced = errors.New("the bridge has moved to another process")
	// ErrBroken: a turn panicked; the session is given up and activated anew.
	ErrBroken = errors.New("the session failed")
)

// LimitError tells which bound was met. It is an [ErrBusy].
type LimitError struct {
	Limit string // what is bounded, in words, such as "calls in flight"
	Max   int    // the bound
	Unit  string // "bytes", or empty for a count
}

func (e *LimitError) Error() string {
	if e.Unit != "" {
		return fmt.Sprintf("limit reached: at most %d %s of %s", e.Max, e.Unit, e.Limit)
	}
	return fmt.Sprintf("limit reached: at most %d %s", e.Max, e.Limit)
}

// Is makes every LimitError an ErrBusy.
func (e *LimitError) Is(target error) bool { return target == ErrBusy }

// AwayError tells who would have answered, and since when it is away. It is an
// [ErrAway].
type AwayError struct {
	Provider ProviderID
	Since    time.Time
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("provider %q is not connected since %s; the call was not delivered: start the provider and call again",
		string(e.Provider), e.Since.UTC().Format(time.RFC3339))
}

// Is makes every AwayError an ErrAway.
func (e *AwayError) Is(target error) bool { return target == ErrAway }

// ProtocolError is a JSON-RPC error that the provider answered instead of a
// result.
type ProtocolError struct {
	Code    int
	Message string
	Data    []byte // one raw JSON value, or nil
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("provider error %d: %s", e.Code, e.Message)
}
