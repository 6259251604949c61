package mcp

import (
	"bytes"
	"net/http"
	"strings"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// serveLegacy answers a message of the revisions up to 2025-11-25. Without a
// session it is served statelessly, as 2025-03-26 allows.
func (x *exchange) serveLegacy(header string) {
	if x.q.method == "initialize" && x.q.id != nil {
		x.initialize()
		return
	}
	if x.resume(header) {
		x.answerLegacy()
	}
}

// resume finds the session that a request names. False when the request has been
// answered.
func (x *exchange) resume(header string) bool {
	if text := x.r.Header.Get("Mcp-Session-Id"); text != "" {
		s, err := x.e.session(x.r.Context(), text, x.bridge, x.principal)
		if err != nil {
			x.failed(err)
			return false
		}
		if s == nil {
			x.fail(&rpcError{status: http.StatusNotFound, code: codeInvalidRequest, message: sessionGone})
			return false
		}
		x.mcp = s
	} else if header == rev20250618 || header == rev20251125 {
		x.fail(invalid("the header Mcp-Session-Id is missing; initialize first"))
		return false
	}
	return true
}

// answerLegacy answers a message of a known session, or of none.
func (x *exchange) answerLegacy() {
	if x.q.answer || x.q.id == nil {
		x.notified()
		return
	}
	switch x.q.method {
	case "tools/call":
		x.call()
	case "tools/list":
		x.list(session.KindTool)
	case "prompts/list":
		x.list(session.KindPrompt)
	case "prompts/get":
		x.prompt()
	case "resources/list":
		x.list(session.KindResource)
	case "resources/templates/list":
		x.list(session.KindTemplate)
	case "resources/read":
		x.readResource()
	case "resources/subscribe", "resources/unsubscribe":
		x.subscribe()
	case "completion/complete":
		x.complete()
	case "ping":
		x.result()
	case "logging/setLevel":
		x.setLevel()
	default:
		x.fail(x.unknownMethod(http.StatusOK))
	}
}

func (x *exchange) unknownMethod(status int) *rpcError {
	return &rpcError{status: status, code: codeUnknownMethod, message: "method " + clip(x.q.method) + " is not served here"}
}

// clip shortens a peer's text for an error.
func clip(text string) string {
	if len(text) > 64 {
		text = strings.ToValidUTF8(text[:64], "") + "..."
	}
	return `"` + text + `"`
}

// notified takes what wants no answer.
func (x *exchange) notified() {
	if x.q.answer && x.mcp != nil && x.q.id != nil {
		x.mcp.answer(string(x.q.id), reply{bytes.Clone(x.q.result), bytes.Clone(x.q.err)})
	}
	if x.q.method == "notifications/cancelled" && x.mcp != nil && x.q.requestID != nil {
		x.mcp.cancel(string(x.q.requestID))
	}
	x.accepted()
}

func (x *exchange) initialize() {
	// A client must not be told that a bridge is there when it is not.
	live, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	version := negotiate(x.q.version)
	if x.pair != nil {
		x.pair.initialized(x.e.makeSession(x.bridge, x.principal, version, x.q.client, x.q.caps))
	} else {
		s, text := x.e.newSession(x.bridge, x.principal, version, x.q.client, x.q.caps)
		s.told.Store(live.Catalog().Revision)
		x.w.Header().Set("Mcp-Session-Id", text)
	}
	x.result([]byte(`"protocolVersion":"`+version+`",`), capabilities(live.Catalog(), false), []byte(`,"serverInfo":`+x.e.serverInfo()), instructions(live.Catalog()))
}

func (x *exchange) setLevel() {
	level := wire.LogLevel(x.q.level)
	if level < 0 {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: "level must be one of " + wire.LogLevels})
		return
	}
	if x.mcp != nil {
		x.mcp.level.Store(int32(level)) //nolint:gosec // 0 to 7
	}
	x.result()
}
