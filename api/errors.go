package api

import (
	"errors"
	"syscall"
	"time"

	"mcpbridge/api/mcp"
	"mcpbridge/api/provider"
	"mcpbridge/api/wire"
	"mcpbridge/session"
	"mcpbridge/store"
)

// Errors of this room.
var (
	// ErrNoCredential: the request has no bearer token.
	ErrNoCredential = errors.New("a bearer token is needed")
	// ErrBadCredential: the token is not one of this server's, or has expired.
	ErrBadCredential = errors.New("the bearer token is not valid")
	// ErrForbidden: the token is good, but not for this bridge or route. It is
	// told as a bridge that does not exist, so that nobody learns which do.
	ErrForbidden = errors.New("the bearer token does not open this")
)

const noBridge = "there is no such bridge"

// row is one line of the table. Without a message of its own it tells the error's.
type row struct {
	err   error
	fault wire.Fault
}

// table is how each error is told: HTTP status (REST, or MCP where it is refused
// before dispatch), JSON-RPC code or a result with isError, WebSocket close code.
// Earlier rows win.
var table = []row{
	{ErrNoCredential, wire.Fault{Name: "no_credential", Status: 401, Close: 4401}},
	{ErrBadCredential, wire.Fault{Name: "bad_credential", Status: 401, Close: 4401}},
	{mcp.ErrRevoked, wire.Fault{Name: "revoked", Status: 401, Close: 4401}},
	{ErrForbidden, wire.Fault{Name: "not_found", Status: 404, Close: 4403, Message: noBridge}},
	{store.ErrNotFound, wire.Fault{Name: "not_found", Status: 404, Close: 4403, Message: noBridge}},
	{session.ErrDeleted, wire.Fault{Name: "not_found", Status: 404, Close: 4403, Message: noBridge}},
	{store.ErrConflict, wire.Fault{Name: "conflict", Status: 412, Message: "it was changed meanwhile"}},
	{store.ErrInUse, wire.Fault{Name: "in_use", Status: 409, Message: store.ErrInUse.Error()}},
	{store.ErrBackingUp, wire.Fault{Name: "backing_up", Status: 429, RetryAfter: 5 * time.Second, Message: store.ErrBackingUp.Error()}},
	{syscall.ENOSPC, wire.Fault{Name: "disk_full", Status: 507, Code: -32603, Close: 1011, Message: "the server's disk is full"}},
	{store.ErrExists, wire.Fault{Name: "exists", Status: 409, Message: "it exists already"}},

	{session.ErrCutOff, wire.Fault{Name: "cut_off", Status: 502, ToolError: true}},
	{session.ErrUnknownTool, wire.Fault{Name: "unknown_tool", Status: 404, Code: -32602}},
	{session.ErrBusy, wire.Fault{Name: "busy", Status: 429, ToolError: true, RetryAfter: time.Second}},
	{session.ErrAway, wire.Fault{Name: "away", Status: 504, ToolError: true}},
	{session.ErrHeld, wire.Fault{Name: "held", Status: 409, ToolError: true}},
	{session.ErrNotHeld, wire.Fault{Name: "not_held", Status: 409}},
	{session.ErrTimeout, wire.Fault{Name: "timeout", Status: 504, ToolError: true}},
	{session.ErrProviderGone, wire.Fault{Name: "provider_gone", Status: 502, ToolError: true}},
	{session.ErrBadResult, wire.Fault{Name: "bad_result", Status: 502, Code: -32603}},
	{session.ErrNoCallToAsk, wire.Fault{Name: "no_call_to_ask", Status: 404, Code: -32601}},
	{session.ErrNobodyToAsk, wire.Fault{Name: "nobody_to_ask", Status: 404, Code: -32601}},
	{session.ErrWhoseAsk, wire.Fault{Name: "whose_ask", Status: 409, Code: -32603}},
	{session.ErrAskOver, wire.Fault{Name: "ask_over", Status: 410, Code: -32603}},
	{session.ErrUnknownTask, wire.Fault{Name: "unknown_task", Status: 404, Code: -32602}},
	{session.ErrResumed, wire.Fault{Name: "resumed", Status: 409, Close: 4409}},
	{session.ErrReplaced, wire.Fault{Name: "replaced", Status: 409, Close: 4409}},
	{session.ErrTaken, wire.Fault{Name: "instance_taken", Status: 409, Close: 1008}},
	{session.ErrNameTaken, wire.Fault{Name: "name_taken", Status: 409}},
	{session.ErrEnded, wire.Fault{Name: "ended", Status: 409, Code: -32603}},
	{session.ErrCancelled, wire.Fault{Name: "cancelled", Status: 499, ToolError: true}},

	{session.ErrShutdown, wire.Fault{Name: "draining", Status: 503, Close: 1012, RetryAfter: 2 * time.Second}},
	{session.ErrStopped, wire.Fault{Name: "draining", Status: 503, Close: 1012, RetryAfter: time.Second}},
	{session.ErrFenced, wire.Fault{Name: "moved", Status: 503, Close: 1012, RetryAfter: time.Second}},
	{store.ErrFenced, wire.Fault{Name: "moved", Status: 503, Close: 1012, RetryAfter: time.Second, Message: session.ErrFenced.Error()}},
	{session.ErrBroken, wire.Fault{Name: "internal", Status: 500, Code: -32603, Close: 1012, Message: internal}},

	{provider.ErrTooSlow, wire.Fault{Name: "too_slow", Status: 408, Close: 4408}},
	{provider.ErrSilent, wire.Fault{Name: "silent", Status: 408, Close: 4408}},
	{provider.ErrFlood, wire.Fault{Name: "flood", Status: 429, Close: 4429}},

	{wire.ErrTooLong, wire.Fault{Name: "too_large", Status: 413, Code: -32600, Close: 1009}},
	{wire.ErrUTF8, wire.Fault{Name: "bad_message", Status: 400, Code: -32700}},
}

const internal = "internal error"

// Fault is the error table. What has no row is an internal error, whose text is
// not told.
func Fault(err error) wire.Fault {
	if e, ok := errors.AsType[*session.ProtocolError](err); ok {
		return wire.Fault{Name: "provider_error", Status: 502, Code: e.Code, Message: e.Message}
	}
	for _, r := range table {
		if errors.Is(err, r.err) {
			f := r.fault
			if f.Message == "" {
				f.Message = err.Error()
			}
			return f
		}
	}
	return wire.Fault{Name: "internal", Status: 500, Code: -32603, Close: 1011, Message: internal}
}
