package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// groupsBySession reports whether the kernel shares processor time between sessions, whatever the priorities within them.
func groupsBySession() bool {
	text, err := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	return err == nil && bytes.Equal(bytes.TrimSpace(text), []byte("1"))
}

// runInOwnSession runs this command line in a process that begins a session, where that is needed for its priority to count against other
// sessions. ran is whether it did: then err is how it ended. Signals are passed on, and the process ends when this process dies.
func (a *app) runInOwnSession(ctx context.Context) (ran bool, err error) {
	if !groupsBySession() || beganSession() {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, nil // the command runs in this process
	}
	cmd := exec.Command(self, a.args...) //nolint:noctx // it ends in order, by the signal that is passed on
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel sends the signal when the thread ends that started the process: the thread stays for as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if <-started != nil {
		return false, nil
	}
	defer context.AfterFunc(ctx, func() {
		signal := syscall.SIGTERM
		if received := receivedSignal(ctx); received != nil {
			signal = received.Signal.(syscall.Signal) //nolint:forcetypeassert // the signals of Linux are
		}
		_ = cmd.Process.Signal(signal) // it may have ended
	})()
	return true, endOfProcess(<-ended)
}

// endOfProcess is the error of a process that has told its own: with its exit status, or 128 and the number of the signal that ended it.
func endOfProcess(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	status := exit.ExitCode()
	if how, ok := exit.Sys().(syscall.WaitStatus); ok && how.Signaled() {
		status = 128 + int(how.Signal())
	}
	return &statusError{status, errSaid}
}
