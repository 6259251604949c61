package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// mcpServer is the dialect mcp: the peer is an MCP server, and the bridge its client.
// The bridge's own requests have IDs that begin with ownPrefix; every other ID that it
// sends is a call's.
type mcpServer struct {
	*conn
	asked bool // the URL named the provider

	era      atomic.Uint32             // eraNone until the handshake is over
	requests atomic.Uint64             // of the bridge's own, for their IDs
	self     json.RawMessage           // the bridge's clientInfo
	info     hello                     // of the server; fixed once era is set
	lists    [session.NumKinds]*lister // nil for what the server does not have; fixed once era is set

	mu       sync.Mutex                          // guards what follows; never held over anything that waits
	gone     bool                                // the reader has ended
	warned   [session.NumKinds]map[string]string // what the log was last told of offers, by name
	timers   []*time.Timer
	discover asking
	init     asking
	found    *hello // what server/discover answered
	refusal  string // what initialize answered, if it was an error
	listen   string // ID of the subscription to list changes
	subs     map[string]*subscription

	questions asks
}

const (
	eraNone uint32 = iota
	eraLegacy
	eraModern
)

const (
	ownPrefix = "bridge-" // calls' IDs are in upper case
	// coalesce is how long list changes are gathered before the list is read again.
	coalesce = 100 * time.Millisecond
	// listenAgain is how long after its end a subscription is made anew.
	listenAgain = 5 * time.Second
)

func newMCPServer(c *conn, asked bool) *mcpServer {
	return &mcpServer{
		conn: c, asked: asked,
		self: encode(map[string]string{"name": "mcpbridge", "version": c.e.cfg.Version}),
	}
}

// after calls f later, with the lock held, unless the connection has ended by then.
// It is called with the lock held.
func (m *mcpServer) after(d time.Duration, f func()) {
	if m.gone {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.Index(m.timers, t); i >= 0 {
			m.timers = slices.Delete(m.timers, i, i+1)
			f()
		}
	})
	m.timers = append(m.timers, t)
}

func (m *mcpServer) ended() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
	for _, t := range m.timers {
		t.Stop()
	}
	m.timers = nil
}

// request sends a request of the bridge's own; members are those of its params beside
// _meta, which a modern one has. It returns the request's ID.
func (m *mcpServer) request(name, method, members string, modern bool) string {
	id := ownPrefix + name + "-" + strconv.FormatUint(m.requests.Add(1), 10)
	b := append([]byte(`{"jsonrpc":"2.0","id":"`+id+`","method":"`+method+`","params":{`), members...)
	if modern {
		if members != "" {
			b = append(b, ',')
		}
		b = append(m.appendMeta(b, bridgeCaps), '}')
	}
	m.out.send(append(b, "}}"...))
	return id
}

// bridgeCaps are what some client of the bridge may have: the bridge's own requests
// carry them, a call those of its client.
var bridgeCaps = []byte(`{"elicitation":{},"sampling":{},"roots":{}}`)

var noCaps = []byte("{}")

// appendMeta appends the _meta of a modern request, but for its closing brace.
func (m *mcpServer) appendMeta(b []byte, caps []byte) []byte {
	b = append(b, `"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modernVersion+`","io.modelcontextprotocol/clientInfo":`...)
	b = append(b, m.self...)
	b = append(b, `,"io.modelcontextprotocol/clientCapabilities":`...)
	return append(b, caps...)
}

func (m *mcpServer) refused(*problem) {} // a message without an id cannot be answered

func (m *mcpServer) reconnect(time.Duration) {} // MCP has no words for it; the close code says it

func (m *mcpServer) ping(quiet bool) {
	legacy := m.era.Load() == eraLegacy
	if legacy {
		m.request("ping", "ping", "", false)
	}
	if quiet || !legacy {
		m.e.wg.Go(m.probe)
	}
}

// handle takes one frame: a message, or a batch of them (MCP 2025-03-26).
func (m *mcpServer) handle(buf *wire.Buffer) (keep bool, err error) {
	for _, b := range buf.B {
		switch b {
		case ' ', '\t', '\r', '\n':
			continue
		case '[':
			return false, aside(m.batch, buf)
		}
		break
	}
	return m.message(buf)
}

func (m *mcpServer) batch(buf *wire.Buffer) error {
	s, err := wire.NewScanner(buf.B, m.e.limits.MessageDepth+1)
	if err != nil {
		return &problem{code: "bad_message", message: err.Error()}
	}
	var all []json.RawMessage
	err = s.Array(func() error {
		v, err := s.Raw()
		all = append(all, v)
		return err
	})
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return &problem{code: "bad_message", message: err.Error()}
	}
	for _, raw := range all {
		one := wire.NewBuffer(len(raw)) // a result's memory has one owner
		one.B = append(one.B, raw...)
		keep, err := m.message(one)
		if !keep {
			one.Release()
		}
		if err != nil && !m.complain(err) {
			return errClosed
		}
	}
	return nil
}

