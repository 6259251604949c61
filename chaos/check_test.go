package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// script makes a history: event n happens after n seconds.
func script(events ...Event) []Event {
	for i := range events {
		events[i].At = time.Duration(i) * time.Second
	}
	return events
}

// The parts of histories: a call of client "c" to the tool of provider "p", on bridge
// "b", whose connection 1 is ready from the start.
func begin(id string) Event {
	return Event{Kind: CallBegin, Bridge: "b", Who: "c", Tool: "p-call", ID: id}
}

func given(id string) Event {
	return Event{Kind: Exec, Bridge: "b", Who: "p", Tool: "p-call", ID: id, CallID: "x" + id, Conn: 1}
}
func answer(id string) Event { return Event{Kind: Answer, ID: id, Text: "answer to " + id} }
func end(id string, o Outcome) Event {
	e := Event{Kind: CallEnd, ID: id, Outcome: o, N: 1}
	if o == Result {
		e.Text = "answer to " + id
	}
	return e
}

// change is an event with another field.
func change(e Event, f func(*Event)) Event {
	f(&e)
	return e
}

var (
	up   = Event{Kind: Ready, Bridge: "b", Who: "p", Conn: 1}
	down = Event{Kind: Down, Bridge: "b", Who: "p", Conn: 1}
)

func made(fault string) Event        { return Event{Kind: FaultBegin, Fault: fault} }
func over(fault string) Event        { return Event{Kind: FaultEnd, Fault: fault} }
func sent(n int) Event               { return Event{Kind: RegBegin, Bridge: "b", Who: "p", N: n} }
func acked(n int) Event              { return Event{Kind: RegAcked, Bridge: "b", Who: "p", N: n} }
func accepted(id string) Event       { return Event{Kind: CallAccepted, ID: id} }
func listed(from, version int) Event { return listedOf("p", from, version) }
func calm(n int) []Event             { return make([]Event, n) }
func join(parts ...[]Event) (all []Event) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// listedOf is a list asked for at the time of event from.
func listedOf(provider string, from, version int) Event {
	e := Event{Kind: Listed, Bridge: "b", Who: "l", From: time.Duration(from) * time.Second, Seen: map[string]int{provider: version}}
	if version == 0 {
		e.Seen = map[string]int{}
	}
	return e
}

