// Package provider is the WebSocket at which tool providers arrive, one JSON message
// a text frame. They speak one of two dialects: bridge.v1, or MCP itself, the
// provider being the server.
//
// A connection costs one goroutine, which reads. Whoever has something to tell
// the provider puts it into the outbox, and a goroutine that ends when the outbox
// is empty writes it. One keeper watches all connections: it pings each every 20
// seconds, with a message, because that keeps a browser's service worker alive,
// and cuts those from which nothing came for two intervals or to which a write
// does not end in time.
//
// In bridge.v1, a connection that opens with hello speaks for a named provider and gets every
// kind of answer; one that does not is the provider "default" (or ?provider=NAME)
// and is only ever sent what the seed's providers know: callTool and ping.
package provider
