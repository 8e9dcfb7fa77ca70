package starlark

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/weir-rl/weir/internal/child"
)

// spawnWorker starts a worker that has an end of a socket pair as file descriptor 3, no environment and no standard input.
func spawnWorker(memory int64, stderr io.Writer) (*child.Process, net.Conn, error) {
	conn, theirs, err := child.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	program, err := ownProgram()
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	p, err := child.Start(&exec.Cmd{
		Path: program, Args: []string{childName, strconv.FormatInt(memory, 10)}, Dir: "/",
		Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=none"}, Stderr: stderr, ExtraFiles: []*os.File{theirs}, WaitDelay: killDelay,
	}, syscall.SIGKILL)
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("start a worker: %w", err)
	}
	return p, conn, nil
}
