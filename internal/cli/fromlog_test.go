package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// loggedRun trains six small steps that keep every message, as run demo. It returns the folder of runs, and a configuration that trains on the
// messages alone.
func loggedRun(t *testing.T) (dir, config string) {
	t.Helper()
	dir = t.TempDir()
	small := filepath.Join(dir, "small.yaml")
	require.NoError(t, os.WriteFile(small, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`}
trainer:
  {steps: 6, batch_groups: 3, group_size: 4, minibatches: 1, cold_start: {steps: 30}, selection: {drop_zero_variance: false},
  archive: {messages: {bytes: 1073741824}}}
tasks: {library: {reward: {length: 0.5, format: 0.25}}}
eval: {every: 0, test_questions: 1}
view: {listen: ""}
`), 0o600))
	weir(t, "up", "--config", small)
	config = filepath.Join(dir, "log.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`, name: whole}
model: {folder: `+filepath.Join(dir, "demo", runfolder.CheckpointsFolder, "step_000000")+`}
trainer:
  {steps: 50, batch_groups: 4, group_size: 4, minibatches: 1, eta: 0, deterministic: true, selection: {drop_zero_variance: false},
  optimizer: {learning_rate: 0.001}}
tasks: {archive: {run: demo, passes: 2}}
view: {listen: ""}
`), 0o600))
	return dir, config
}

// trainedFromLog counts how often each recorded trajectory was trained on, by pass. It returns the counts and the newest step.
func trainedFromLog(t *testing.T, checkpoints string, groups uint64) (times []map[string]int, step int64) {
	t.Helper()
	records, err := checkpoint.ReadRecords(checkpoints)
	require.NoError(t, err)
	times = []map[string]int{{}, {}}
	for i := range records[1:] {
		r := &records[i+1]
		all, err := checkpoint.ReadBatch(checkpoints, r)
		require.NoError(t, err)
		for _, d := range all {
			from := d.Trajectory.Recorded
			require.NotNil(t, from)
			require.Equal(t, "demo", from.Run)
			_, _, _, ok := batch.ParseTicketID(from.ID)
			require.True(t, ok)
			times[d.Trajectory.Cursor/groups][from.ID]++
		}
		step = r.Step
	}
	return times, step
}

// Killed again and again, a run from the log alone trains on each recorded trajectory once a pass, comes to the weights of a run that was left
// alone, and its audit finds nothing.
func TestARunFromTheLogIsKilledAndTrainsOnEachTrajectoryOnceAPass(t *testing.T) {
	t.Parallel()
	dir, config := loggedRun(t)
	weir(t, "up", "--config", config)
	whole := filepath.Join(dir, "whole", runfolder.CheckpointsFolder)
	const groups, size = 18, 4
	want, last := trainedFromLog(t, whole, groups)
	require.EqualValues(t, 9, last)
	for _, pass := range want {
		require.Len(t, pass, groups*size)
		for id, n := range pass {
			require.Equal(t, 1, n, id)
		}
	}

	killed := filepath.Join(dir, "killed", runfolder.CheckpointsFolder)
	draw, kills := rand.New(rand.NewPCG(9, 9)), 0
	for {
		var complaint bytes.Buffer
		ctx, kill := context.WithCancel(t.Context())
		c := exec.CommandContext(ctx, binary(t), "up", "--config", config, "--run.name", "killed") // SIGKILL
		c.Stderr = &complaint
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		if !killAtLine(ended, kill, killed, draw.IntN(3), draw.IntN(12)) {
			kill()
			require.NoError(t, <-ended, complaint.String())
			require.Contains(t, complaint.String(), "is used up after step 9")
			break
		}
		kills++
		require.Less(t, kills, 100)
	}
	require.GreaterOrEqual(t, kills, 3)
	have, step := trainedFromLog(t, killed, groups)
	require.Equal(t, want, have)
	require.Equal(t, last, step)
	for _, run := range []string{"whole", "killed"} {
		require.Contains(t, weir(t, "audit", run, "--run.dir", dir), "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
	}
	name := fmt.Sprintf("step_%06d", last)
	require.Equal(t, read(t, whole, name, "model.safetensors"), read(t, killed, name, "model.safetensors"))
	require.NotEqual(t, read(t, whole, "step_000000", "model.safetensors"), read(t, whole, name, "model.safetensors"))
}

// killAtLine kills a process some ticks after it has written so many further lines of its record. It returns false where the process ends
// before.
func killAtLine(ended chan error, kill func(), checkpoints string, lines, after int) bool {
	count := func() int {
		data, _ := os.ReadFile(filepath.Join(checkpoints, checkpoint.RecordFile)) // none at first
		return strings.Count(string(data), "\n")
	}
	before := count()
	ticks := time.NewTicker(3 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case err := <-ended:
			ended <- err
			return false
		case <-ticks.C:
		}
		if count() < before+lines {
			continue
		}
		if after--; after < 0 {
			kill()
			err := <-ended
			ended <- err
			return err != nil // else it came to its end just before
		}
	}
}

// trainOnBucket trains from a bucket, beside the run that filled it and without.
func trainOnBucket(t *testing.T, dir, checkpoints, endpoint string) {
	t.Helper()
	for name, from := range map[string]string{"beside": "", "apart": ", dir: \"s3://kept/runs\""} {
		config := filepath.Join(dir, name+".yaml")
		require.NoError(t, os.WriteFile(config, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`, name: `+name+`}
