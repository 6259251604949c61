package stdio

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER (prctl(2)).
const prSetChildSubreaper = 36

// adopt makes this process the parent of whatever its descendants leave behind, in
// whichever group or session that is.
func adopt() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0) // groups are ended without it, too
}

// attributes: a group of its own, and no life after the supervisor's.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopted are the children of this process.
func adopted() (pids []int) {
	entries, _ := os.ReadDir("/proc") // without it there are groups
	me := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid …; the name may have anything in it (proc(5)).
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == me {
			pids = append(pids, pid)
		}
	}
	return pids
}
