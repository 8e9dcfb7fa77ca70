package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a role as a child process.
type process struct {
	name    string
	command string
	args    []string
	env     []string
	logPath string
	// exited is called, on a goroutine of its own, when a child ended that nobody asked to.
	exited func(*process, error)

	mu    sync.Mutex
	child *exec.Cmd
	armed string        // the stage after which the child ends itself
	gone  chan struct{} // closed when child has been waited for
	err   error         // how it ended
	asked bool          // whether it was asked to end
}

// startChild starts the child, which ends itself after a stage, "publish:3", unless that is "".
func (p *process) startChild(armed string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	c := exec.Command(p.command, p.args...)
	c.Env = append([]string(nil), p.env...)
	if armed != "" {
		c.Env = append(c.Env, KillAfterEnv+"="+armed)
	}
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = dieWithParent()
	if err := c.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.name, err), out.Close())
	}
	gone := make(chan struct{})
	p.child, p.gone, p.asked, p.err, p.armed = c, gone, false, nil, armed
	go func() {
		err := c.Wait()
		_ = out.Close() // the child has written its last
		p.mu.Lock()
		p.err = err
		asked := p.asked
		close(gone)
		p.mu.Unlock()
		if !asked {
			p.exited(p, err)
		}
	}()
	return nil
}

// killChild ends the child with SIGKILL and waits for its end. It is false when the child had ended by itself.
func (p *process) killChild() bool {
	if !p.markAsked() {
		return false
	}
	p.sendSignal(syscall.SIGKILL)
	<-p.endedChannel()
	return true
}

// stopChild asks the child to end and gives it some time. The error says how it ended, if not well.
func (p *process) stopChild(ctx context.Context, grace time.Duration) error {
	if !p.markAsked() {
		return nil
	}
	p.sendSignal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.endedChannel():
		p.mu.Lock()
		defer p.mu.Unlock()
		// A process that has only just started does not handle it yet; weir up tells by its exit status that it was not done.
		if p.err != nil && !endedBy(p.err, syscall.SIGTERM) && exitCode(p.err) != 128+int(syscall.SIGTERM) {
			return fmt.Errorf("%s after SIGTERM: %w: %s", p.name, p.err, p.lastWords())
		}
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	p.sendSignal(syscall.SIGKILL)
	<-p.endedChannel()
	return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, grace)
}

// markAsked notes that the child is about to be ended; false when it has ended.
func (p *process) markAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil || p.hasEnded() {
		return false
	}
	p.asked = true
	return true
}

func (p *process) hasEnded() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *process) sendSignal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil && !p.hasEnded() {
		_ = p.child.Process.Signal(s) // it may have ended this moment
	}
}

// childPid is the child's, 0 where none runs.
func (p *process) childPid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil || p.hasEnded() {
		return 0
	}
	return p.child.Process.Pid
}

// endedChannel is closed when the child of now has ended.
func (p *process) endedChannel() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// armedStage is the stage after which the present child ends itself.
func (p *process) armedStage() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armed
}

// lastWords are the last lines of the log.
func (p *process) lastWords() string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// killedItself says whether a child ended by SIGKILL.
func killedItself(err error) bool { return endedBy(err, syscall.SIGKILL) }

// exitCode is the exit status of a process, -1 where it has none.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

func endedBy(err error, signal syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}
