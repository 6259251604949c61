package wire

import "time"

// Fault is one row of the error table (package api): how an error is told to
// each kind of peer.
type Fault struct {
	Name       string        // stable word for logs, metrics and the code of an error message
	Status     int           // HTTP status for REST, and for an MCP request refused before dispatch
	Code       int           // JSON-RPC code; ignored when ToolError is set
	ToolError  bool          // an MCP call answers with a result whose isError is true
	Close      int           // WebSocket close code; 0 keeps the connection
	RetryAfter time.Duration // for Retry-After; 0 sends none
	Message    string        // what the peer is told
}

// FaultFunc is the error table as a function. It knows an answer to every error:
// one it has no row for is internal, and its text stays in the log.
type FaultFunc func(error) Fault
