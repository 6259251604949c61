// Package provider lets a Go program offer tools on a bridge.
//
// The program dials out, so it needs no open port and no public address: MCP
// clients call its tools at the bridge's URL.
//
// [Run] is all that most programs need: see the example. A [Provider] can change
// its tools while it runs.
//
// It speaks dialect bridge.v1 (protocol 1) over one WebSocket. It owns that
// connection, the goroutines of the calls that run, and nothing else.
//
// # Guarantees
//
//   - A Provider keeps one connection for as long as Run's context lives. A lost
//     one is dialled again with jittered exponential back-off, 250 ms to 30 s,
//     which starts over once a connection has held for 10 s.
//   - Run gives up, with a [*Refused], only where the bridge says that another
//     attempt is pointless.
//   - The tools of the newest SetTools are registered on every connection, as a
//     whole set and in one message.
//   - A handler's context ends when the client cancels, when the call's deadline
//     passes, when the bridge has forgotten the call, and when Run's context ends.
//   - A call in flight survives a lost connection. Its answer goes out on the
//     next one if the bridge resumed us there, and is dropped otherwise: it never
//     reaches a bridge that might know another call by the same ID.
//   - Raw definitions, results and arguments pass byte for byte.
//   - Run returns when every goroutine it started, handlers included, has ended.
//
// # What it does not do
//
// It checks no arguments against a schema (the bridge does), offers no prompts
// or resources (dialect bridge.v1 carries tools only), and logs no arguments,
// results or tokens.
package provider
