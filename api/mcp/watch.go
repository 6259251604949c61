package mcp

import (
	"encoding/json"
	"net/http"
	"time"

	"mcpbridge/session"
)

// watch makes the caller a stream of the bridge's session.
func (e *Endpoint) watch(r *http.Request, bridge session.BridgeID) (w *session.Watch, err error) {
	err = e.cfg.Directory.With(r.Context(), bridge, func(s *session.Session) error {
		w, err = s.Watch()
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
	watch, err := e.watch(r, bridge)
	if err != nil {
		e.refuse(w, err)
		return
	}
	defer watch.Close()
	replaced, ok := s.takeStream()
	if !ok {
		writeError(w, http.StatusNotFound, codeInvalidRequest, sessionGone)
		return
	}
	defer s.leaveStream(replaced)
	e.follow(r, open(w, e.limits.WriteTimeout), watch, replaced, comment, legacyChanged)
}

var legacyChanged = []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)

// follow writes a notification for every change until the client, its session,
// the bridge or the process ends. first goes out at once.
func (e *Endpoint) follow(r *http.Request, s *stream, watch *session.Watch, replaced <-chan struct{}, first, changed []byte) {
	s.write(first)
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for !s.broken {
		select {
		case <-watch.Changed():
			s.event(changed)
		case <-alive.C:
			s.alive()
		case <-replaced:
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
		ToolsListChanged bool `json:"toolsListChanged"`
	}
	if x.q.listen == nil || json.Unmarshal(x.q.listen, &want) != nil {
		x.fail(&rpcError{status: 400, code: codeInvalidParams, message: `params must have "notifications", an object of booleans`})
		return
	}
	if !accepts(x.r) {
		x.fail(&rpcError{status: http.StatusNotAcceptable, code: codeInvalidRequest, message: "subscriptions/listen needs Accept: text/event-stream"})
		return
	}
	watch, err := x.e.watch(x.r, x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	defer watch.Close()
	id := string(x.q.id)
	mark := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}`
	honoured := `{}`
	if want.ToolsListChanged {
		honoured = `{"toolsListChanged":true}`
	}
	x.stream = open(x.w, x.e.limits.WriteTimeout)
	x.stream.event([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + honoured + `,` + mark + `}}`))
	if want.ToolsListChanged {
		x.e.follow(x.r, x.stream, watch, nil, comment, []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+mark+`}}`))
	}
	x.stream.event([]byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `,` + string(x.e.identity) + `}}}`))
}
