// Package shard finds the live [session.Session] of a Bridge, and makes what
// sessions change durable.
//
// A [Directory] activates a bridge at most once however many ask for it at the
// same time, loading it from the store, which is the truth; it lets a session
// that nobody uses hibernate, after which the bridge costs bytes in the store
// only. One saver per Shard gathers the changes of many bridges into one commit
// and tells each session what is durable (the output gate). Each Shard is run
// under a Lease, whose Epoch goes with every write.
package shard
