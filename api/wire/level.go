package wire

import (
	"slices"
	"strings"
)

// levels are the log levels of MCP, least severe first (RFC 5424, section 6.2.1).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogLevels lists the names of the log levels, for people.
var LogLevels = strings.Join(levels, ", ")

// LogLevel is the severity of a level's name, from 0 for debug; -1 for a name
// that is none.
func LogLevel(name string) int { return slices.Index(levels, name) }

// LevelName is the name of a severity from 0 to 7.
func LevelName(level int) string { return levels[level] }
