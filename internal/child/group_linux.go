package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are a group of its own, and a signal when the starting thread ends; 0 is none.
func attributes(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
}

// awaitExit waits until the program has ended, and kills what it has left behind: while its exit status is not read, the id of its group is
// no other's. It returns false where the end is not known.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // nothing may be left
			return true
		}
		if !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}
