//go:build !linux

package main

import "net"

// refuseNew is Linux's alone: elsewhere a client that connects while the listener
// closes may see a reset.
func refuseNew(net.Listener) bool { return false }
