package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// A step of a run whose rollouts are asynchronous is learnt again from the run's folder, across a change of settings, and from a bundle in
// another folder.
func TestAStepIsReplayedFromTheRunsFolderAndFromABundle(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a run of four steps: the second pass of CI has it")
	dir := t.TempDir()
	train := func(steps string, more ...string) {
		t.Helper()
		weir(t, append([]string{
			"up", "--run.dir", dir, "--run.name", "mine", "--broker.listen", "127.0.0.1:0", "--trainer.steps", steps, "--trainer.batch_groups", "4",
			"--trainer.group_size", "4", "--trainer.minibatches", "2", "--trainer.eta", "1", "--trainer.max_dropped_groups", "8",
			"--trainer.cold_start.steps", "60", "--trainer.checkpoint.every", "2", "--trainer.checkpoint.keep", "1", "--model.hidden", "16",
			"--model.intermediate", "32", "--model.layers", "1", "--eval.every", "0", "--eval.test_questions", "1", "--view.listen", "",
		}, more...)...)
	}
	train("3")
	train("4", "--trainer.optimizer.learning_rate", "0.002", "--run.allow_change", "trainer.optimizer.learning_rate")
	mine := func(args ...string) (string, error) {
		return runWeir(t, "", append([]string{"replay", "mine", "--run.dir", dir}, args...)...)
	}
	out, err := mine("--step", "1", "--until", "4", "-o", "json")
	require.NoError(t, err)
	steps := json.NewDecoder(strings.NewReader(out))
	var rates []float64
	for step := int64(1); step <= 4; step++ {
		var s replayedStep
		require.NoError(t, steps.Decode(&s))
		require.Equal(t, step, s.Step)
		require.True(t, s.Equal, out)
		rates = append(rates, *s.Numbers["optimizer/learning_rate"].Now)
	}
	require.Equal(t, rates[0], rates[2])
	require.InDelta(t, 0.002, rates[3], 1e-12)

	out, err = mine("--step", "4", "--set", "trainer.loss.name=gspo")
	require.NoError(t, err, "nothing is judged")
	require.Contains(t, out, "run mine, from the checkpoint of step 2\nstep 3: loss ")
	require.Contains(t, out, ": equal to the bit\nstep 4: ")
	require.Contains(t, out, ": under other keys\n")
	require.Contains(t, out, "loss/policy")

	// A version whose checkpoint is gone is learnt again, and its model folder is the same.
	models := t.TempDir()
	export := func(name string) map[string]string {
		weir(t, "model", "export", "mine", filepath.Join(models, name), "--run.dir", dir, "--step", "2")
		return hashFiles(t, filepath.Join(models, name))
	}
	saved := export("saved")
	require.NoError(t, os.Rename(filepath.Join(dir, "mine", "checkpoints", "step_000002"), filepath.Join(models, "step_000002")))
	require.Equal(t, saved, export("learnt"))
	require.NoError(t, os.Rename(filepath.Join(models, "step_000002"), filepath.Join(dir, "mine", "checkpoints", "step_000002")))
	_, err = runWeir(t, "", "model", "export", "mine", filepath.Join(models, "none"), "--run.dir", dir, "--step", "9")
	require.ErrorContains(t, err, "the steps whose weights can be learnt again from their batches are 1 to 4")

	bundle := filepath.Join(t.TempDir(), "step-3.weir")
	out, err = mine("--step", "3", "--bundle", bundle)
	require.NoError(t, err)
	require.Contains(t, out, "replays it")
	_, err = mine("--step", "3", "--bundle", bundle)
	require.ErrorContains(t, err, "is there already: name another file")

	// A batch that was cut is named.
	batch := filepath.Join(dir, "mine", "checkpoints", "batches", "step_000004.zst")
	require.NoError(t, os.Truncate(batch, 100))
	_, err = mine("--step", "4")
	require.ErrorContains(t, err, "step 4 cannot be replayed")
	require.ErrorContains(t, err, "step_000004.zst")

	require.NoError(t, os.RemoveAll(dir))
	out, err = runWeir(t, "", "replay", "--bundle", bundle)
	require.NoError(t, err)
	require.Contains(t, out, ": equal to the bit\n")
	require.NoError(t, os.Truncate(bundle, 1000))
	_, err = runWeir(t, "", "replay", "--bundle", bundle)
	require.ErrorContains(t, err, bundle+": it is no whole bundle")
}

// hashFiles are the hashes of a folder's files by name.
func hashFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range entries {
		out[e.Name()], err = checkpoint.HashFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	require.NotEmpty(t, out)
	return out
}

func TestTheFlagsOfReplayAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--step 0: name the step to learn again"},
		{[]string{"--step", "3", "--until", "2"}, "--until 2: it is before --step 3"},
		{[]string{"--step", "3", "--trainer.loss.name", "cispo"}, "give --set trainer.loss.name=VALUE"},
		{[]string{"--step", "3", "--set", "trainer.loss.name"}, "want key=value"},
		{[]string{"--step", "3", "--set", "model.layers=2"}, "with a key of trainer"},
		{[]string{"mine", "--bundle", "x"}, "to write it, give --step"},
		{[]string{"--step", "3", "--set", "trainer.loss.name=cispo", "--bundle", "x"}, "a bundle holds the step as it was"},
	} {
		_, err := runWeir(t, "", append([]string{"replay"}, c.args...)...)
		require.ErrorContains(t, err, c.want)
	}
}

func TestAStepThatComesOutOtherwiseIsCountedAndItsDifferencesArePrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	c := &replayCommand{app: &app{console: console{out: &out}}, run: &assembly.Run{Config: config.Default(builtin.Doors())}}
	record := &checkpoint.Record{Step: 7, Result: &checkpoint.Result{
		Files: map[string]string{"model.safetensors": "aa"}, Numbers: map[string]float64{"loss/policy": 0.5, "optimizer/grad_norm": 1},
	}}
	now := checkpoint.Result{
		Files: map[string]string{"model.safetensors": "bb"}, Numbers: map[string]float64{"loss/policy": 0.25, "optimizer/grad_norm": 1},
	}
	require.NoError(t, c.printOutcome(relearn.Compare(record, *record.Result), false))
	require.Zero(t, c.otherwise)
	require.NoError(t, c.printOutcome(relearn.Compare(record, now), true))
	require.Zero(t, c.otherwise, "what-if is not judged")
	require.NoError(t, c.printOutcome(relearn.Compare(record, now), false))
	require.Equal(t, 1, c.otherwise)
	require.Contains(t, out.String(), "step 7: loss 0.25, gradient norm 1, weights bb: otherwise: model.safetensors\n"+
		"  1 numbers differ, most of all loss/policy: 0.5 in the run, 0.25 now\n")
	record.Result = nil
	require.NoError(t, c.printOutcome(relearn.Compare(record, now), false))
	require.Equal(t, 1, c.unknown)
}
