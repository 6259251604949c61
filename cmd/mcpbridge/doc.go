// Command mcpbridge is the bridge server and its tools for the terminal, in one
// binary. `mcpbridge --help` lists the subcommands, one file each.
//
// Results go to stdout, everything else to stderr. The exit status is 0 when the
// command did its work, 1 when it failed, and 2 when it was called wrongly. The
// first SIGINT or SIGTERM ends a command in good order, a second one at once.
package main
