package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
)

// Bounds of a command that sets none.
const (
	DefaultTimeout = time.Minute
	DefaultOutput  = 64 << 10
)

// Run runs a command in the workspace; processes that it leaves running go on. A time limit ends it and all processes that it
// started.
func (w *Workspace) Run(ctx context.Context, c producers.Command) (producers.Result, error) {
	if len(c.Argv) == 0 {
		return producers.Result{}, errors.New("run a command: it names no program")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if err := w.WriteFile(ctx, name, c.Files[name]); err != nil {
			return producers.Result{}, fmt.Errorf("run %s: %w", c.Argv[0], err)
		}
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Output <= 0 {
		c.Output = DefaultOutput
	}
	r, err := w.runCommand(ctx, c)
	if err != nil {
		return r, fmt.Errorf("run %s: %w", c.Argv[0], err)
	}
	return r, nil
}

func (w *Workspace) runCommand(ctx context.Context, c producers.Command) (producers.Result, error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return producers.Result{}, err
	}
	defer in.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		_ = stdin.Close()
		return producers.Result{}, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_ = stdin.Close()
		_ = outR.Close()
		_ = outW.Close()
		return producers.Result{}, err
	}
	stdout, stderr := NewOutput(outR, c.Output), NewOutput(errR, c.Output)
	defer stdout.Close()
	defer stderr.Close()
	key, events, done := w.newKey()
	defer done()
	began := time.Now()
	err = w.sendRunner(sendWithin, map[string]any{"op": "exec", "key": key, "argv": c.Argv, "env": c.Env}, stdin, outW, errW)
	for _, f := range []*os.File{stdin, outW, errW} {
		_ = f.Close()
	}
	if err != nil {
		return producers.Result{}, err
	}
	go func() {
		_, _ = in.Write(c.Stdin) // a program need not read it all
		_ = in.Close()
	}()
	timer := time.NewTimer(c.Timeout)
	defer timer.Stop()
	r := producers.Result{}
	code, timedOut, err := w.waitForEnd(ctx, key, events, timer.C)
	if err != nil {
		return r, err
	}
	r.Exit, r.TimedOut, r.Took = max(code, -1), timedOut, time.Since(began)
	r.Stdout, r.Stderr = []byte(stdout.Take()), []byte(stderr.Take())
	return r, nil
}

// waitForEnd waits for a program's end, and ends it when its time is over. If its end is not reported even then, the sandbox is
// ended.
func (w *Workspace) waitForEnd(ctx context.Context, key string, events chan event, limit <-chan time.Time) (code int, timedOut bool, err error) {
	for {
		select {
		case e := <-events:
			switch {
			case e.Error != "":
				return 0, false, fmt.Errorf("%w: the runner: %w", producers.ErrUnavailable, &insideError{e.Error})
			case e.Event == "exit":
				w.inhabited.Store(true)
				return e.Code, timedOut, nil
			}
			w.inhabited.Store(true)
		case <-limit:
			if timedOut {
				w.process.Close()
				limit = nil
				continue
			}
			timedOut, limit = true, time.After(w.patience)
			w.sendSignal(key, syscall.SIGKILL, true)
		case <-w.process.Ended():
			return 0, timedOut, ErrGone
		case <-ctx.Done():
			w.sendSignal(key, syscall.SIGKILL, true)
			return 0, timedOut, context.Cause(ctx)
		}
	}
}

// scored is an episode's workspace for rewards. Where the policy's programs keep a command from running, that is the command's
// result, and no failure of the machinery, which would take the episode out of training.
type scored struct{ *Workspace }

// Run is that of the workspace. A command that the inside of the sandbox does not let start, or that ends with the sandbox, has the exit status -1, and on its
// standard error why.
func (s scored) Run(ctx context.Context, c producers.Command) (producers.Result, error) {
	r, err := s.Workspace.Run(ctx, c)
	if err == nil || context.Cause(ctx) != nil || !s.isInsideFault(err) {
		return r, err
	}
	return producers.Result{Exit: -1, Stderr: []byte(err.Error())}, nil
}

// isInsideFault reports whether an error is the doing of the workspace's programs.
func (w *Workspace) isInsideFault(err error) bool {
	if _, inside := errors.AsType[*insideError](err); !inside && !errors.Is(err, ErrGone) || !w.Inhabited() || w.closed.Load() {
		return false
	}
	select {
	case <-w.process.Ended():
		exit, _ := w.process.Wait(context.Background()) // it has ended
		return exit.Why != sandbox.WhyKeeper
	default:
		return true
	}
}
