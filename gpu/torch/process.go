package torch

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// killDelay is how long a killed process's output may take to arrive.
const killDelay = 5 * time.Second

// process is a rank's, on this machine.
type process struct {
	pid    int
	conn   net.Conn
	output *tail
	cmd    *exec.Cmd
	// exited is closed when the process has ended; how is then how it did.
	exited chan struct{}
	how    string
}

func newProcess(cmd *exec.Cmd, conn net.Conn, output *tail) *process {
	p := &process{pid: cmd.Process.Pid, conn: conn, output: output, cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		err := cmd.Wait()
		switch signal := endSignal(cmd.ProcessState); {
		case signal == 9:
			p.how = "was killed by signal 9, as the kernel does where memory runs out"
		case signal != 0:
			p.how = fmt.Sprintf("was ended by signal %d", signal)
		case err != nil:
			p.how = "ended with " + err.Error()
		default:
			p.how = "ended"
		}
	}()
	return p
}

// killAndWait ends the process and waits for that.
func (p *process) killAndWait() {
	_ = p.conn.Close()
	select {
	case <-p.exited: // its number may be another's by now
	default:
		killGroup(p.pid)
	}
	<-p.exited
}

// tail keeps the end of the text that is written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const tailBytes = 4096

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return len(b), nil
}

// String is the last whole lines, "" where there are none.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.last
	if len(text) == tailBytes {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return strings.TrimSpace(string(text))
}
