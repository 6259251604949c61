package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Kind says what an Event tells.
type Kind string

// The kinds of Event, and the fields that each has beside At.
const (
	// CallBegin: a client is about to send a call. Bridge, Who, Tool, ID.
	CallBegin Kind = "call-begin"
	// CallAccepted: the bridge was seen to have the call. ID.
	CallAccepted Kind = "call-accepted"
	// CallEnd: the client knows how the call ended. ID, Outcome, Text, N.
	CallEnd Kind = "call-end"
	// Exec: a provider was given a call. Bridge, Who, Tool, ID, CallID, Conn.
	Exec Kind = "exec"
	// Answer: a provider is about to answer a call. ID, Text.
	Answer Kind = "answer"
	// Ready: a connection of a provider was told that its tools are registered.
	// Bridge, Who, Conn.
	Ready Kind = "ready"
	// Down: a connection of a provider has ended. Bridge, Who, Conn.
	Down Kind = "down"
	// RegBegin: a provider is about to send a set of tools. Bridge, Who, N.
	RegBegin Kind = "reg-begin"
	// RegAcked: the set was acknowledged. Bridge, Who, N.
	RegAcked Kind = "reg-acked"
	// Listed: a client has a list of tools, asked for at From. Bridge, Who, Seen.
	Listed Kind = "listed"
	// SessionLost: a client's MCP session was not known. Bridge, Who, Text.
	SessionLost Kind = "session-lost"
	// FaultBegin: a fault is about to be made. Fault.
	FaultBegin Kind = "fault-begin"
	// FaultEnd: it is over, and the server serves again. Fault.
	FaultEnd Kind = "fault-end"
	// Broke: the server did what no fault explains. Text.
	Broke Kind = "broke"
)

// Outcome says how a call ended for its client.
type Outcome string

// The outcomes of a call.
const (
	Result  Outcome = "result"  // the tool's own result: Text is what it says
	Away    Outcome = "away"    // "was not delivered"
	Unknown Outcome = "unknown" // "the outcome is unknown"
	Late    Outcome = "late"    // the deadline passed
	Busy    Outcome = "busy"    // a limit
	NoTool  Outcome = "no-tool" // unknown tool
	Failed  Outcome = "failed"  // another error in an answer: Text
	Refused Outcome = "refused" // never taken, though asked again and again: 503, no connection
	Broken  Outcome = "broken"  // the connection ended without an answer
	Silent  Outcome = "silent"  // no answer in long
)

// Torn in Seen is a set of which only a part was listed, or parts of two.
const Torn = -1

// Event is one entry of a History.
type Event struct {
	At      time.Duration  `json:"at"` // since the run began
	Kind    Kind           `json:"kind"`
	Bridge  string         `json:"bridge,omitempty"`
	Who     string         `json:"who,omitempty"` // client or provider
	Tool    string         `json:"tool,omitempty"`
	ID      string         `json:"id,omitempty"`     // of the call, the client's own: in its arguments
	CallID  string         `json:"callId,omitempty"` // of the call, the bridge's
	Conn    int            `json:"conn,omitempty"`   // of a provider, unique in the run
	N       int            `json:"n,omitempty"`      // CallEnd: answers that came. Reg…: version of the set
	Outcome Outcome        `json:"outcome,omitempty"`
	Text    string         `json:"text,omitempty"`
	From    time.Duration  `json:"from,omitempty"`
	Seen    map[string]int `json:"seen,omitempty"` // by provider, the version that was listed
	Fault   string         `json:"fault,omitempty"`
}

// History is what happened in a run, in the order of its clock. It is safe for
// concurrent use.
type History struct {
	began time.Time

	mu     sync.Mutex // guards what follows
	events []Event
	out    *bufio.Writer // JSON lines; nil to keep no file
	err    error         // of out
}

// NewHistory begins a history, which is also written to w, if that is not nil.
func NewHistory(w io.Writer) *History {
	h := &History{began: time.Now()}
	if w != nil {
		h.out = bufio.NewWriter(w)
	}
	return h
}

// Now is the time of the history's clock.
func (h *History) Now() time.Duration { return time.Since(h.began) }

// Add records an event, now.
func (h *History) Add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = h.Now() // under the lock: the order of events is the order of their times
	h.events = append(h.events, e)
	if h.out != nil && h.err == nil {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = h.out.Write(append(line, '\n'))
		}
		h.err = err
	}
}

// Events ends the history: what is added later is not in it.
func (h *History) Events() ([]Event, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out != nil && h.err == nil {
		h.err = h.out.Flush()
	}
	if h.err != nil {
		return nil, fmt.Errorf("chaos: write the history: %w", h.err)
	}
	return slices.Clip(h.events), nil
}

// ReadHistory reads the events that a run has written.
func ReadHistory(r io.Reader) (events []Event, err error) {
	for d := json.NewDecoder(r); ; {
		var e Event
		switch err := d.Decode(&e); {
		case err == io.EOF:
			return events, nil
		case err != nil:
			return nil, fmt.Errorf("chaos: event %d: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
}
