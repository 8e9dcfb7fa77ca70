package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
)

// Two agents written against OpenAI's and Anthropic's own SDKs are trained as they are, by each of three ways to ask a model.
func TestAgentsOfPublicSDKsAreTrained(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "builds and runs programs")
	tree, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // sandboxes have users of their own where the test is root
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := func(in, name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	module := filepath.Join(tree, "examples", "sdk-agents")
	if out, err := run(module, "go", "mod", "download"); err != nil {
		require.Empty(t, os.Getenv("CI"), out)
		t.Skipf("the SDKs are not on this machine and cannot be fetched: %s", out)
	}
	// The configuration names the program as it lies in the tree.
	program := filepath.Join(dir, "examples", "sdk-agents", "sdk-agents")
	for _, build := range [][]string{{module, program, "."}, {tree, filepath.Join(dir, "weir"), "./cmd/weir"}} {
		out, err := run(build[0], "go", "build", "-o", build[1], build[2])
		require.NoError(t, err, out)
	}
	for _, name := range []string{"sdk-agents/run.yaml", "python-agent/questions.jsonl"} {
		data, err := os.ReadFile(filepath.FromSlash(name))
		require.NoError(t, err)
		path := filepath.Join(dir, "examples", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	out, err := run(dir, filepath.Join(dir, "weir"), "up", "--config", "examples/sdk-agents/run.yaml", "--run.dir", filepath.Join(dir, "runs"), "--trainer.steps", "2",
		"--trainer.batch_groups", "3", "--trainer.minibatches", "1", "--eval.questions", "9", "--eval.test_questions", "9",
		"--telemetry.listen", "127.0.0.1:0", "--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0")
	require.NoError(t, err, out)
	require.Contains(t, out, "step 2/2")
	for _, task := range []string{"by-chat", "by-responses", "by-messages"} {
		require.Regexp(t, `(?m)^ *`+task+`/boxes +\d`, out)
	}
	out, err = run(dir, filepath.Join(dir, "weir"), "audit", "--run.dir", filepath.Join(dir, "runs"), "--run.name", "sdk-agents")
	require.NoError(t, err, out)
}
