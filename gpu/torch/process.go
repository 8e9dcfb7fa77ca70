package torch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/child"
)

// killDelay is how long a killed process's output may take to arrive.
const killDelay = 5 * time.Second

// tailBytes bounds how much is kept of a rank's output.
const tailBytes = 4096

// process is a rank's, on this machine.
type process struct {
	*child.Process
	conn   net.Conn
	output *child.Tail
}

// spawnProcess starts a Python that has one end of a socket pair as file descriptor 3, and returns the other end. The title is its last
// argument, which nothing reads but who looks at the processes.
func spawnProcess(python, title string, env []string) (*process, error) {
	conn, theirs, err := child.SocketPair()
	if err != nil {
		return nil, fmt.Errorf("the engine torch needs a socket that its processes inherit: %w", err)
	}
	defer theirs.Close()
	p := &process{conn: conn, output: child.NewTail(tailBytes)}
	cmd := exec.Command(python, "-u", "-c", bootstrap, "weir: "+title)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.WaitDelay = killDelay
	if p.Process, err = child.Start(cmd, 0); err != nil { // it ends when its socket closes
		_ = conn.Close()
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	return p, nil
}

// howEnded returns how the process ended, and waits for that.
func (p *process) howEnded() string {
	switch signal := p.KilledBy(); {
	case signal == syscall.SIGKILL:
		return "was killed by signal 9, as the kernel does where memory runs out"
	case signal != 0:
		return fmt.Sprintf("was ended by signal %d", int(signal))
	case p.Err() != nil:
		return "ended with " + p.Err().Error()
	default:
		return "ended"
	}
}

// killAndWait ends the process and waits for that.
func (p *process) killAndWait() {
	_ = p.conn.Close()
	p.Kill()
}
