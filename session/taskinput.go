package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// takeAnswers tells whether any of the answers was asked for.
func (s *state) takeAnswers(t *Task, answers map[string]json.RawMessage) (any bool) {
	before := t.size()
	for i := range t.Inputs {
		in := &t.Inputs[i]
		if a := answers[in.Key]; a != nil && in.Answer == nil {
			in.Answer, any = slices.Clone(a), true
			if in.ask != nil {
				in.ask.Answer(Reply{Result: in.Answer})
			}
		}
	}
	s.tasks.bytes += t.size() - before
	return any
}

// callAgain makes a task's call anew, with the answers to the round of inputs that is
// over.
func (s *state) callAgain(t *Task) {
	c := &Call{
		Kind: KindTool, Principal: t.Principal, Tool: t.Tool, Arguments: t.Arguments, Deadline: t.Deadline,
		Meta: CallMeta{ClientName: t.ClientName, ClientVersion: t.ClientVersion, Capabilities: t.Capabilities},
		task: t,
	}
	if len(t.Inputs) > 0 {
		c.Input = Input{Responses: t.responses(), State: t.State}
	}
	t.Status, t.Message, t.CallID = TaskWorking, "", ""
	s.s.number(c)
	(*begin)(c).apply(s)
}

// responses is the object of the newest round's answers, by the provider's own keys.
func (t *Task) responses() json.RawMessage {
	round := map[string]json.RawMessage{}
	for _, in := range t.Inputs { // later rounds win
		round[in.Own] = in.Answer
	}
	b := []byte{'{'}
	for i, own := range slices.Sorted(maps.Keys(round)) {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(own) // a string always encodes
		b = append(append(append(b, key...), ':'), round[own]...)
	}
	return append(b, '}')
}

// askTaskFor takes a request of a provider whose call is in flight.
func (s *state) askTaskFor(t *Task, a *Ask) error {
	in := TaskInput{Key: t.freshKey(a.Method), Own: a.Method, Request: a.Request(), ask: a}
	switch {
	case len(t.Inputs) >= maxInputs:
		return &LimitError{Limit: "inputs of a task", Max: maxInputs}
	case s.tasks.bytes+len(in.Request) > s.limits.TaskBytes:
		return &LimitError{Limit: "all tasks of a bridge", Max: s.limits.TaskBytes, Unit: "bytes"}
	}
	s.tasks.bytes += len(in.Request)
	t.Inputs = append(t.Inputs, in)
	t.Status, t.Updated = TaskAsking, s.s.cfg.Clock()
	s.putTask(t)
	return nil
}

// unaskTask notes that a provider wants no answer to a request any more. Its key stays
// used.
func (s *state) unaskTask(t *Task, a *Ask) {
	for i := range t.Inputs {
		if in := &t.Inputs[i]; in.ask == a && in.Answer == nil {
			in.Answer = json.RawMessage("null")
			s.tasks.bytes += len(in.Answer)
		}
	}
	if len(t.Pending()) == 0 {
		t.Status = TaskWorking
	}
	t.Updated = s.s.cfg.Clock()
	s.putTask(t)
}

// maxInputs bounds what one task may ask for, in all its rounds.
const maxInputs = 64

// ask takes a result of type input_required (MCP 2026-07-28 patterns/mrtr).
func (t *Task) ask(raw json.RawMessage) error {
	var r struct {
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
		RequestState  json.RawMessage            `json:"requestState"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("%w: inputRequests must be an object", ErrBadResult)
	}
	if len(r.InputRequests) == 0 {
		return fmt.Errorf("%w: a task can be asked for something only with inputRequests", ErrBadResult)
	}
	if len(t.Inputs)+len(r.InputRequests) > maxInputs {
		return &LimitError{Limit: "inputs of a task", Max: maxInputs}
	}
	t.State = nil // of the round before
	for _, own := range slices.Sorted(maps.Keys(r.InputRequests)) {
		if q := r.InputRequests[own]; len(q) == 0 || q[0] != '{' {
			return fmt.Errorf("%w: inputRequests must be an object of requests", ErrBadResult)
		}
		t.Inputs = append(t.Inputs, TaskInput{Key: t.freshKey(own), Own: own, Request: r.InputRequests[own]})
	}
	if s := r.RequestState; len(s) > 0 && s[0] == '"' {
		t.State = s
	}
	t.Status = TaskAsking
	return nil
}

// freshKey is the provider's key, or, where that was used before, one made of it.
func (t *Task) freshKey(own string) string {
	used := func(key string) bool {
		return slices.ContainsFunc(t.Inputs, func(in TaskInput) bool { return in.Key == key })
	}
	key := own
	for n := 2; used(key); n++ {
		key = own + "-" + strconv.Itoa(n)
	}
	return key
}
