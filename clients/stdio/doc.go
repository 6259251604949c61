// Package stdio makes a provider of any MCP server that speaks over its standard
// input and output: one line there is one text frame of the dialect mcp here, byte for
// byte.
//
// The server runs under a supervisor, a process of this program's own that does
// nothing but end it, with everything that it started, when it is told to or when its
// parent is gone.
package stdio
