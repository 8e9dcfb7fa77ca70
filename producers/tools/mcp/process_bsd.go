//go:build unix && !linux

package mcp

import "syscall"

// ownGroup puts a process into a group of its own, which a terminal's interrupt does not reach.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
