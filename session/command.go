package session

import "time"

// The mailbox's alphabet. Each apply is one turn.

type begin Call

type abandon struct {
	call  *Call
	cause error
}

type finish struct {
	inst   *Instance
	prefix string
	id     uint64
	result Result
	err    error
}

type notify struct {
	inst   *Instance
	prefix string
	id     uint64 // 0 for the only call of inst
	event  Event
}

type attach struct {
	inst  *Instance
	now   time.Time
	reply chan error
}

type detach struct {
	inst *Instance
	now  time.Time
}

type forsake struct{ inst *Instance }

type register struct {
	inst    *Instance
	kind    Kind // with replace: the kind whose whole set tools is
	tools   []Tool
	keep    []string // with replace: names whose earlier definition stays
	replace bool
	ack     func(Registered)
}

type unregister struct {
	inst  *Instance
	kind  Kind
	names []string
	ack   func(Registered)
}

type updated struct {
	inst *Instance
	uri  string
}

type watch struct {
	w     *Watch
	reply chan error
}

type unwatch struct{ w *Watch }

type saved uint64

type tick struct{ now time.Time }

type release struct{ reply chan bool }

type stop struct {
	cause error
	done  chan struct{}
}

type inspect struct{ reply chan Status }
