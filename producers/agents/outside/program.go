package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/child"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// program is a started program of the agent.
type program struct {
	argv  []string
	how   sandbox.Program
	env   []string
	stdin []byte
	most  int // bytes of standard output
}

// mostStderr bounds how much of a program's standard error is kept.
const mostStderr = 4 << 10

// runPlain starts the program as a child of this process, waits for it, and returns its standard output. It ends with ctx, and all that it
// started with it. An [exitError] says that it failed; any other error is the machinery's.
func (p program) runPlain(ctx context.Context) (string, error) {
	stdout, stderr := child.NewHead(p.most), child.NewTail(mostStderr)
	cmd := exec.Command(p.argv[0], p.argv[1:]...) //nolint:noctx // it is killed with all that it started when ctx is done
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.how.Dir, append(safeVariables(), p.env...), bytes.NewReader(p.stdin), stdout, stderr
	cmd.WaitDelay = 5 * time.Second // something that it left behind may hold its output open
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return "", fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		process.Kill()
	}
	err = process.Err()
	switch _, failed := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case failed:
		return "", &exitError{process.ExitCode(), string(stderr.Bytes())}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return "", fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	}
	return string(stdout.Bytes()), nil
}

// gatewayPort is where a program with a network of its own reaches the gateway.
const gatewayPort = 8640

// runConfined is runPlain in a sandbox of the program's own, on a place. Where that has a network of its own, the gateway
// listens in it, and nobody else.
func (p program) runConfined(ctx context.Context, spaces *workspace.Manager, place *sandbox.Place, server *gateway.Server) (string, error) {
	pool, err := spaces.Ready(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", producers.ErrUnavailable, err)
	}
	spec, err := p.how.Spec(p.argv, p.env)
	if err != nil {
		return "", fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	}
	if pool.Tier() == sandbox.TierFull {
		spec.Port = gatewayPort
	}
	process, err := place.Start(ctx, spec)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	}
	defer process.Close()
	if process.Listener != nil {
		defer server.Serve(process.Listener)()
	}
	stdout, stderr := child.NewHead(p.most), child.NewTail(mostStderr)
	var streams sync.WaitGroup
	streams.Go(func() {
		_, _ = process.Stdin.Write(p.stdin) // a program need not read it
		_ = process.Stdin.Close()
	})
	streams.Go(func() { _, _ = io.Copy(stdout, process.Stdout) }) // until all of the sandbox has ended
	streams.Go(func() { _, _ = io.Copy(stderr, process.Stderr) })
	exit, err := process.Wait(ctx)
	if ctx.Err() != nil {
		process.Kill()
		<-process.Ended()
	}
	_ = process.Stdin.Close() // nobody is left to read it
	streams.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	case exit.Why == sandbox.WhyKeeper:
		return "", fmt.Errorf("%w: the keeper of the agent's sandbox was killed", producers.ErrUnavailable)
	case exit.Why != "":
		return "", &exitError{exit.Code, "the sandbox was ended by its limit of " + exit.Why}
	case exit.Code != 0:
		return "", &exitError{exit.Code, string(stderr.Bytes())}
	}
	return string(stdout.Bytes()), nil
}

// safeVariables returns the variables of this process that a program needs to start; no secret is among them.
func safeVariables() []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}
