package main

import (
	"fmt"
	"strings"
)

// A tool's name begins with its provider's. One of them is called; the others make
// up the sets that change, and their descriptions say which.

func callTool(provider string) string       { return provider + "-call" }
func setTool(provider string, i int) string { return fmt.Sprintf("%s-set%d", provider, i) }

// providerOf is the provider in a tool's name.
func providerOf(tool string) string {
	return tool[:max(0, strings.LastIndexByte(tool, '-'))]
}

// setText is the description of each tool of a set: its version and its size, with
// the tool that is called.
func setText(version, size int) string { return fmt.Sprintf("set %d of %d tools", version, size) }

// split takes BRIDGE/NAME apart.
func split(who string) (bridge, name string) {
	bridge, name, _ = strings.Cut(who, "/")
	return bridge, name
}

// definition is a tool of a set.
type definition struct{ Name, Description string }

// seen tells which set of each provider a list has.
func seen(list []definition) map[string]int {
	type tally struct{ version, size, tools int }
	found := map[string]*tally{}
	for _, d := range list {
		p := providerOf(d.Name)
		t := found[p]
		var version, size int
		if _, err := fmt.Sscanf(d.Description, "set %d of %d tools", &version, &size); err != nil {
			version = Torn
		}
		switch {
		case t == nil:
			found[p] = &tally{version, size, 1}
		case t.version != version || t.size != size:
			t.version = Torn
		default:
			t.tools++
		}
	}
	all := map[string]int{}
	for p, t := range found {
		all[p] = t.version
		if t.tools != t.size {
			all[p] = Torn
		}
	}
	return all
}
