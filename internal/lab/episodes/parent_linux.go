package episodes

import "syscall"

// dieWithParent keeps no role alive when this program itself is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
