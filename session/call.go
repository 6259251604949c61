package session

import (
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Reason says how a Call ended. It is also a metric's label.
type Reason uint8

// The ways in which a Call ends.
const (
	ReasonResult        Reason = iota // the provider's result
	ReasonToolError                   // the provider's result with isError
	ReasonProtocolError               // a JSON-RPC error of the provider, or an answer that is none
	ReasonCancelled                   // the client gave up
	ReasonTimeout                     // the deadline passed
	ReasonProviderGone                // delivered, then the provider left: outcome unknown
	ReasonAway                        // never delivered: no instance offers the tool now
	ReasonUnknownTool                 // never delivered: there is no such tool
	ReasonBusy                        // never delivered: a limit was met
	ReasonShutDown                    // the process or the bridge went away
	ReasonFenced                      // another process took over
	ReasonHeld                        // never delivered: the tool's definition waits for approval
	NumReasons                        // how many reasons there are
)

var reasonNames = [NumReasons]string{
	"result", "tool_error", "protocol_error", "cancelled", "timeout", "provider_gone",
	"away", "unknown_tool", "busy", "shut_down", "fenced", "held",
}

func (r Reason) String() string { return reasonNames[r] }

// Releaser takes back the memory that a Result's bytes live in.
type Releaser interface{ Release() }

// Result is a tool's answer: one JSON object, byte for byte as the provider
// sent it.
type Result struct {
	Raw     json.RawMessage
	IsError bool     // the object has isError true
	Typed   bool     // the object has resultType
	MetaAt  int      // where the members of its object _meta begin; 0 when it has none
	Signed  bool     // _meta has a server's identity
	Loose   bool     // it has structuredContent that is no object
	Asks    bool     // resultType is input_required: it asks the client for something first
	Buffer  Releaser // owner of Raw; may be nil. The receiver releases it once
}

// Release gives the Result's memory back; Raw must not be used after it.
func (r Result) Release() {
	if r.Buffer != nil {
		r.Buffer.Release()
	}
}

// Outcome is the single end of a Call.
type Outcome struct {
	Result Result // when Err is nil
	Err    error
	Reason Reason
}

// EventKind tells the kinds of Event apart.
type EventKind uint8

// The kinds of Event.
const (
	EventProgress EventKind = iota
	EventLog
	EventAsk
	EventAskOver
)

// Event is something a provider says about a Call before its outcome. The raw
// members are single JSON values that nobody else will write to.
type Event struct {
	Kind     EventKind
	Progress float64         // EventProgress: the number in Value
	Value    json.RawMessage // EventProgress: progress. EventLog: data
	Total    json.RawMessage // EventProgress: may be nil
	Message  json.RawMessage // EventProgress: may be nil
	Level    string          // EventLog
	Logger   json.RawMessage // EventLog: may be nil
	Ask      *Ask            // EventAsk: to be answered. EventAskOver: its provider wants no answer any more
}

func (e *Event) size() int {
	if e.Ask != nil {
		return 64 + len(e.Ask.Params)
	}
	return 64 + len(e.Value) + len(e.Total) + len(e.Message) + len(e.Logger)
}

// CallMeta is what a provider is told about a Call's client. Strings are raw
// JSON strings, or nil.
type CallMeta struct {
	Progress      bool            // the client wants progress
	ClientName    json.RawMessage // a JSON string
	ClientVersion json.RawMessage // a JSON string
	Traceparent   json.RawMessage // a JSON string
	LogLevel      string          // least level that the client wants; empty for none asked
	Capabilities  json.RawMessage // the client's capabilities, a JSON object
}

// Input is what the client answered to a Result that asked for something.
type Input struct {
	Responses json.RawMessage // a JSON object, or nil
	State     json.RawMessage // what the provider wanted to see again, a JSON string; or nil
}

// Call is one tools/call, or another request that a provider answers, from begin to
// its single Outcome. Its exported fields are set before [Session.Begin] and not
// changed after it.
type Call struct {
	Kind      Kind            // of what is called
	Principal string          // who calls; an opaque name
	Tool      string          // its exposed name
	Method    string          // the MCP method; empty means tools/call
	Target    string          // a resource's URI as the provider knows it, where it is not the offer's own name
	Extra     json.RawMessage // more members of the request's params, without braces; or nil
	Arguments json.RawMessage // one JSON value, or nil when the client sent none
	Meta      CallMeta
	Input     Input     // of a call that is made again with what was asked for
	Deadline  time.Time // when the caller will abandon the call; shown to the provider
	Events    bool      // the caller reads progress and log; otherwise they are dropped
	Asks      bool      // the caller reads EventAsk; otherwise the provider is told that nobody can be asked

	id       uint64
	prefix   string
	tool     *Tool
	inst     *Instance
	progress float64 // greatest so far
	moving   bool    // progress has a value
	reply    chan Outcome
	task     *Task         // that has the call; nil for one that somebody waits for
	asks     []*Ask        // that its client was handed
	delivery atomic.Uint32 // attempt<<2 | one of the delivery states

	mu        sync.Mutex // guards events; never held over anything that waits
	events    []Event
	eventSize int
	signal    chan struct{}
}

// The states of a delivery attempt.
const (
	queued    uint32 = iota // in an outbox, untouched by its writer
	writing                 // the outbox's writer has it
	written                 // handed to the socket
	withdrawn               // taken back before any writer had it
)

// Name is the provider's own name of what is called. It is set once the call is in
// an Outbox.
func (c *Call) Name() string {
	if c.Target != "" {
		return c.Target
	}
	return c.tool.Name
}

// AppendID appends the call's ID as text, without quotes. IDs of one process are
// never those of another, so that an answer to an earlier one finds nothing.
func (c *Call) AppendID(b []byte) []byte {
	return strconv.AppendUint(append(b, c.prefix...), c.id, 10)
}

// Delivery is one attempt to hand a Call to a socket.
type Delivery struct {
	Call    *Call
	attempt uint32
}

// Claim is called by the outbox's writer right before it writes. False means
// that the call was withdrawn: it must not be written.
func (d Delivery) Claim() bool {
	return d.Call.delivery.CompareAndSwap(d.attempt<<2|queued, d.attempt<<2|writing)
}

// Written is called by the writer after it wrote, whatever came of it. The
// writer does not touch the call's fields after it.
func (d Delivery) Written() { d.Call.delivery.Store(d.attempt<<2 | written) }

// withdraw takes the call back from its outbox. False means that a writer had
// it already.
func (c *Call) withdraw() bool {
	old := c.delivery.Load()
	return old&3 == queued && c.delivery.CompareAndSwap(old, old|withdrawn)
}

// withdrawn tells whether the call was taken back and has not been delivered again.
func (c *Call) withdrawn() bool { return c.delivery.Load()&3 == withdrawn }

// handed tells whether a writer has, or had, the call.
func (c *Call) handed() bool {
	state := c.delivery.Load() & 3
	return state == writing || state == written
}

// size is about what the call costs an outbox, in bytes.
func (c *Call) size() int {
	return len(c.Arguments) + len(c.Input.Responses) + len(c.Input.State) + len(c.Meta.Capabilities) + len(c.Extra) + 512
}

// next starts a new delivery attempt after a withdrawal.
func (c *Call) next() Delivery {
	attempt := c.delivery.Load()>>2 + 1
	c.delivery.Store(attempt<<2 | queued)
	return Delivery{c, attempt}
}

// Settled tells, after the outcome, whether no writer reads the call's fields
// any more, so that the memory of its arguments may be used again.
func (c *Call) Settled() bool { return c.delivery.Load()&3 != writing }

// Done delivers the single Outcome.
func (c *Call) Done() <-chan Outcome { return c.reply }

// Signal is ready when Take has something to give. It is nil unless Events or Asks was
// set.
func (c *Call) Signal() <-chan struct{} { return c.signal }

// Take returns the events that arrived since it was last called, in order. All
// events that came before the outcome are there once the outcome is.
func (c *Call) Take() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events
	c.events, c.eventSize = nil, 0
	return e
}

// push adds an event. False means that the caller reads too slowly and the event
// was dropped.
func (c *Call) push(e Event, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eventSize+e.size() > limit {
		return false
	}
	c.events = append(c.events, e)
	c.eventSize += e.size()
	select {
	case c.signal <- struct{}{}:
	default:
	}
	return true
}
