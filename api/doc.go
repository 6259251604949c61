// Package api is the server's outside: every route (server.go), who may use it
// (auth.go, guard.go), and how every error is told (errors.go). The rooms below it
// speak one protocol each.
package api
