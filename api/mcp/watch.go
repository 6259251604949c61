package mcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"mcpbridge/session"
)

// watch makes the caller a stream of the bridge's session, which is also told of tasks.
func (e *Endpoint) watch(r *http.Request, bridge session.BridgeID, tasks ...session.TaskID) (w *session.Watch, err error) {
	err = e.cfg.Directory.With(r.Context(), bridge, func(s *session.Session) error {
		w, err = s.Watch(tasks...)
		return err
	})
	return w, err
}

// get answers GET: the session's stream of what no request asked for. The newest
// stream of a session replaces an older one.
func (e *Endpoint) get(w http.ResponseWriter, r *http.Request, bridge session.BridgeID, principal string) {
	s, ok := e.mustSession(w, r, bridge, principal)
	if !ok {
		return
	}
	last := r.Header.Get("Last-Event-ID")
	if id, after, ok := readEventID(last); ok && id[0] == answerTape && s.resumable() {
		e.replay(w, r, s, id, after)
		return
	}
	done, err := e.cfg.Stream(r)
	if err != nil {
		e.refuse(w, err)
		return
	}
	defer done()
	watch, err := e.watchFor(r, bridge)
	if err != nil {
		e.refuse(w, err)
		return
	}
	mine, before, ok := s.takeStream()
	if !ok {
		watch.Close()
		e.writeError(w, http.StatusNotFound, codeInvalidRequest, sessionGone)
		return
	}
	defer s.leaveStream(mine, watch)
	t, after := e.resumeGet(s, last)
	in := interest{kinds: everyKind, uri: s.subscribed, told: &s.told, revoked: e.revoked(principal)}
	if before != nil {
		in.handed, in.untold = before.left, s.missed
	}
	in.overdue, in.late = s.missed()
	in.overdue |= in.missed(watch.Catalog()) // before the client hears anything, so that it is told once of what it then does
	out := open(w, e.limits.WriteTimeout)
	var to sink = out
	if t != nil {
		c := t.carry(out, after, false)
		defer t.rest(c)
		c.prime()
		c.catchUp()
		to = c
	}
	e.follow(r, to, watch, mine.replaced, in)
	if e.draining() && !to.broken() {
		out.later()
	}
}

// everyKind is the set of all kinds.
const everyKind session.Kinds = 1<<session.NumKinds - 1

// interest is what a stream is to be told of.
type interest struct {
	kinds   session.Kinds
	uri     func(exposed string) bool // of updated resources
	mark    string                    // the raw member that every notification's params carry, or empty
	overdue session.Kinds             // what the stream begins with
	late    []string                  // and the resources that were updated
	handed  <-chan struct{}           // closed when an earlier stream has left what it did not tell; or nil
	untold  func() (session.Kinds, []string)
	task    func(session.TaskID) []byte // the message for a task that has changed, or nil; nil without tasks
	revoked <-chan struct{}             // closed when the client may not hear any more
	told    *atomic.Uint64              // the revision that the client knows of, kept between its streams; or nil
}

// missed is what changed while the client had no stream: which, is not known.
func (i *interest) missed(c *session.Catalog) session.Kinds {
	if i.told == nil || i.told.Swap(c.Revision) == c.Revision {
		return 0
	}
	kinds := session.KindTool.Set()
	for k := range session.NumKinds {
		if len(c.Of(k).Offers) > 0 {
			kinds |= k.Set()
		}
	}
	return kinds
}

// notifications are the messages for what has changed.
func (i *interest) notifications(changed session.Kinds, updated []string) (all [][]byte) {
	changed &= i.kinds
	if changed.Has(session.KindTemplate) { // one list to clients
		changed |= session.KindResource.Set()
	}
	for k, name := range []string{session.KindTool: "tools", session.KindPrompt: "prompts", session.KindResource: "resources"} {
		if changed.Has(session.Kind(k)) { //nolint:gosec // a small constant
			b := `{"jsonrpc":"2.0","method":"notifications/` + name + `/list_changed"`
			if i.mark != "" {
				b += `,"params":{` + i.mark + `}`
			}
			all = append(all, []byte(b+`}`))
		}
	}
	for _, uri := range updated {
		if i.uri(uri) {
			quoted, _ := json.Marshal(uri) // a string always encodes
			b := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":` + string(quoted)
			if i.mark != "" {
				b += `,` + i.mark
			}
			all = append(all, []byte(b+`}}`))
		}
	}
	return all
}

