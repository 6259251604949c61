package provider

import (
	"fmt"

	"mcpbridge/api/reveal"
	"mcpbridge/session"
)

// maxDiff is how much of a change goes into the log, in bytes.
const maxDiff = 2000

// heldMessage tells a provider what becomes of a definition that is held, and what to do.
func (c *conn) heldMessage(h session.Held) string {
	name, now := h.Exposed, "clients are listed the earlier one"
	if name == "" {
		name, now = session.SafeName(h.Name), "the tool is not listed"
	}
	if h.Blocks {
		now += ", and calls are refused, for it promises more than this one"
	}
	what := "differs from the one that clients were listed, and is held"
	if h.Rejected {
		what = "was rejected by the bridge's owner"
	}
	return fmt.Sprintf("the definition %s: %s until it is approved (mcpbridge bridge approve %s %s)", what, now, c.bridge, name)
}

// logHeld shows what has changed, once.
func (c *conn) logHeld(h session.Held) {
	if !h.Fresh {
		return
	}
	c.e.cfg.Log.Warn("a changed definition is held until it is approved", "bridge", c.bridge, "provider", c.inst.Provider(),
		"list", h.Kind.String(), "name", clip(h.Name), "hash", h.Hash, "refusing_calls", h.Blocks, "change", reveal.Line(reveal.Diff(h.Was, h.Now), maxDiff))
}
