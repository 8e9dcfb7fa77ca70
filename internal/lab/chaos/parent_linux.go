package chaos

import "syscall"

// dieWithParent keeps no role alive when the harness itself is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
