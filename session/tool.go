package session

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
)

// Tool is one offer as its Provider made it: a tool, or what is kept like one. It is
// immutable: a change is a new Tool.
type Tool struct {
	Kind Kind
	// Name is the provider's own name for it: what callTool carries. For a resource
	// it is the URI, for a template the URI template.
	Name string
	// Exposed is the name that clients see. It is assigned by the Session when
	// the tool is first registered and stays while the provider is known.
	Exposed string
	// Definition is the tool's JSON object, byte for byte as registered, less
	// the members that only the bridge reads.
	Definition json.RawMessage
	// NameAt and NameEnd bound the value of the member that names it, quotes
	// included, in Definition.
	NameAt, NameEnd int
	// Timeout replaces the default deadline of a call; zero keeps it.
	Timeout time.Duration
	// Headers tells that the input schema asks clients for Mcp-Param-* headers
	// (x-mcp-header).
	Headers bool
}

func (t *Tool) key() named { return named{t.Kind, t.Name} }

// compare orders by Kind and the provider's own name.
func (t *Tool) compare(u *Tool) int {
	return cmp.Or(cmp.Compare(t.Kind, u.Kind), strings.Compare(t.Name, u.Name))
}

// Registration is the durable record of one Provider on one Bridge.
type Registration struct {
	Provider ProviderID
	Title    string // for people; may be empty
	Version  string // for people; may be empty
	About    About
	Retain   time.Duration // how long its tools stay listed once it has left
	LeftAt   time.Time     // when its last Instance left; zero while one is connected
	Tools    []Tool        // sorted by Kind and Name
}

// About is what a Provider says of itself to clients. Raw members are JSON objects, or
// nil.
type About struct {
	Instructions string          // how to use what it offers; may be empty
	Extensions   json.RawMessage // capabilities.extensions
	Experimental json.RawMessage // capabilities.experimental
}

func (a *About) empty() bool {
	return a.Instructions == "" && a.Extensions == nil && a.Experimental == nil
}

func (a *About) same(b *About) bool {
	return a.Instructions == b.Instructions && string(a.Extensions) == string(b.Extensions) && string(a.Experimental) == string(b.Experimental)
}

// Snapshot is everything durable that a Session starts from.
type Snapshot struct {
	Revision      uint64 // of the Catalog
	Registrations []Registration
	Tasks         []Task   // in the order of their IDs
	Pins          []Pinned // in the order of their keys
}

// Change is what one or more turns did to a Bridge's durable state. Applying a
// later Change of the same Bridge over an earlier one gives the state of the
// later one.
type Change struct {
	Bridge   BridgeID
	Revision uint64         // of the Catalog after the change
	Put      []Registration // whole records, replacing those of the same Provider
	Delete   []ProviderID

	PutTasks  []Task // whole records
	DropTasks []TaskID

	PutPins  []Pinned // whole records
	DropPins []PinKey
}