// follow writes a notification for every change until the client, its session,
// the bridge or the process ends.
func (e *Endpoint) follow(r *http.Request, s sink, watch *session.Watch, replaced <-chan struct{}, in interest) {
	s.alive() // so that the first bytes go out at once
	for _, message := range in.notifications(in.overdue, in.late) {
		s.event(message)
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	c, _ := s.(*carrier)
	var grown <-chan struct{}
	if c != nil {
		grown = c.grown
	}
	for !s.broken() {
		select {
		case <-grown: // by an earlier carrier that was just being replaced
			c.catchUp()
		case <-in.handed:
			in.handed = nil
			for _, message := range in.notifications(in.untold()) {
				s.event(message)
			}
		case <-watch.Changed():
			if in.told != nil {
				in.told.Store(watch.Catalog().Revision)
			}
			for _, message := range in.notifications(watch.Take()) {
				s.event(message)
			}
			for _, id := range watch.TakeTasks() {
				if message := in.task(id); message != nil {
					s.event(message)
				}
			}
		case <-alive.C:
			s.alive()
		case <-replaced:
			return
		case <-in.revoked:
			return
		case <-watch.Done():
			return
		case <-e.quit:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// listen answers subscriptions/listen: first what is honoured, then what was asked
// for, each with the request's id (MCP 2026-07-28 patterns/subscriptions).
func (x *exchange) listen() {
	var want struct {
		ToolsListChanged      bool     `json:"toolsListChanged,omitempty"`
		PromptsListChanged    bool     `json:"promptsListChanged,omitempty"`
		ResourcesListChanged  bool     `json:"resourcesListChanged,omitempty"`
		ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"`

		TaskIDs []session.TaskID `json:"taskIds,omitempty"`
	}
	if x.q.listen == nil || json.Unmarshal(x.q.listen, &want) != nil {
		x.fail(&rpcError{status: 400, code: codeInvalidParams, message: `params must have "notifications", an object of what to listen to`})
		return
	}
	if !x.events {
		x.fail(&rpcError{status: http.StatusNotAcceptable, code: codeInvalidRequest, message: "subscriptions/listen needs Accept: text/event-stream"})
		return
	}
	if len(want.TaskIDs) > 0 && !x.takesTasks() {
		x.fail(errNoTasks)
		return
	}
	if len(want.TaskIDs) > maxTasks {
		want.TaskIDs = want.TaskIDs[:maxTasks] // the acknowledgement says which
	}
	done, err := x.e.cfg.Stream(x.r)
	if err != nil {
		x.failed(err)
		return
	}
	defer done()
	watch, err := x.e.watchFor(x.r, x.bridge, want.TaskIDs...)
	if err != nil {
		x.failed(err)
		return
	}
	defer watch.Close()
	want.TaskIDs = slices.DeleteFunc(slices.Clone(want.TaskIDs), func(id session.TaskID) bool { // the watch keeps its own
		_, err := watch.Session().Task(x.r.Context(), id, x.principal)
		return err != nil
	})
	id := string(x.q.id)
	mark := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}`
	if len(want.ResourceSubscriptions) > maxSubscriptions {
		want.ResourceSubscriptions = want.ResourceSubscriptions[:maxSubscriptions] // the acknowledgement says which
	}
	honoured, _ := json.Marshal(want) // booleans and strings always encode
	in := interest{revoked: x.e.revoked(x.principal), task: func(id session.TaskID) []byte { return x.taskMessage(watch.Session(), id, mark) }, mark: mark, uri: func(uri string) bool { return slices.Contains(want.ResourceSubscriptions, uri) }}
	for kind, wanted := range map[session.Kind]bool{
		session.KindTool: want.ToolsListChanged, session.KindPrompt: want.PromptsListChanged,
		session.KindResource: want.ResourcesListChanged, session.KindTemplate: want.ResourcesListChanged,
	} {
		if wanted {
			in.kinds |= kind.Set()
		}
	}
	x.open()
	if len(want.ResourceSubscriptions) > 0 {
		defer x.subscribeAll(watch.Session(), want.ResourceSubscriptions)()
	}
	x.sink.event([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + string(honoured) + `,` + mark + `}}`))
	for _, id := range want.TaskIDs { // as they are: what they were before, the client need not know
		if message := in.task(id); message != nil {
			x.sink.event(message)
		}
	}
	if in.kinds != 0 || len(want.ResourceSubscriptions) > 0 || len(want.TaskIDs) > 0 {
		x.e.follow(x.r, x.sink, watch, nil, in)
	}
	x.sink.answer([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `,` + string(x.e.identity) + `}}}`))
}
