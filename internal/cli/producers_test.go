package cli

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// severalProducers writes the configuration of a short run.
func severalProducers(t *testing.T, dir string, steps, eta int) string {
	t.Helper()
	config := filepath.Join(dir, fmt.Sprintf("eta-%d.yaml", eta))
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
broker: {listen: "127.0.0.1:0"}
run: {dir: %s}
trainer:
  {steps: %d, batch_groups: 4, group_size: 4, minibatches: 1, eta: %d, deterministic: true, selection: {drop_zero_variance: false},
  cold_start: {steps: 20}, checkpoint: {keep: 100}, archive: {messages: {bytes: 1073741824}}}
tasks: {countries: {}}
producer: {concurrency: 4}
streams: {lease: 2s}
eval: {every: 0, test_questions: 1}
view: {listen: ""}
`, dir, steps, eta), 0o600))
	return config
}

// producersOf returns how many trajectories of a run's kept messages are each producer's.
func producersOf(t *testing.T, checkpoints string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for m, err := range messages.All(archive.Config{}.MessagesFolder(checkpoints)) {
		require.NoError(t, err)
		if m.ID == "" {
			continue
		}
		trajectory := new(schemas.Trajectory)
		require.NoError(t, schemas.Unmarshal(m.Data, trajectory))
		out[trajectory.Producer]++
	}
	return out
}

// Invariant: a run whose process has several producers comes to the weights of a run with a single one, and each takes its share of the tickets.
func TestInvariantSeveralProducersComeToTheWeightsOfOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := severalProducers(t, dir, 4, 0)
	folder := func(name string) string { return filepath.Join(dir, name, runfolder.CheckpointsFolder) }
	for _, n := range []int{1, 3} {
		name := fmt.Sprintf("of-%d", n)
		weir(t, "up", "--config", config, "--run.name", name, "--run.producers", fmt.Sprint(n))
		shares := producersOf(t, folder(name))
		require.Len(t, shares, n, "%v", shares)
		total := 0
		for _, share := range shares {
			total += share
		}
		require.GreaterOrEqual(t, total, 4*4*4, "%v", shares)
		require.Contains(t, weir(t, "audit", name, "--run.dir", dir), "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
	}
	require.Equal(t, read(t, folder("of-1"), "step_000004", "model.safetensors"), read(t, folder("of-3"), "step_000004", "model.safetensors"))
}

// A run whose process has several producers is killed again and again: it trains on no trajectory twice or above the bound, and skips no prompt.
func TestARunWithSeveralProducersIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := severalProducers(t, dir, 12, 2)
	checkpoints := filepath.Join(dir, "killed", runfolder.CheckpointsFolder)
	draw, kills := rand.New(rand.NewPCG(3, 3)), 0
	for {
		var complaint bytes.Buffer
		ctx, kill := context.WithCancel(t.Context())
		c := exec.CommandContext(ctx, binary(t), "up", "--config", config, "--run.name", "killed", "--run.producers", "3") // SIGKILL
		c.Stderr = &complaint
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		if !killAtLine(ended, kill, checkpoints, 1+draw.IntN(3), draw.IntN(12)) {
			kill()
			require.NoError(t, <-ended, complaint.String())
			break
		}
		kills++
		require.Less(t, kills, 100)
	}
	require.GreaterOrEqual(t, kills, 3)
	require.Contains(t, weir(t, "audit", "killed", "--run.dir", dir), "steps 12, ")
	require.Contains(t, weir(t, "audit", "killed", "--run.dir", dir), "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
}
