package mcp

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// pulse is what a client hears before the outcome: the provider's events, and
// signs of life of the bridge's own.
type pulse struct {
	x          *exchange
	c          *session.Call
	deadline   time.Time // when the call is given up
	parkBy     time.Time // until when it may wait for its provider to come back; zero for as long as it likes
	begun      time.Time
	spoke      time.Time // when anything was last sent
	progressed time.Time // when progress was last sent
	progress   float64   // the value last sent
	moving     bool      // progress has a value
}

func newPulse(x *exchange) *pulse {
	now := time.Now()
	return &pulse{x: x, begun: now, spoke: now, progressed: now}
}

// next is how long to wait until something is due.
func (p *pulse) next(now time.Time) time.Duration {
	due := p.deadline
	if !p.parkBy.IsZero() {
		due = earliest(due, p.parkBy)
	}
	if p.c.Events && p.x.events {
		due = earliest(due, p.spoke.Add(keepAlive))
		if p.x.q.meta.token != nil {
			due = earliest(due, p.progressed.Add(syntheticEvery))
		}
	}
	return due.Sub(now)
}

// extend gives the call more time from now, while a person is asked.
func (p *pulse) extend(d time.Duration) {
	if t := time.Now().Add(d); t.After(p.deadline) {
		p.deadline = t
	}
}

// restart gives the call its whole time from now.
func (p *pulse) restart() { p.deadline = time.Now().Add(p.x.to.timeout) }

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// relay passes on the provider's events.
func (p *pulse) relay() {
	if !p.c.Events && !p.c.Asks {
		return
	}
	for _, e := range p.c.Take() {
		switch e.Kind {
		case session.EventProgress:
			// Synthetic progress may have overtaken it.
			if p.x.events && p.x.q.meta.token != nil && !(p.moving && e.Progress <= p.progress) {
				p.sendProgress(e)
			}
		case session.EventLog:
			if p.x.events && p.x.wants(e.Level) {
				p.sendLog(e)
			}
		case session.EventAsk:
			p.x.put(e.Ask, p)
		case session.EventAskOver:
			p.x.unask(p, func(a *session.Ask) bool { return a == e.Ask })
		}
	}
}

// syntheticStep is by how much synthetic progress grows: little, so that the
// provider's own next value is greater.
const syntheticStep = 1e-4

// beat sends what is due when the provider is silent.
func (p *pulse) beat(now time.Time) {
	if p.x.q.meta.token != nil && p.c.Events && p.x.events && !now.Before(p.progressed.Add(syntheticEvery)) {
		value := p.progress
		if p.moving {
			value = max(value+syntheticStep, math.Nextafter(value, math.Inf(1)))
		}
		text, _ := json.Marshal("waiting for the provider since " + now.Sub(p.begun).Round(time.Second).String()) // a string always encodes
		p.sendProgress(session.Event{Progress: value, Value: strconv.AppendFloat(nil, value, 'f', -1, 64), Message: text})
		return
	}
	if p.c.Events && p.x.events && !now.Before(p.spoke.Add(keepAlive)) {
		p.x.open()
		p.x.sink.alive()
		p.spoke = now
	}
}

func (p *pulse) send(message []byte) {
	p.x.open()
	p.x.sink.event(message)
	p.spoke = time.Now()
}

// sendProgress sends a notification under the client's own token, as it wrote it.
func (p *pulse) sendProgress(e session.Event) {
	p.moving, p.progress = true, e.Progress
	b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), p.x.q.meta.token...)
	b = append(append(b, `,"progress":`...), e.Value...)
	if e.Total != nil {
		b = append(append(b, `,"total":`...), e.Total...)
	}
	if e.Message != nil {
		b = append(append(b, `,"message":`...), e.Message...)
	}
	p.send(append(b, "}}"...))
	p.progressed = p.spoke
}

func (p *pulse) sendLog(e session.Event) {
	b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"`), e.Level...)
	b = append(b, '"')
	if e.Logger != nil {
		b = append(append(b, `,"logger":`...), e.Logger...)
	}
	b = append(append(b, `,"data":`...), e.Value...)
	p.send(append(b, "}}"...))
}

// wants tells whether the client asked for log messages of a level: in the modern
// era on this request, before it on its session.
func (x *exchange) wants(level string) bool {
	if !x.modern {
		return wire.LogLevel(level) >= x.least()
	}
	asked, ok := wire.Text(x.q.meta.level)
	return ok && wire.LogLevel(level) >= wire.LogLevel(asked)
}

// least is the least level of log message that a client before the modern era takes.
func (x *exchange) least() int {
	if x.mcp == nil {
		return int(defaultLevel)
	}
	return int(x.mcp.level.Load())
}
