// Package mcp is the MCP endpoint of a bridge: one URL that serves the stateless
// revision 2026-07-28 and the session revisions before it, told apart request by
// request.
//
// A body is read once and its bytes are passed on: arguments go into the
// provider's frame, results into the answer, as they came. An answer is
// application/json unless something must be said before it: progress, a log
// message, or, after a while, a sign of life.
//
//	Serve → decode (request.go) → era (endpoint.go) → dispatch (legacy.go, modern.go)
//	      → list.go | call.go (meta.go) → answer.go → a sink: stream.go (one response),
//	        tape.go (a client may come back), pair.go (2024-11-05), batch.go
package mcp