func TestGoodHistoriesBreakNothing(t *testing.T) {
	for name, events := range map[string][]Event{
		"a call":                                   {up, begin("1"), given("1"), answer("1"), end("1", Result)},
		"away because its provider was":            {up, down, begin("1"), end("1", Away)},
		"away before its provider ever came":       {begin("1"), end("1", Away), up},
		"unknown, for the connection was lost":     {up, begin("1"), given("1"), down, end("1", Unknown)},
		"cut off by a kill":                        {up, begin("1"), given("1"), made(FaultKill), end("1", Broken), over(FaultKill)},
		"a little after a fault":                   {up, made(FaultStop), over(FaultStop), begin("1"), given("1"), end("1", Late)},
		"refused through a long fault":             {up, begin("1"), made(FaultTerm), end("1", Refused)},
		"answered late, to who is there no more":   {up, begin("1"), given("1"), down, end("1", Unknown), answer("1")},
		"calls in their order":                     {up, begin("1"), accepted("1"), begin("2"), accepted("2"), given("1"), given("2"), answer("1"), answer("2"), end("1", Result), end("2", Result)},
		"calls at once, in any order":              {up, begin("1"), begin("2"), accepted("1"), accepted("2"), given("2"), given("1"), answer("1"), answer("2"), end("1", Result), end("2", Result)},
		"any order, in the next process":           {up, begin("1"), accepted("1"), begin("2"), accepted("2"), made(FaultTerm), over(FaultTerm), given("2"), given("1"), answer("1"), answer("2"), end("1", Result), end("2", Result)},
		"a list before any set":                    {listed(0, 0), sent(1), acked(1)},
		"a list of the last set":                   {sent(1), acked(1), sent(2), acked(2), listed(4, 2)},
		"a list of either, while one is replaced":  {sent(1), acked(1), sent(2), listed(3, 1), listed(4, 2), acked(2)},
		"a set without acknowledgement, or not":    {sent(1), acked(1), sent(2), made(FaultKill), over(FaultKill), listed(5, 1)},
		"a list that was under way at the time":    {sent(1), acked(1), sent(2), acked(2), listed(2, 1)},
		"a set that took effect once it was known": {sent(1), sent(2), acked(2), listed(3, 1), listed(4, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if found := Check(script(events...)); len(found) > 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}

func TestEachRuleIsSeenToBeBroken(t *testing.T) {
	twice := func(e *Event) { e.Conn = 2 }
	for name, c := range map[string]struct {
		rule   Rule
		events []Event
	}{
		"delivered twice":                     {RuleOnce, []Event{up, begin("1"), given("1"), given("1"), answer("1"), end("1", Result)}},
		"delivered again after a resume":      {RuleOnce, []Event{up, begin("1"), given("1"), down, change(given("1"), twice), answer("1"), end("1", Result)}},
		"one ID for two calls":                {RuleOnce, []Event{up, begin("1"), begin("2"), given("1"), change(given("2"), func(e *Event) { e.CallID = "x1" }), answer("1"), answer("2"), end("1", Result), end("2", Result)}},
		"never ended":                         {RuleEnds, []Event{up, begin("1"), given("1"), answer("1")}},
		"ended twice":                         {RuleEnds, []Event{up, begin("1"), given("1"), answer("1"), end("1", Result), end("1", Result)}},
		"answered twice":                      {RuleEnds, []Event{up, begin("1"), given("1"), answer("1"), change(end("1", Result), func(e *Event) { e.N = 2 })}},
		"another call's answer":               {RuleOwn, []Event{up, begin("1"), begin("2"), given("1"), given("2"), answer("1"), answer("2"), end("1", Result), change(end("2", Result), func(e *Event) { e.Text = "answer to 1" })}},
		"an answer of nobody":                 {RuleOwn, []Event{up, begin("1"), given("1"), end("1", Result)}},
		"another bridge's call":               {RuleBridge, []Event{up, begin("1"), change(given("1"), func(e *Event) { e.Bridge = "a" }), answer("1"), end("1", Result)}},
		"another provider's call":             {RuleBridge, []Event{up, begin("1"), change(given("1"), func(e *Event) { e.Tool = "q-call" }), answer("1"), end("1", Result)}},
		"a call of nobody":                    {RuleBridge, []Event{up, given("1")}},
		"not delivered, they say":             {RuleTrue, []Event{up, begin("1"), given("1"), down, end("1", Away)}},
		"not taken, they say":                 {RuleTrue, []Event{up, begin("1"), given("1"), made(FaultTerm), end("1", Refused), over(FaultTerm)}},
		"away, though its provider was there": {RuleHidden, []Event{up, begin("1"), end("1", Away)}},
		"unknown, for no reason":              {RuleHidden, []Event{up, begin("1"), given("1"), end("1", Unknown)}},
		"busy, in the shade of a fault":       {RuleHidden, []Event{up, made(FaultKill), over(FaultKill), begin("1"), end("1", Busy)}},
		"long after a fault":                  {RuleHidden, join([]Event{up, made(FaultStop), over(FaultStop)}, calm(6), []Event{begin("1"), end("1", Away)})},
		"cut off by a stop":                   {RuleHidden, []Event{up, made(FaultTerm), begin("1"), end("1", Broken), over(FaultTerm)}},
		"cut off after a kill":                {RuleHidden, []Event{up, made(FaultKill), over(FaultKill), begin("1"), end("1", Broken)}},
		"noticed a full disk":                 {RuleHidden, []Event{up, made(FaultFull), begin("1"), end("1", Away), over(FaultFull)}},
		"an acknowledged set is gone":         {RuleDurable, []Event{sent(1), acked(1), made(FaultKill), over(FaultKill), listed(4, 0)}},
		"the set before is back":              {RuleDurable, []Event{sent(1), acked(1), sent(2), acked(2), listed(4, 1)}},
		"a listed set is taken back":          {RuleDurable, []Event{sent(1), acked(1), sent(2), listed(3, 2), made(FaultKill), over(FaultKill), listed(6, 1)}},
		"a part of a set":                     {RuleWhole, []Event{sent(1), acked(1), listed(2, Torn)}},
		"a set from nowhere":                  {RuleWhole, []Event{sent(1), acked(1), listed(2, 2)}},
		"a set before its time":               {RuleWhole, []Event{sent(1), acked(1), listed(2, 2), sent(2)}},
		"a provider from nowhere":             {RuleWhole, []Event{sent(1), acked(1), {Kind: Listed, Bridge: "b", From: 2 * time.Second, Seen: map[string]int{"p": 1, "q": 1}}}},
		"out of order, beside a cut":          {RuleOrder, []Event{up, begin("1"), accepted("1"), begin("2"), accepted("2"), made(FaultCutClients), over(FaultCutClients), given("2"), given("1"), answer("1"), answer("2"), end("1", Result), end("2", Result)}},
		"out of order":                        {RuleOrder, []Event{up, begin("1"), accepted("1"), begin("2"), accepted("2"), given("2"), given("1"), answer("1"), answer("2"), end("1", Result), end("2", Result)}},
		"a session that is not known":         {RuleSession, []Event{{Kind: SessionLost, Bridge: "b", Who: "c", Text: "404"}}},
		"a server that ends":                  {RuleServer, []Event{{Kind: Broke, Text: "exit status 2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := Check(script(c.events...))
			if len(found) == 0 {
				t.Fatal("nothing was found")
			}
			for _, v := range found {
				if v.Rule != c.rule {
					t.Errorf("found %v, want %s alone", v, c.rule)
				}
			}
		})
	}
}

func TestSetsAreReadFromLists(t *testing.T) {
	got := seen([]definition{
		{"a-call", setText(3, 2)},
		{"b-call", setText(1, 1)},
		{"a-set1", setText(3, 2)},
		{"c-call", setText(2, 3)},
		{"c-set1", setText(2, 3)},
		{"d-call", setText(2, 2)},
		{"d-set1", setText(1, 2)},
		{"e-call", "something else"},
	})
	want := map[string]int{"a": 3, "b": 1, "c": Torn, "d": Torn, "e": Torn}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHistoriesAreReadAsTheyWereWritten(t *testing.T) {
	var file bytes.Buffer
	h := NewHistory(&file)
	h.Add(begin("1"))
	h.Add(listed(0, 3))
	h.Add(change(end("1", Busy), func(e *Event) { e.Text = "limit \"reached\"\n" }))
	events, err := h.Events()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadHistory(&file)
	if err != nil || !reflect.DeepEqual(read, events) {
		t.Errorf("read %v, %v, want %v", read, err, events)
	}
	if _, err := ReadHistory(strings.NewReader("{\"at\":1}\n{")); err == nil {
		t.Error("half an event was read")
	}
}

func TestAnswersAreFoundInBodies(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body string
		want       reply
	}{
		"JSON":             {"application/json", `{"jsonrpc":"2.0","id":7,"result":{"a":1}}`, reply{outcome: Result, answers: 1, result: json.RawMessage(`{"a":1}`)}},
		"events":           {"text/event-stream", "data: \n\nevent: message\ndata: {\"method\":\"x\"}\n\ndata: {\"id\":7,\"result\":{}}\n\n", reply{outcome: Result, answers: 1, result: json.RawMessage(`{}`)}},
		"two":              {"text/event-stream", "data: {\"id\":7,\"result\":{}}\n\ndata: {\"id\":7,\"result\":{}}\n\n", reply{outcome: Result, answers: 2, result: json.RawMessage(`{}`)}},
		"another's answer": {"application/json", `{"id":8,"result":{}}`, reply{}},
		"a cut":            {"text/event-stream", "data: {\"id\":7,\"res", reply{}},
	} {
		if got := parse(c.kind, []byte(c.body), 7); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	r := parse("application/json", []byte(`{"id":7,"error":{"code":-32603,"message":"no"}}`), 7)
	if r.outcome != Failed || r.text != "-32603 no" || r.failure == nil {
		t.Errorf("an error: %+v", r)
	}
}