var errClosed = &problem{code: "closed", message: "the connection was closed", close: closeFlood}

func (m *mcpServer) message(buf *wire.Buffer) (keep bool, err error) {
	r, _ := rpcs.Get().(*rpc)
	defer func() {
		*r = rpc{} // so that it holds nobody's memory
		rpcs.Put(r)
	}()
	if err := r.decode(buf.B, m.e.limits.MessageDepth); err != nil {
		code := "bad_message"
		if _, deep := errors.AsType[*wire.DepthError](err); deep {
			code = "too_deep"
		}
		return false, &problem{code: code, message: err.Error()}
	}
	id := r.members[rID]
	switch {
	case r.members[rMethod] != nil && id != nil && string(id) != "null":
		return false, aside(m.answer, r)
	case r.members[rMethod] != nil:
		return false, m.notification(r)
	case r.members[rResult] == nil && r.members[rError] == nil:
		return false, &problem{code: "bad_message", message: "the message is neither a request nor an answer"}
	case strings.HasPrefix(string(r.text()), ownPrefix):
		return false, aside(m.own, r)
	case m.inst == nil:
		return false, nil // nothing has been asked
	default:
		return m.outcome(r, buf)
	}
}

// outcome takes the answer to a call. An ID that is not one of a call's is a stray:
// servers answer with 0, null or a number where a string was sent.
func (m *mcpServer) outcome(r *rpc, buf *wire.Buffer) (keep bool, err error) {
	id := r.text()
	if raw := r.members[rError]; raw != nil {
		e, err := readError(raw, m.e.limits.MessageDepth)
		if err != nil {
			return false, m.inst.Fail(id, session.ErrBadResult)
		}
		return false, m.inst.Fail(id, e)
	}
	if r.result.Raw == nil {
		return false, m.inst.Fail(id, session.ErrBadResult)
	}
	r.result.Buffer = buf
	return true, m.inst.Finish(id, r.result)
}

// answer answers a request of the server's, or hands it on.
func (m *mcpServer) answer(r *rpc) error {
	method := string(r.members[rMethod])
	switch method {
	case `"ping"`:
		m.reply(r.members[rID], `"result":{}`)
		return nil
	case `"elicitation/create"`, `"sampling/createMessage"`, `"roots/list"`:
		if m.inst != nil && m.era.Load() == eraLegacy {
			m.ask(r, method[1:len(method)-1])
			return nil
		}
		if method == `"roots/list"` {
			m.reply(r.members[rID], `"result":{"roots":[]}`)
			return nil
		}
	}
	m.reply(r.members[rID], `"error":{"code":-32601,"message":"the bridge does not know this method"}`)
	return nil
}

func (m *mcpServer) notification(r *rpc) error {
	switch string(r.members[rMethod]) {
	case `"notifications/progress"`:
		return m.progressed(r)
	case `"notifications/message"`:
		return aside(m.logged, r)
	case `"notifications/resources/updated"`:
		return aside(m.updated, r)
	case `"notifications/cancelled"`:
		return aside(m.forget, r)
	}
	return aside(m.changed, r)
}

var progressNames = []string{"progressToken", "progress", "total", "message"}

// progressed passes progress on. What is not as it should be is dropped: the server
// could not be told.
func (m *mcpServer) progressed(r *rpc) error {
	var v [4]json.RawMessage
	if m.inst == nil || !params(r.members[rParams], progressNames, v[:]) {
		return nil
	}
	n, err := strconv.ParseFloat(string(v[1]), 64)
	if err != nil || len(v[0]) < 2 || v[0][0] != '"' {
		return nil //nolint:nilerr // dropped
	}
	if t := v[2]; t != nil && t[0] != '-' && (t[0] < '0' || t[0] > '9') {
		v[2] = nil
	}
	if t := v[3]; t != nil && t[0] != '"' {
		v[3] = nil
	}
	return m.inst.Notify(v[0][1:len(v[0])-1], session.Event{
		Kind: session.EventProgress, Progress: n, Value: own(v[1]), Total: own(v[2]), Message: own(v[3]),
	})
}

var logNames = []string{"level", "logger", "data", "_meta"}

// relatedNames are the members of a notification's _meta by which servers say to which
// request it belongs.
var relatedNames = []string{"progressToken", "requestId", "relatedRequestId", "io.modelcontextprotocol/relatedRequestId"}

