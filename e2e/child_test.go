package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// childMode is the first argument that makes this program a stdio MCP server, for
// mcpbridge run.
const childMode = "stdio-child"

// childArgs is how to start the server, in some modes:
//
//	chatty    prints text, empty lines and \r\n between its messages, and before
//	bulky     has a list of 2.1 MB
//	stubborn  ignores the end of its input and SIGTERM, and starts processes that do,
//	          in sessions of their own
//	deep=N    starts such a process, that starts one, and so on: N in all
func childArgs(modes ...string) []string {
	return append([]string{os.Args[0], childMode}, modes...)
}

type childRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments map[string]any
	}
}

// child is the server: a request a line, an answer a line.
func child(modes []string) int {
	chatty, stubborn := slices.Contains(modes, "chatty"), slices.Contains(modes, "stubborn")
	if stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		for _, mode := range []string{"stubborn", "orphan"} {
			if slices.Contains(modes, "leaf") {
				break
			}
			c := exec.Command(os.Args[0], childMode, mode, "leaf")
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			c.Stderr = os.Stderr
			if err := c.Start(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
	fmt.Fprintln(os.Stderr, "started", os.Getpid()) // and ignores what it is to ignore
	if slices.Contains(modes, "orphan") {           // its parent goes, it stays
		c := exec.Command(os.Args[0], childMode, "stubborn", "leaf")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return 1
		}
		return 0
	}
	for _, mode := range modes {
		text, deep := strings.CutPrefix(mode, "deep=")
		if n, _ := strconv.Atoi(text); deep && n > 0 {
			c := exec.Command(os.Args[0], childMode, "stubborn", "leaf", "deep="+strconv.Itoa(n-1))
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			c.Stderr = os.Stderr
			if err := c.Start(); err != nil {
				return 1
			}
			fmt.Fprintln(os.Stderr, "started", c.Process.Pid)
		}
	}
	if slices.Contains(modes, "leaf") {
		select {}
	}
	end := "\n"
	if chatty {
		end = "\r\n"
		fmt.Print("Banner of the server\r\n\r\n{ not JSON\n\n")
	}
	in := bufio.NewReader(os.Stdin)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var q childRequest
		if err := json.Unmarshal(text, &q); err != nil {
			fmt.Fprintf(os.Stderr, "%v in %q\n", err, text)
			return 3
		}
		if q.ID == nil {
			continue
		}
		member, status := childAnswer(q, modes)
		if status >= 0 {
			return status
		}
		if chatty {
			fmt.Print("working on it\n", "\r\n")
		}
		fmt.Print(`{"jsonrpc":"2.0","id":`, string(q.ID), `,`, member, `}`, end)
	}
	if stubborn {
		select {}
	}
	return 0
}

// childAnswer is the member that answers a request, or the status to exit with.
func childAnswer(q childRequest, modes []string) (member string, status int) {
	text := func(s string) (string, int) {
		quoted, _ := json.Marshal(s)
		return `"result":{"content":[{"type":"text","text":` + string(quoted) + `}]}`, -1
	}
	switch q.Method {
	case "initialize":
		return `"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"child","version":"1"}}`, -1
	case "ping":
		return `"result":{}`, -1
	case "tools/list":
		var tools []string
		for _, name := range []string{"echo", "long", "exit", "mute", "environment"} {
			tools = append(tools, `{"name":"`+name+`","description":"d","inputSchema":{"type":"object"}}`)
		}
		if slices.Contains(modes, "bulky") {
			for n := range 21 {
				tools = append(tools, fmt.Sprintf(`{"name":"bulk%02d","description":%q,"inputSchema":{"type":"object"}}`, n, strings.Repeat("x", 100_000)))
			}
		}
		return `"result":{"tools":[` + strings.Join(tools, ",") + `]}`, -1
	case "tools/call":
		n, _ := q.Params.Arguments["n"].(float64)
		switch q.Params.Name {
		case "echo":
			return text("pid " + strconv.Itoa(os.Getpid()))
		case "long":
			return text(strings.Repeat("y", int(n)))
		case "exit":
			return "", int(n)
		case "mute": // it lives on, and says nothing more
			_ = os.Stdout.Close()
			return text("")
		case "environment":
			return text(strings.Join(os.Environ(), "\n"))
		}
	}
	return `"error":{"code":-32601,"message":"Method not found"}`, -1
}
