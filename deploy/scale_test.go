package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
)

// weir scale on the host acts on the stack through compose, by what the stack itself tells of what waits for whom: the command of docs/scaling.md.
func TestComposeStackIsScaledByWeirScale(t *testing.T) {
	t.Parallel()
	engineOrSkip(t)
	fulltest.Need(t, "minutes of a stack of containers; internal/cli has scale by commands of a shell")
	buildBinary(t)
	s := newStack(t)
	// Calls wait for two slots, and the trainer for each of its batches.
	s.env = append(s.env, "WEIR_TEST_SLOTS=2", "WEIR_TRAINER__ETA=0", "WEIR_TEST_STEPS=1000000")
	s.compose(t.Context(), "build", "broker")
	ctx := t.Context() // what is awaited below has no limit but the package's
	s.compose(ctx, "up", "--detach", "--no-build", "broker", "trainer", "inference", "producer")
	s.trains(ctx, "the stack")

	scale, said := s.scale(ctx, "--producers", "1:2", "--inference", "1:2")
	s.until(ctx, "a second inference consumer samples", func() bool {
		return s.running(ctx, "inference") == 2 && s.shows(ctx, "inference", 2, "weir_inference_tokens_total")
	})
	require.NoError(t, scale.Process.Signal(syscall.SIGTERM))
	require.Error(t, scale.Wait(), "interrupted")
	require.Contains(t, said.String(), "calls wait for a slot beside", "the engines' queue is known")

	scale, said = s.scale(ctx, "--producers", "1:1", "--inference", "1:1")
	s.until(ctx, "one of each is left", func() bool { return s.running(ctx, "inference") == 1 && s.running(ctx, "producer") == 1 })
	s.trains(ctx, "the stack made smaller")

	s.env = append(s.env, fmt.Sprintf("WEIR_TEST_STEPS=%d", s.version(ctx)+10)) // of a name that stands twice the last counts
	s.compose(ctx, "up", "--detach", "--no-build", "--no-deps", "trainer")
	require.Equal(t, "0", strings.TrimSpace(s.docker(ctx, "wait", s.container(ctx, "trainer", 1))))
	require.NoError(t, scale.Wait(), said)
	require.Contains(t, said.String(), "the run is finished")
	require.Zero(t, s.running(ctx, "trainer"), "a trainer that has finished is not started again")
	var audit struct{ OK bool }
	text := s.compose(ctx, "run", "--rm", "--no-deps", "-T", "trainer", "audit", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &audit), text)
	require.True(t, audit.OK, text)
}

// scale starts weir scale beside the stack; what it says is whole when it has ended.
func (s *stack) scale(ctx context.Context, bounds ...string) (*exec.Cmd, *bytes.Buffer) {
	s.t.Helper()
	name, first, err := composeCommand(ctx)
	require.NoError(s.t, err)
	compose := strings.Join(append(append([]string{name}, first...), s.over()...), " ")
	cmd := exec.CommandContext(ctx, filepath.Join("deploy", "bin", "weir"), append([]string{
		"scale", "--every", "1s", "--run.dir", s.t.TempDir(),
		"--status", compose + ` exec -T broker /weir status -o json --engines http://inference:9090/metrics`,
		"--exec", compose + ` up -d --no-build --no-deps --no-recreate --scale producer=$PRODUCERS --scale inference=$INFERENCE producer inference`,
	}, bounds...)...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "..", s.env, &said, &said, time.Minute
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { // it has ended where the test passed
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, &said
}

// running counts a service's containers that run.
func (s *stack) running(ctx context.Context, service string) int {
	s.t.Helper()
	return len(strings.Fields(s.docker(ctx, "ps", "-q", "--filter", "label=com.docker.compose.project="+s.project, "--filter", "label=com.docker.compose.service="+service)))
}
