package main

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuseNew makes a listener deaf to new connections, while those that have begun to
// connect are still accepted: closing it at once would reset them, whatever they have
// sent. A client's SYN is lost, and sent again by its kernel after a second: then the
// next process may take it, or nobody does. It tells whether that worked.
func refuseNew(listener net.Listener) bool {
	c, ok := listener.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	const flags, syn = 13, 0x02 // offset in the TCP header; RFC 9293, section 3.1
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
	return controlErr == nil && err == nil
}
