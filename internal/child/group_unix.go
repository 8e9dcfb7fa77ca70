//go:build unix

package child

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// signalGroup sends a signal to a program and all that it has started.
func signalGroup(cmd *exec.Cmd, s syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s) // the group may have ended
}

// signalOf is the signal that ended a process, 0 where none did.
func signalOf(state *os.ProcessState) syscall.Signal {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return 0
}

// SocketPair makes two connected stream sockets, which no program inherits: one for this process, and a file to hand to a program by
// [exec.Cmd.ExtraFiles]. The caller closes both.
func SocketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := openSocketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "parent"), os.NewFile(uintptr(fds[1]), "child")
	conn, err := net.FileConn(mine) // it has a descriptor of its own
	_ = mine.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("use a socket pair: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil //nolint:forcetypeassert // it is a Unix socket
}

// openSocketPair makes the sockets. No program is started between their making and their mark to be closed in programs.
func openSocketPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return fds, nil
}
