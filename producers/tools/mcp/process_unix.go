//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// killGroup ends a process and those that it started.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // one that has ended cannot be killed
}
