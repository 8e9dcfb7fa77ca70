//go:build !linux

package servers

import (
	"os/exec"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

// endGroup sends a signal to a server.
func endGroup(c *exec.Cmd, s syscall.Signal) { _ = c.Process.Signal(s) }