// logged passes a log message on to the call that it names, or else to the only one
// that is in flight: MCP has no member that says whose it is.
func (m *mcpServer) logged(r *rpc) error {
	var v [4]json.RawMessage
	if m.inst == nil || !params(r.members[rParams], logNames, v[:]) {
		return nil
	}
	level, _ := wire.Text(v[0])
	if wire.LogLevel(level) < 0 || v[2] == nil {
		return nil
	}
	if t := v[1]; t != nil && t[0] != '"' {
		v[1] = nil
	}
	e := session.Event{Kind: session.EventLog, Level: level, Value: own(v[2]), Logger: own(v[1])}
	var related [4]json.RawMessage
	if v[3] != nil && params(v[3], relatedNames, related[:]) {
		for _, id := range related {
			if len(id) > 2 && id[0] == '"' {
				return m.inst.Notify(id[1:len(id)-1], e)
			}
		}
	}
	return m.inst.NotifyOnly(e)
}

func (m *mcpServer) updated(r *rpc) error {
	var v [1]json.RawMessage
	if m.inst == nil || !params(r.members[rParams], []string{"uri"}, v[:]) {
		return nil
	}
	uri, ok := wire.Text(v[0])
	if !ok {
		return nil
	}
	return m.inst.Updated(uri)
}

// changed has the lists of a kind read again.
func (m *mcpServer) changed(r *rpc) error {
	method, _ := wire.Text(r.members[rMethod])
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, l := range m.lists {
		if l != nil && kinds[k].changed == method {
			m.refresh(session.Kind(k), coalesce)
		}
	}
	return nil
}

// own takes the answer to a request of the bridge's own.
func (m *mcpServer) own(r *rpc) error {
	id := string(r.text())
	name, _, _ := strings.Cut(id[len(ownPrefix):], "-")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch name {
	case "discover":
		return m.discovered(r)
	case "initialize":
		return m.initialized(r)
	case "list":
		for k, l := range m.lists {
			if l != nil && l.id == id {
				return m.listed(session.Kind(k), l, r)
			}
		}
	case "listen":
		if m.listen == id {
			m.unheard(r)
		}
	}
	return nil // of a ping, or of a request that nobody waits for
}

// cancels: every MCP server knows the notification.
func (m *mcpServer) cancels() bool { return true }

func (m *mcpServer) appendCancel(b []byte, c *session.Call, reason session.Reason) []byte {
	b = append(b, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"`...)
	b = c.AppendID(b)
	return fmt.Appendf(b, `","reason":"%s"}}`, reason)
}

// appendCall appends the request that a call is.
func (m *mcpServer) appendCall(b []byte, c *session.Call, _ time.Time) []byte {
	method := c.Method
	switch method {
	case "":
		method = "tools/call"
	case "resources/subscribe", "resources/unsubscribe":
		return m.appendSubscription(b, c)
	}
	b = append(b, `{"jsonrpc":"2.0","id":"`...)
	b = c.AppendID(b)
	b = append(append(append(b, `","method":"`...), method...), `","params":{`...)
	switch method {
	case "resources/read":
		b = appendString(append(b, `"uri":`...), c.Name())
	case "completion/complete":
		if c.Kind == session.KindPrompt {
			b = appendString(append(b, `"ref":{"type":"ref/prompt","name":`...), c.Name())
		} else {
			b = appendString(append(b, `"ref":{"type":"ref/resource","uri":`...), c.Name())
		}
		b = append(b, '}')
	default:
		b = appendString(append(b, `"name":`...), c.Name())
		if c.Arguments != nil {
			b = append(append(b, `,"arguments":`...), c.Arguments...)
		} else if c.Kind == session.KindTool {
			b = append(b, `,"arguments":{}`...) // servers check what is absent against the schema
		}
	}
	if c.Extra != nil {
		b = append(append(b, ','), c.Extra...)
	}
	if c.Input.Responses != nil {
		b = append(append(b, `,"inputResponses":`...), c.Input.Responses...)
	}
	if c.Input.State != nil {
		b = append(append(b, `,"requestState":`...), c.Input.State...)
	}
	return append(m.appendCallMeta(b, c), "}}"...)
}

// appendCallMeta appends a comma and the _meta of a call, where it has one.
func (m *mcpServer) appendCallMeta(b []byte, c *session.Call) []byte {
	modern := m.era.Load() == eraModern
	if !modern && !c.Meta.Progress && c.Meta.Traceparent == nil {
		return b
	}
	b = append(b, ',')
	if modern {
		caps := []byte(c.Meta.Capabilities)
		if len(caps) == 0 || caps[0] != '{' {
			caps = noCaps
		}
		b = m.appendMeta(b, caps)
		if c.Meta.LogLevel != "" {
			b = append(append(append(b, `,"io.modelcontextprotocol/logLevel":"`...), c.Meta.LogLevel...), '"')
		}
	} else {
		b = append(b, `"_meta":{`...)
	}
	sep := func() {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
	}
	if c.Meta.Progress {
		sep()
		b = c.AppendID(append(b, `"progressToken":"`...))
		b = append(b, '"')
	}
	if c.Meta.Traceparent != nil {
		sep()
		b = append(append(b, `"traceparent":`...), c.Meta.Traceparent...)
	}
	return append(b, '}')
}
