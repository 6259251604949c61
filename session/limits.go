package session

import "time"

// Limits bounds everything a Session holds and everything its edges accept. Zero
// means the default in brackets.
type Limits struct {
	Mailbox       int // commands waiting for a turn; senders wait beyond it [1,024]
	Calls         int // calls in flight on a bridge [256]
	Providers     int // providers known to a bridge [32]
	Instances     int // connections of one provider [16]
	Tools         int // tools on a bridge [1,000]
	Streams       int // MCP streams on a bridge [256]
	Tasks         int // tasks of a bridge, ended ones too while they are kept [256]
	MCPSessions   int // MCP sessions in the memory of the process; others come back when used [65,536]
	Registrations int // registrations of one instance not yet durable [64]

	FrameBytes   int // a provider's message, in bytes [8 MiB]
	BodyBytes    int // an MCP request's body, in bytes [4 MiB]
	ToolBytes    int // one tool definition, in bytes [256 KiB]
	CatalogBytes int // all tool definitions of a bridge together, in bytes [32 MiB]
	OutboxBytes  int // waiting to be written to one instance, in bytes [16 MiB]
	TaskBytes    int // all tasks of a bridge together, in bytes [64 MiB]
	EventBytes   int // progress and log waiting for one call's client, in bytes [1 MiB]
	MemoryBytes  int // all messages under way in the process, in bytes; below 0 any number [512 MiB]

	MessageDepth int // nesting of any message [256]
	SchemaDepth  int // nesting of a tool's schemas [64]

	CallTimeout    time.Duration // deadline of a call that asks for none [60 s]
	CallTimeoutMax time.Duration // longest deadline that may be asked for [1 h]
	Park           time.Duration // how long a call waits for its provider to come back, where its client hears no progress; below 0 not at all [25 s]
	TaskAfter      time.Duration // how long a call lasts before it becomes a task, where its client can have one [10 s]
	TaskLife       time.Duration // how long a task is kept, from its start [24 h]
	Coalesce       time.Duration // how long after a list_changed another waits, and one for what went waits for it to come back; below 0 not at all [100 ms]
	ResumeGrace    time.Duration // how long calls wait for their provider to resume [10 s]
	WriteTimeout   time.Duration // one write to a peer [10 s]
	Ping           time.Duration // between application pings to a provider [20 s]
	IdleAfter      time.Duration // unused before a session hibernates [60 s]
	Retain         time.Duration // how long a departed provider's tools stay listed [24 h]

	// What one peer may do, by its token or its address; below 0 any number. The bursts
	// are those that a peer may have at once after a rest.
	TokenRequests    int // MCP requests a second with one token; twice as many at once [2,000]
	AddressRequests  int // MCP requests a second from one address; twice as many at once [5,000]
	TokenDials       int // providers' connections begun a second with one token; ten times as many at once [100]
	AddressDials     int // providers' connections begun a second from one address; ten times as many at once [500]
	TokenProviders   int // providers' connections with one token [1,024]
	AddressProviders int // providers' connections from one address [16,384]
	AddressStreams   int // MCP streams to one address [4,096]
	AddressFailures  int // tokens a second from one address that are not valid; sixty times as many at once [1]
	Messages         int // messages and pings a second on one provider's connection, the results of calls aside; twice as many at once [10,000]
}

// Local is l where only this machine reaches the server, so that nobody is a stranger:
// what is zero of the limits of one peer is none.
func (l Limits) Local() Limits {
	for _, field := range []*int{
		&l.TokenRequests, &l.AddressRequests, &l.TokenDials, &l.AddressDials,
		&l.TokenProviders, &l.AddressProviders, &l.AddressStreams, &l.AddressFailures,
	} {
		or(field, -1)
	}
	return l
}

// WithDefaults fills every zero field with its default.
func (l Limits) WithDefaults() Limits {
	or(&l.Mailbox, 1024)
	or(&l.Calls, 256)
	or(&l.Providers, 32)
	or(&l.Instances, 16)
	or(&l.Tools, 1000)
	or(&l.Streams, 256)
	or(&l.Tasks, 256)
	or(&l.MCPSessions, 1<<16)
	or(&l.Registrations, 64)
	or(&l.FrameBytes, 8<<20)
	or(&l.BodyBytes, 4<<20)
	or(&l.ToolBytes, 256<<10)
	or(&l.CatalogBytes, 32<<20)
	or(&l.OutboxBytes, 16<<20)
	or(&l.TaskBytes, 64<<20)
	or(&l.EventBytes, 1<<20)
	or(&l.MemoryBytes, 512<<20)
	or(&l.MessageDepth, 256)
	or(&l.SchemaDepth, 64)
	or(&l.CallTimeout, time.Minute)
	or(&l.CallTimeoutMax, time.Hour)
	or(&l.Park, 25*time.Second)
	or(&l.TaskAfter, 10*time.Second)
	or(&l.TaskLife, 24*time.Hour)
	or(&l.Coalesce, 100*time.Millisecond)
	or(&l.ResumeGrace, 10*time.Second)
	or(&l.WriteTimeout, 10*time.Second)
	or(&l.Ping, 20*time.Second)
	or(&l.IdleAfter, time.Minute)
	or(&l.Retain, 24*time.Hour)
	or(&l.TokenRequests, 2000)
	or(&l.AddressRequests, 5000)
	or(&l.TokenDials, 100)
	or(&l.AddressDials, 500)
	or(&l.TokenProviders, 1024)
	or(&l.AddressProviders, 16384)
	or(&l.AddressStreams, 4096)
	or(&l.AddressFailures, 1)
	or(&l.Messages, 10_000)
	return l
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
