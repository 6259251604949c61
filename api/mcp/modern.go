package mcp

import (
	"encoding/json"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// serveModern answers a message of the stateless revision.
func (x *exchange) serveModern(header string) {
	if x.q.answer || x.q.id == nil {
		// notifications/cancelled cancels nothing here: the client disconnects.
		x.accepted()
		return
	}
	if bad := x.checkMeta(header); bad != nil {
		x.fail(bad)
		return
	}
	switch x.q.method {
	case "tools/call":
		x.named(x.q.name, x.call)
	case "tools/list":
		x.list(session.KindTool)
	case "prompts/list":
		x.list(session.KindPrompt)
	case "prompts/get":
		x.named(x.q.name, x.prompt)
	case "resources/list":
		x.list(session.KindResource)
	case "resources/templates/list":
		x.list(session.KindTemplate)
	case "resources/read":
		x.named(x.q.uri, x.readResource)
	case "completion/complete":
		x.complete()
	case "server/discover":
		x.discover()
	case "tasks/get", "tasks/update", "tasks/cancel":
		x.taskRequest()
	case "subscriptions/listen":
		x.listen()
	default:
		x.fail(x.unknownMethod(http.StatusNotFound))
	}
}

// checkMeta checks what every request must say (MCP 2026-07-28 basic, "_meta", and
// transports/streamable-http, "Server Validation").
func (x *exchange) checkMeta(header string) *rpcError {
	m := &x.q.meta
	version, isText := wire.Text(m.version)
	switch {
	case !isText:
		return &rpcError{status: 400, code: codeInvalidParams, message: `_meta must have "io.modelcontextprotocol/protocolVersion", a string`}
	case len(m.caps) == 0 || m.caps[0] != '{':
		return &rpcError{status: 400, code: codeInvalidParams, message: `_meta must have "io.modelcontextprotocol/clientCapabilities", an object`}
	case header != version:
		return mismatch("MCP-Protocol-Version", header, version)
	case version != rev20260728:
		data, _ := json.Marshal(map[string]any{"supported": supported, "requested": version}) // strings always encode
		return &rpcError{status: 400, code: codeVersion, message: "revision " + clip(version) + " is not served here", data: data}
	}
	if method := x.r.Header.Get(mcp.HeaderMethod); method != x.q.method {
		return mismatch(mcp.HeaderMethod, method, x.q.method)
	}
	if m.level != nil {
		if level, _ := wire.Text(m.level); wire.LogLevel(level) < 0 {
			return &rpcError{status: 400, code: codeInvalidParams, message: "logLevel must be one of " + wire.LogLevels}
		}
	}
	return nil
}

// named goes on with a request whose Mcp-Name says what its body says.
func (x *exchange) named(subject string, next func()) {
	if bad := x.checkName(subject); bad != nil {
		x.fail(bad)
		return
	}
	next()
}

func (x *exchange) checkName(subject string) *rpcError {
	value := x.r.Header.Get(mcp.HeaderName)
	name, ok := mcp.DecodeHeaderValue(value)
	if !ok {
		return &rpcError{status: 400, code: codeHeaderMismatch, message: "the header Mcp-Name is not valid Base64"}
	}
	if name != subject || value == "" {
		return mismatch(mcp.HeaderName, name, subject)
	}
	return nil
}

func mismatch(header, got, want string) *rpcError {
	if got == "" {
		return &rpcError{status: 400, code: codeHeaderMismatch, message: "the header " + header + " is missing"}
	}
	return &rpcError{
		status: 400, code: codeHeaderMismatch,
		message: "the header " + header + " says " + clip(got) + ", the body " + clip(want),
	}
}

// discover answers server/discover.
func (x *exchange) discover() {
	live, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
	if err != nil {
		x.failed(err)
		return
	}
	versions, _ := json.Marshal(supported) // strings always encode
	c := live.Catalog()
	x.result([]byte(`"supportedVersions":`), versions, []byte(`,`), capabilities(c, true), instructions(c), cacheHints)
}
