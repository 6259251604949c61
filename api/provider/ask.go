package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpbridge/session"
)

// A server up to 2025-11-25 makes requests of its own while it works on a call
// (elicitation/create, sampling/createMessage, roots/list). The session finds out whose
// client they are for; what that client answers goes back byte for byte.

const (
	// askPatience is how long it may take to find out for which call a server asks.
	askPatience = 10 * time.Second
	// maxAsks is how many requests of one server may be open.
	maxAsks = 64
)

// askedCaps are what some client of the bridge may have: the bridge cannot know which
// when it initializes the server.
const askedCaps = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}`

const errAskFailed = -32603

// ask hands a request of the server's on to a client.
func (m *mcpServer) ask(r *rpc, method string) {
	id := own(r.members[rID])
	p := own(r.members[rParams])
	if p != nil && p[0] != '{' {
		m.reply(id, `"error":{"code":-32602,"message":"params must be an object"}`)
		return
	}
	key := string(id)
	a := session.NewAsk(method, p, func(answer session.Reply) {
		if m.questions.drop(key) == nil {
			return // the server wants no answer any more
		}
		switch {
		case answer.Result != nil:
			m.reply(id, `"result":`+string(answer.Result))
		case answer.Error != nil:
			m.reply(id, `"error":`+string(answer.Error))
		case method == "roots/list" && !errors.Is(answer.Cause, session.ErrNoCallToAsk):
			// Who has none says so. That nobody could be asked is another thing: servers
			// that ask once they are initialized would keep "none" for good.
			m.reply(id, `"result":{"roots":[]}`)
		default:
			f := m.e.cfg.Fault(answer.Cause)
			if f.Code == 0 {
				f.Code = errAskFailed
			}
			message, _ := json.Marshal(method + ": " + f.Message) // a string always encodes
			m.reply(id, fmt.Sprintf(`"error":{"code":%d,"message":%s}`, f.Code, message))
		}
	})
	if !m.questions.begin(key, a) {
		m.reply(id, fmt.Sprintf(`"error":{"code":%d,"message":"at most %d requests may be open, each under an id of its own"}`, errAskFailed, maxAsks))
		return
	}
	if m.inst.Ask(a) != nil {
		return // it has been answered
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.questions.open(key) {
		m.after(askPatience, func() { go m.inst.GiveUp(a) }) // not with the lock held
	}
}

// reply answers a request of the server's, under its own id.
func (m *mcpServer) reply(id json.RawMessage, member string) {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	m.out.send(append(append(append(b, ','), member...), '}'))
}

// forget takes notifications/cancelled for a request of the server's own: nobody waits
// for its answer any more.
func (m *mcpServer) forget(r *rpc) error {
	var v [1]json.RawMessage
	if !params(r.members[rParams], []string{"requestId"}, v[:]) || v[0] == nil {
		return nil
	}
	if a := m.questions.drop(string(v[0])); a != nil {
		m.inst.Withdraw(a)
	}
	return nil
}

// asks are the open requests of a server, by its raw ids.
type asks struct {
	mu   sync.Mutex // never held over anything that waits
	byID map[string]*session.Ask
}

// begin notes a request. False when there are too many, or one has that id.
func (o *asks) begin(id string, a *session.Ask) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, taken := o.byID[id]; taken || len(o.byID) >= maxAsks {
		return false
	}
	if o.byID == nil {
		o.byID = map[string]*session.Ask{}
	}
	o.byID[id] = a
	return true
}

func (o *asks) open(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[id] != nil
}

// drop forgets a request, and returns it.
func (o *asks) drop(id string) *session.Ask {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.byID[id]
	delete(o.byID, id)
	return a
}
