//go:build unix

package torch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// spawnProcess starts a Python that has one end of a socket pair as file descriptor 3, in a process group of its own, and returns the
// other end. The title is its last argument. Nothing reads it; it is for people who list processes.
func spawnProcess(python, title string, env []string, output *tail) (*process, error) {
	mine, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	defer theirs.Close()
	defer mine.Close()
	conn, err := net.FileConn(mine) // it has a descriptor of its own
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	cmd := exec.Command(python, "-u", "-c", bootstrap, "weir: "+title)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = killDelay
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	return newProcess(cmd, conn, output), nil
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
	return os.NewFile(uintptr(fds[0]), "weir"), os.NewFile(uintptr(fds[1]), "rank"), nil
}

// killGroup ends a process and the processes that it started.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // a process that has ended cannot be killed

// endSignal is the signal that ended a process, 0 for none.
func endSignal(state *os.ProcessState) int {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return int(s.Signal())
	}
	return 0
}
