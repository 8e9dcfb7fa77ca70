// Package cli is the command line: a file for each command, and the parts that the commands share.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lifecycle"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/internal/parts"
	"github.com/weir-rl/weir/producers"
)

// The exit codes.
const (
	exitRuntime = 1
	exitUsage   = 2
	exitConfig  = 3
)

// errSaid stands for an error of which the command has told already.
var errSaid = errors.New("")

// receivedSignal is the signal that asked the command to end before it was done, nil if none did.
func receivedSignal(ctx context.Context) *lifecycle.SignalError {
	signal, _ := errors.AsType[*lifecycle.SignalError](context.Cause(ctx))
	return signal
}

// interruptedError is the error of a command that a signal ended before it was done, nil if none did: its exit status is 128 and the
// signal's number, so that the next command of a shell script does not run.
func interruptedError(ctx context.Context, err error) error {
	signal := receivedSignal(ctx)
	if signal == nil {
		return nil
	}
	return &statusError{signal.ExitCode(), cmp.Or(err, error(signal))}
}

// statusError is an error with an exit status that its kind does not tell: a signal's, or that of a command which printed
// its findings.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// Main runs the command line of this process, with the parts that a configuration can name, and returns its exit status.
func Main(doors parts.Registry) int {
	drain, hard, stop := lifecycle.Signals(context.Background())
	defer stop()
	defer context.AfterFunc(hard, func() {
		if cause := context.Cause(hard); errors.Is(cause, lifecycle.ErrStopped) {
			fmt.Fprintln(os.Stderr, "weir:", cause)
			os.Exit(exitStatus(drain, cause))
		}
	})()
	memory := machine.Limit()
	stayWithin(memory)
	a := &app{
		doors: doors, memory: memory, ownsProcess: true, args: os.Args[1:],
		console: console{out: os.Stdout, err: os.Stderr, environ: os.Environ()},
	}
	err := a.rootCommand().ExecuteContext(drain)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errSaid) {
		fmt.Fprintln(os.Stderr, "weir:", describeError(err))
		if panicked, ok := errors.AsType[*producers.PanicError](err); ok {
			fmt.Fprintf(os.Stderr, "%s", panicked.Stack)
		}
	}
	return exitStatus(drain, err)
}

// describeError is an error as it is printed behind the program's name. Of wrong usage each line is a fault by itself.
func describeError(err error) string {
	if errors.As(err, new(*fault.UsageError)) {
		return strings.ReplaceAll(err.Error(), "\n", "\nweir: ")
	}
	return err.Error()
}

// exitStatus is that of a command which ended with an error.
func exitStatus(drain context.Context, err error) int {
	signal := receivedSignal(drain)
	if own, ok := errors.AsType[*statusError](err); ok {
		return own.status
	}
	switch {
	case errors.As(err, new(*fault.UsageError)):
		return exitUsage
	case errors.As(err, new(*config.InvalidError)):
		return exitConfig
	case strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	case signal != nil && (errors.Is(err, signal) || errors.Is(err, context.Canceled) || errors.Is(err, lifecycle.ErrStopped)):
		return signal.ExitCode()
	}
	return exitRuntime
}

// stayWithin has the garbage collector work the harder the nearer the process is to the memory that it may have, unless GOMEMLIMIT
// says otherwise.
func stayWithin(limit machine.Memory) {
	if limit.Bytes > 0 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(limit.Bytes / 100 * 95)
	}
}
