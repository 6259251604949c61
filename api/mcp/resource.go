package mcp

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// readResource answers resources/read.
func (x *exchange) readResource() {
	s, to, ok := x.resource("resources/read")
	if ok {
		x.relay(s, to)
	}
}

// subscribe answers resources/subscribe and resources/unsubscribe. The provider is
// told; one that has no subscriptions may still say that a resource was updated.
func (x *exchange) subscribe() {
	s, to, ok := x.resource(x.q.method)
	if !ok {
		return
	}
	if x.mcp != nil && !x.mcp.subscribe(x.q.uri, x.q.method == "resources/subscribe") {
		x.failed(&session.LimitError{Limit: "subscriptions of a session", Max: maxSubscriptions})
		return
	}
	timeout, bad := x.timeout(nil)
	if bad != nil {
		x.fail(bad)
		return
	}
	to.timeout = timeout
	x.to = to
	if x.mcp != nil && x.pair == nil {
		x.e.expectStream(x.r, x.mcp)
	}
	x.attempt(s, newPulse(x), session.Input{}).Result.Release()
	x.result()
}

// resource finds who offers the resource that a request names. False when the
// request has been answered.
func (x *exchange) resource(method string) (s *session.Session, to target, ok bool) {
	if !x.q.hasURI {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `params must have "uri", a string`})
		return nil, to, false
	}
	s, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return nil, to, false
	}
	uri, _ := json.Marshal(x.q.uri) // a string always encodes
	none := &rpcError{status: http.StatusOK, code: codeNoResource, message: "unknown resource", data: json.RawMessage(`{"uri":` + string(uri) + `}`)}
	if x.modern {
		none.code = codeInvalidParams
	}
	to, found := resolve(s.Catalog(), x.q.uri)
	if !found {
		x.fail(none)
		return nil, to, false
	}
	to.method, to.unknown = method, none
	return s, to, true
}

// resolve finds who offers a URI: who listed it, else who has a template for it, else
// the one provider that has resources at all, which may not list them.
func resolve(c *session.Catalog, uri string) (to target, ok bool) {
	if o := c.Of(session.KindResource).Find(uri); o != nil {
		return target{kind: session.KindResource, name: uri}, true
	}
	own := uri
	if i := strings.LastIndex(uri, session.URIMark); i >= 0 {
		own = uri[:i]
	}
	mark := uri[len(own):]
	var only *session.Offer
	alone := true
	for _, kind := range []session.Kind{session.KindTemplate, session.KindResource} {
		for _, o := range c.Of(kind).Offers {
			if kind == session.KindTemplate && strings.TrimPrefix(o.Tool.Exposed, o.Tool.Name) == mark && matches(o, own) {
				return target{kind: kind, name: o.Tool.Exposed, uri: own}, true
			}
			alone = alone && (only == nil || only.Provider == o.Provider)
			only = o
		}
	}
	if only == nil || !alone {
		return to, false
	}
	return target{kind: only.Tool.Kind, name: only.Tool.Exposed, uri: uri}, true
}

// matches tells whether a URI is one of a template's (RFC 6570).
func matches(o *session.Offer, uri string) bool {
	re, _ := o.Memo(func() any {
		t, err := uritemplate.New(o.Tool.Name)
		if err != nil {
			return (*regexp.Regexp)(nil)
		}
		return t.Regexp()
	}).(*regexp.Regexp)
	return re != nil && re.MatchString(uri)
}

// hinted tells whether a result has cache hints of its own.
func hinted(raw json.RawMessage) (has bool) {
	s := wire.Reread(raw)
	_ = s.Object(func(name []byte) error { // what has been checked has no errors
		has = has || string(name) == "ttlMs"
		_, err := s.Raw()
		return err
	})
	return has
}
