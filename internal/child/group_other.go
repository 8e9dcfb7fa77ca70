//go:build !unix

package child

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
)

func attributes(syscall.Signal) *syscall.SysProcAttr { return nil }

func awaitExit(int) bool { return false }

// signalGroup ends the program alone, whatever the signal: the system has no groups.
func signalGroup(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }

func signalOf(*os.ProcessState) syscall.Signal { return 0 }

// SocketPair fails: the system has none.
func SocketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	return nil, nil, errors.New("make a socket pair: this system has none")
}
