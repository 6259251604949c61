package mcp

import (
	"mcpbridge/api/shape"
	"mcpbridge/api/wire"
)

// era is what the client's revision is able to carry. A client without a session has
// said nothing that would tell: it gets the provider's own bytes.
func (x *exchange) era() shape.Era {
	if x.modern || x.mcp == nil {
		return shape.Modern
	}
	return shape.EraOf(x.mcp.Version)
}

// rawWanted tells whether ?raw=1 in the URL asks for the provider's own bytes.
func (x *exchange) rawWanted() bool {
	return x.r.URL.RawQuery != "" && x.r.URL.Query().Get("raw") == "1"
}

// profile is what is known of the client, for shaping the tools it is shown.
func (x *exchange) profile() shape.Profile {
	if x.rawWanted() {
		return shape.Profile{}
	}
	var name string
	switch {
	case x.modern:
		name, _ = wire.Text(x.q.meta.client.name)
	case x.mcp != nil:
		name, _ = wire.Text(x.mcp.Name)
	default:
		return shape.Profile{}
	}
	if name == "" {
		name = x.r.UserAgent()
	}
	return shape.Profile{Era: x.era(), Shield: shape.Shielded(name)}
}
