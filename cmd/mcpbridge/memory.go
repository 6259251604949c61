package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryParts: so much of the memory that there is may be held by messages; what copies
// them, the rest of the server, and what the garbage collector has not yet found needs the
// others.
const memoryParts = 4

// memoryElsewhere is what there is where nobody can say.
const memoryElsewhere = 2 << 30

// budgetMemory makes the garbage collector work harder before the process has all the
// memory of its container or machine, unless GOMEMLIMIT says how much it may have, and
// returns how many bytes messages may hold, unless that is set.
func budgetMemory(set byteSize) int {
	most := debug.SetMemoryLimit(-1)
	if os.Getenv("GOMEMLIMIT") == "" || most == math.MaxInt64 {
		total, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
		if err != nil || total == 0 || total > math.MaxInt64 {
			total = memoryElsewhere
		}
		most = int64(total / 10 * 9)
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(most)
		}
	}
	if set > 0 {
		return int(set)
	}
	return int(most / memoryParts)
}
