//go:build unix

package starlark

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// spawn starts a worker that has one end of a socket pair as file descriptor 3, no environment and no standard input, in a process
// group of its own, so that a terminal's interrupt does not reach it.
func spawn(memory int64, stderr io.Writer) (*exec.Cmd, net.Conn, error) {
	mine, theirs, err := socketPair()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	defer theirs.Close()
	defer mine.Close()
	conn, err := net.FileConn(mine) // it has a descriptor of its own
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	program, err := self()
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	cmd := &exec.Cmd{
		Path: program, Args: []string{childName, strconv.FormatInt(memory, 10)}, Dir: "/",
		Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=none"}, Stderr: stderr, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, WaitDelay: killDelay,
	}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("start a worker: %w", err)
	}
	return cmd, conn, nil
}

// socketPair is two connected sockets, which no other program inherits.
func socketPair() (a, b *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "host"), nil
}

// signalled is the signal that ended a process, 0 for none.
func signalled(state *os.ProcessState) int {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return int(s.Signal())
	}
	return 0
}
