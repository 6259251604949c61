package mcp

import (
	"encoding/json"
	"errors"
	"net/http"

	"mcpbridge/session"
)

// complete answers completion/complete. A provider that has no completion has none to
// suggest.
func (x *exchange) complete() {
	var ref struct{ Type, Name, URI string }
	if x.q.ref == nil || json.Unmarshal(x.q.ref, &ref) != nil || len(x.q.argument) == 0 || x.q.argument[0] != '{' {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `params must have "ref" and "argument", objects`})
		return
	}
	s, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	to := target{method: "completion/complete"}
	switch ref.Type {
	case "ref/prompt":
		to.kind, to.name = session.KindPrompt, ref.Name
	case "ref/resource":
		to.kind, to.name = session.KindTemplate, ref.URI
		if s.Catalog().Of(to.kind).Find(to.name) == nil {
			to.kind = session.KindResource
		}
	default:
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `"ref.type" must be "ref/prompt" or "ref/resource"`})
		return
	}
	to.extra = append(append(to.extra, `"argument":`...), x.q.argument...)
	if x.q.context != nil {
		to.extra = append(append(to.extra, `,"context":`...), x.q.context...)
	}
	timeout, bad := x.timeout(nil)
	if bad != nil {
		x.fail(bad)
		return
	}
	to.timeout = timeout
	to.unknown = &rpcError{status: http.StatusOK, code: codeInvalidParams, message: `"ref" names nothing that is offered here`}
	x.to = to
	o := x.attempt(s, newPulse(x), session.Input{})
	defer o.Result.Release()
	if e, ok := errors.AsType[*session.ProtocolError](o.Err); ok && e.Code == codeUnknownMethod {
		x.result([]byte(`"completion":{"values":[],"total":0,"hasMore":false}`))
		return
	}
	x.finish(o)
}
