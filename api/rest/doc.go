// Package rest is the provisioning API under /api/v1: bridges, their tokens and their
// tools, by whoever holds an admin token, or a REST key of their tenant with the scope
// for it; tenants, by administrators. What belongs to another tenant is answered as
// what does not exist.
//
// Bodies are JSON, errors are RFC 9457 problems (application/problem+json), and
// GET /api/v1/openapi.json describes it all as OpenAPI 3.1; that document is
// public. Unknown members and query parameters are refused, so that a typo is
// not a silent default. Times are RFC 3339 in UTC.
//
// A bridge's tokens are shown once, in the answer to the POST that made them.
// The store keeps their hashes.
package rest