model: {folder: `+filepath.Join(checkpoints, "step_000000")+`}
trainer:
  {steps: 9, batch_groups: 2, group_size: 4, minibatches: 1, selection: {drop_zero_variance: false},
  archive: {messages: {s3: {endpoint: "`+endpoint+`"}}}}
tasks: {archive: {run: demo`+from+`}}
view: {listen: ""}
`), 0o600))
		weir(t, "up", "--config", config)
		records, err := checkpoint.ReadRecords(filepath.Join(dir, name, runfolder.CheckpointsFolder))
		require.NoError(t, err)
		require.Len(t, records, 3, "both steps of run demo")
		require.Contains(t, weir(t, "audit", name, "--run.dir", dir), "audit: twice=0")
	}
}

// A policy learns from the log alone: greedily and sampled it scores far above the cold start that it begins with.
func TestAPolicyLearnsFromTheLogAlone(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "it trains a task until it is learnt, and again from the log")
	dir := t.TempDir()
	live, log := filepath.Join(dir, "live.yaml"), filepath.Join(dir, "log.yaml")
	settings := "batch_groups: 16, minibatches: 2, eta: 0, deterministic: true, optimizer: {learning_rate: 0.0003}"
	require.NoError(t, os.WriteFile(live, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`, name: live}
trainer: {steps: 12, `+settings+`, archive: {messages: {bytes: 1073741824}}}
tasks: {countries: {}}
eval: {every: 0, test_questions: 1}
view: {listen: ""}
`), 0o600))
	start := filepath.Join(dir, "live", runfolder.CheckpointsFolder, "step_000000")
	require.NoError(t, os.WriteFile(log, []byte(`
broker: {listen: "127.0.0.1:0"}
run: {dir: `+dir+`, name: log}
model: {folder: `+start+`}
trainer: {steps: 50, `+settings+`}
tasks: {archive: {run: live}}
view: {listen: ""}
`), 0o600))
	weir(t, "up", "--config", live)
	weir(t, "up", "--config", log)
	steps, err := checkpoint.Steps(filepath.Join(dir, "log", runfolder.CheckpointsFolder))
	require.NoError(t, err)
	require.GreaterOrEqual(t, steps[0], int64(10))
	learnt := checkpoint.StepDir(filepath.Join(dir, "log", runfolder.CheckpointsFolder), steps[0])
	// Synchronous, under the same settings, it comes to the weights of the run that it has the log of.
	require.Equal(t, read(t, dir, "live", runfolder.CheckpointsFolder, "step_000012", "model.safetensors"), read(t, learnt, "model.safetensors"))
	for _, temperature := range []string{"0", "1"} {
		score := func(folder string) float64 {
			out := weir(t, "eval", "--config", live, "--checkpoint", folder, "--questions", "160", "--temperature", temperature, "-o", "json")
			var r struct {
				ExactMatch float64 `json:"exact_match"`
			}
			require.NoError(t, json.Unmarshal([]byte(out), &r), out)
			return r.ExactMatch
		}
		before, after := score(start), score(learnt)
		t.Logf("temperature %s: %.3f before, %.3f after", temperature, before, after)
		require.Greater(t, after, before+0.3)
	}
}
