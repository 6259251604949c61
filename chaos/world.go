package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Addresses of the run. Those of clients and providers are told apart by the rules
// that cut one or the other.
const (
	clientAddress   = "127.0.0.3"
	providerAddress = "127.0.0.2"
)

// insideFlag is given to the process that runs in namespaces of its own.
const insideFlag = "-inside"

// enter runs this command again in a network and a mount namespace of its own,
// whose loopback can be cut and whose disk can be filled while nothing else on the
// machine notices. ok is false, and why says what is missing, where that cannot be
// done.
func enter(ctx context.Context, w io.Writer, args []string) (status int, ok bool, why string) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, false, "the command ip is missing"
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{insideFlag}, args...)...)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if os.Geteuid() != 0 { // root of a user namespace will do, where users may have one
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return 0, false, err.Error()
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, exit.ExitCode()), true, ""
	}
	if err != nil {
		return 1, true, ""
	}
	return 0, true, ""
}

// world is what the run may do to its surroundings.
type world struct {
	dir     string // for the store
	network bool   // connections can be cut by address
	disk    bool   // dir is a small file system of its own
	missing []string
}

// diskSize is that of the run's file system.
const diskSize = "48m"

// arrange makes dir/disk, inside namespaces a file system of its own, and brings up
// their loopback.
func arrange(ctx context.Context, dir string, inside bool) (*world, error) {
	w := &world{dir: filepath.Join(dir, "disk")}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, err
	}
	if !inside {
		return w, nil
	}
	// The local table may be asked later than at once, so that a rule can come before it.
	if err := ip(ctx, "link", "set", "lo", "up"); err != nil {
		return nil, fmt.Errorf("chaos: the network namespace is of no use: %w", err)
	}
	err := ip(ctx, "rule", "add", "pref", "10", "lookup", "local")
	if err == nil {
		err = ip(ctx, "rule", "del", "pref", "0")
	}
	if w.network = err == nil; !w.network {
		w.missing = append(w.missing, "network cuts: "+err.Error())
	}
	err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("tmpfs", w.dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size="+diskSize+",mode=0700")
	}
	if w.disk = err == nil; !w.disk {
		w.missing = append(w.missing, "disk full, disk read-only: "+err.Error())
	}
	return w, nil
}

// close lets go of the file system.
func (w *world) close() error {
	if w.disk {
		return syscall.Unmount(w.dir, syscall.MNT_DETACH)
	}
	return nil
}

// from is the address that a peer dials from: any, where nothing can be cut.
func (w *world) from(address string) string {
	if w.network {
		return address
	}
	return ""
}

// cut drops every packet from and to an address, and says how to go back.
func (w *world) cut(ctx context.Context, addresses ...string) (mend func() error, err error) {
	var undo [][]string
	mend = func() error {
		var errs []error
		for _, args := range undo {
			errs = append(errs, ip(context.WithoutCancel(ctx), args...))
		}
		return errors.Join(errs...)
	}
	for i, a := range addresses {
		for j, way := range []string{"from", "to"} {
			pref := fmt.Sprint(1 + 2*i + j)
			if err := ip(ctx, "rule", "add", "pref", pref, way, a, "blackhole"); err != nil {
				return nil, errors.Join(err, mend())
			}
			undo = append(undo, []string{"rule", "del", "pref", pref})
		}
	}
	return mend, nil
}

// readOnly makes the file system one that nobody can write to, or so no longer.
func (w *world) readOnly(on bool) error {
	flags := uintptr(syscall.MS_REMOUNT | syscall.MS_NOSUID | syscall.MS_NODEV)
	if on {
		flags |= syscall.MS_RDONLY
	}
	return syscall.Mount("tmpfs", w.dir, "tmpfs", flags, "size="+diskSize)
}

// fill takes all the space that is left, and says how to give it back.
func (w *world) fill() (free func() error, err error) {
	name := filepath.Join(w.dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	free = func() error { return os.Remove(name) }
	block := make([]byte, 64<<10)
	for size := len(block); size >= 512; { // to the last page
		if _, err := f.Write(block[:size]); err == nil {
			continue
		} else if !errors.Is(err, syscall.ENOSPC) {
			return nil, errors.Join(err, f.Close(), free())
		}
		size /= 2
	}
	return free, f.Close()
}

// ip runs the command that configures networks.
func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
