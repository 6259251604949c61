// Package e2e tests the built binary from outside, as those meet it who use it:
// MCP clients that others wrote, providers, operators, and a terminal.
//
// It owns no code of the product and imports none but the provider SDK. TestMain
// builds the binary once, with the race detector if the tests have it. Every test
// runs the binary as a child on a loopback port of its own, ends it by its pid,
// and waits for it.
//
// The clients of clients/, and the stdio servers that `mcpbridge run` is tested with,
// run under Node.js; package-lock.json pins them. npm installs them before the tests,
// or the first test that needs them does.
//
// MCPBRIDGE_E2E_ROUNDS is how often the server is killed while providers
// register; default 8.
package e2e
