package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker; see the Makefile.
var (
	version = ""
	commit  = ""
)

type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(p *Program) error {
	_, err := fmt.Fprintf(p.Stdout, "mcpbridge %s commit %s %s %s/%s\n",
		buildVersion(), buildCommit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// buildVersion is what the linker was told, else the module's version, else
// "devel".
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func buildCommit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
