//go:build unix && !linux

package child

import "syscall"

// attributes are a group of its own: the system sends no signal when a parent dies.
func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit leaves the waiting to exec.Cmd.
func awaitExit(int) bool { return false }
