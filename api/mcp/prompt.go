package mcp

import (
	"net/http"

	"mcpbridge/session"
)

// prompt answers prompts/get.
func (x *exchange) prompt() {
	if !x.q.named {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `params must have "name", a string`})
		return
	}
	if a := x.q.arguments; a != nil && a[0] != '{' {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `"arguments" must be an object`})
		return
	}
	x.relayed(target{
		kind: session.KindPrompt, name: x.q.name, method: "prompts/get",
		unknown: &rpcError{status: http.StatusOK, code: codeInvalidParams, message: "unknown prompt"},
	})
}

// relayed makes a call whose offer needs no look at the catalog first.
func (x *exchange) relayed(to target) {
	s, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	x.relay(s, to)
}

func (x *exchange) relay(s *session.Session, to target) {
	timeout, bad := x.timeout(nil)
	if bad != nil {
		x.fail(bad)
		return
	}
	to.timeout = timeout
	x.to = to
	x.invoke(s)
}
