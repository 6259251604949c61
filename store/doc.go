// Package store keeps what must outlive the process: bridges, tokens,
// registrations, ended MCP sessions and the store's own secrets.
//
// Two engines implement [Store]: [Memory], the reference, and [Bolt], a file
// for one machine. Package storetest holds the suite that both pass. Every write
// to a Bridge names the Shard it belongs to and the Epoch of the Lease under
// which it is made; a newer Epoch makes older writers fail with [ErrFenced].
package store
