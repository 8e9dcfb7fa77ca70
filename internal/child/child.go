// Package child starts a program in a process group of its own, which the interrupt of a terminal does not reach.
//
//	errors := child.NewTail(4096)
//	cmd := exec.Command("server", "--port", "8000")
//	cmd.Stderr = errors
//	p, err := child.Start(cmd, syscall.SIGKILL)
//	...
//	<-p.Done() // it has ended by itself, and on Linux the rest of its group was killed
//
// What ends with what depends on the system. On Linux a program gets a signal when this process dies, and when a program ends, what is left
// of its group is killed. On other Unix systems [Process.Signal] and [Process.Kill] reach the group, a program that ends by itself leaves
// the rest of its group running, and a program outlives this process if this process is killed. Elsewhere a signal ends the program alone.
// Nowhere is a process reached that has left the group, as by setsid.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Process is a program that was started, and its process group. Its methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended, set before done is closed

	mu    sync.Mutex
	ended bool // its id may be another's
}

// Start starts a program that has not been started yet, in a process group of its own, and waits for its end: Wait of cmd is not for the
// caller. The program gets the signal death when this process dies, on Linux; 0 sends none, for a program that sees the end by itself, such
// as by a socket that closes. When the program ends, what is left of its group is killed, on Linux.
func Start(cmd *exec.Cmd, death syscall.Signal) (*Process, error) {
	cmd.SysProcAttr = attributes(death)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel sends the signal when the thread ends that started the program: the thread stays for as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if awaitExit(cmd.Process.Pid) {
			p.setEnded()
		}
		p.err = cmd.Wait()
		p.setEnded()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the program's process id, and its group's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended, and its output is copied or cmd.WaitDelay is over.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the program ended, as [exec.Cmd.Wait] returns it: nil after an exit with status 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// ExitCode is the program's status, -1 where a signal ended it. It waits for the end.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// KilledBy is the signal that ended the program, 0 where none did. It waits for the end.
func (p *Process) KilledBy() syscall.Signal {
	<-p.done
	return signalOf(p.cmd.ProcessState)
}

// Signal sends a signal to the program and all of its group, unless the program has ended: its id may be another's then. On a system
// without groups it ends the program, whatever the signal.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		signalGroup(p.cmd, s)
	}
}

func (p *Process) setEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// Kill ends the program and all of its group, and waits for the end. What left the group before is not reached.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}
