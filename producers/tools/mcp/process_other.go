//go:build !unix

package mcp

import (
	"os/exec"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
