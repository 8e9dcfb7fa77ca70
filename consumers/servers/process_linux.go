package servers

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a server a process group of its own, so that its workers end with it, and has it end when Weir dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// endGroup sends a signal to a server and to all that it has started.
func endGroup(c *exec.Cmd, s syscall.Signal) {
	_ = syscall.Kill(-c.Process.Pid, s) // the group may be gone
}
