// Command weir trains LLM agents by reinforcement learning over a message stream: every role of a run in one
// binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-rl/weir/internal/lifecycle"
)

// The exit codes.
const (
	exitRuntime = 1
	exitUsage   = 2
	exitConfig  = 3
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() { os.Exit(run()) }

func run() int {
	drain, hard, stop := lifecycle.Signals(context.Background())
	defer stop()
	defer context.AfterFunc(hard, func() {
		if cause := context.Cause(hard); errors.Is(cause, lifecycle.ErrStopped) {
			fmt.Fprintln(os.Stderr, "weir:", cause)
			os.Exit(exitRuntime)
		}
	})()
	a := &app{out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	err := a.command().ExecuteContext(drain)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "weir:", err)
	if coded := (*exitError)(nil); errors.As(err, &coded) {
		return coded.code
	}
	if strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	return exitRuntime
}
