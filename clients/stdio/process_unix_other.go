//go:build unix && !linux

package stdio

import "syscall"

func adopt() {}

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adopted() []int { return nil }
