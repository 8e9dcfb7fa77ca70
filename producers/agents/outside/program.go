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
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

// program is one start of the agent's program.
type program struct {
	argv  []string
	how   sandbox.Program
	env   []string
	stdin []byte
	most  int // bytes of standard output
}

// mostStderr bounds what is kept of a program's standard error.
const mostStderr = 4 << 10

// plain starts the program as a child of this process, waits for it, and returns what it wrote. It ends with ctx, and all that it started with it. An [exitError] says
// that it failed; any other error is the machinery's.
func (p program) plain(ctx context.Context) (string, error) {
	stdout, stderr := &head{most: p.most}, &tail{most: mostStderr}
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.how.Dir, append(ownFew(), p.env...), bytes.NewReader(p.stdin), stdout, stderr
	cmd.WaitDelay = 5 * time.Second // something that it left behind may hold its output open
	asGroup(cmd)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.As(err, &exit):
		return "", &exitError{exit.ExitCode(), stderr.String()}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return "", fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	}
	return stdout.String(), nil
}

// gatewayPort is where a program with a network of its own reaches the gateway.
const gatewayPort = 8640

// confined is plain in a sandbox of the program's own. Where that has a network of its own, the gateway listens in it, and nobody else.
func (p program) confined(ctx context.Context, spaces *workspace.Manager, server *gateway.Server) (string, error) {
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
	process, err := pool.Start(ctx, spec)
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
	stdout, stderr := &head{most: p.most}, &tail{most: mostStderr}
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
		return "", &exitError{exit.Code, stderr.String()}
	}
	return stdout.String(), nil
}

// head keeps the beginning of what is written to it.
type head struct {
	kept []byte
	most int
}

// Write takes everything and keeps what has room.
func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), h.most-len(h.kept))]...)
	return len(p), nil
}

func (h *head) String() string { return string(h.kept) }

// tail keeps the end of what is written to it.
type tail struct {
	kept []byte
	most int
}

// Write keeps the last bytes.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-t.most):]...)
	t.kept = t.kept[max(0, len(t.kept)-t.most):]
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }

// ownFew are the variables of this process that a program needs to start; no secret is among them.
func ownFew() []string {
	var out []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}
