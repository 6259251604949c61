package mcp

import "slices"

// The revisions of MCP that are served.
const (
	rev20241105 = "2024-11-05"
	rev20250326 = "2025-03-26"
	rev20250618 = "2025-06-18"
	rev20251125 = "2025-11-25"
	rev20260728 = "2026-07-28"
)

// legacy are the revisions that open with initialize, newest first.
var legacy = []string{rev20251125, rev20250618, rev20250326, rev20241105}

// supported are the revisions that server/discover and errors name.
var supported = append([]string{rev20260728}, legacy...)

func isLegacy(revision string) bool { return slices.Contains(legacy, revision) }

// negotiate is the answer to a client's initialize that asks for a revision: the
// same, or the newest that can be negotiated (MCP 2025-11-25 basic/lifecycle,
// "Version Negotiation").
func negotiate(asked string) string {
	if isLegacy(asked) {
		return asked
	}
	return rev20251125
}
