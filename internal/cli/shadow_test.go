package cli

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Keys that would need other trajectories or another model are refused by name, before anything is written. A program that embeds the
// command line keeps its priority.
func TestAShadowRefusesWhatItsRunDoesNotMake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, os.Getpid())
	require.NoError(t, err)
	run := []string{"--run.dir", dir, "--run.name", "mine"}
	begin := func(args ...string) error {
		_, err := runWeir(t, "", append(append([]string{"trainer"}, run...), args...)...)
		return err
	}
	file := filepath.Join(dir, "mine", "config.yaml")
	require.ErrorContains(t, begin("--shadow", "a", "--once"), "run mine has not begun: there is no "+file)
	written, err := runWeir(t, "", append([]string{"config", "show", "--trainer.eta", "2"}, run...)...)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "mine"), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(written), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--model.layers", "5"}, "model.layers (from --model.layers): the run has "},
		{[]string{"--trainer.group_size", "3"}, "trainer.group_size (from --trainer.group_size): the run has 8"},
		{[]string{"--trainer.sampling.temperature", "0.5"}, "trainer.sampling.temperature"},
		{[]string{"--run.seed", "77"}, "run.seed"},
		{[]string{"--trainer.eta", "3"}, "trainer.eta (from --trainer.eta): the run has 2 and keeps no trajectory that is older"},
		{[]string{"--trainer.advantage.name", "remax"}, "it needs a greedy rollout of each prompt"},
		{[]string{"--trainer.loss.name", "cispo", "--trainer.publish.dtype", "bfloat16"}, "trainer.publish.dtype"},
		{[]string{"--trainer.loss.name", "nothing"}, "trainer.loss.name"},
	} {
		err := begin(append([]string{"--shadow", "a", "--once"}, c.args...)...)
		require.ErrorContains(t, err, c.want)
	}
	require.ErrorContains(t, begin("--shadow", "a/b"), "only letters, digits")
	require.ErrorContains(t, begin("--from", "3"), "--from: name a shadow")
	require.ErrorContains(t, begin("--shadow", "a", "--from", "-2"), "--from -2: name a step")
	require.NoDirExists(t, filepath.Join(dir, "mine", runfolder.ShadowsFolder))
	require.ErrorContains(t, begin("--shadow", "a", "--once", "--trainer.eta", "1"), "has no full one")
	after, err := syscall.Getpriority(syscall.PRIO_PROCESS, os.Getpid())
	require.NoError(t, err)
	require.Equal(t, priority, after)
}

// Two shadows of a run: one has the run's settings and makes its weights, the other has a loss of its own. The run's folder is as before,
// its audit passes, and each shadow's folder is read as a run's is.
func TestShadowsOfARunOfTheDemonstration(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a run of four steps: the second pass of CI has it")
	for _, reuse := range []string{"1", "2"} {
		t.Run("each batch in "+reuse, func(t *testing.T) {
			t.Parallel()
			shadowsOfARun(t, reuse)
		})
	}
}

// shadowsOfARun follows a run whose batches are trained on in a number of steps each.
func shadowsOfARun(t *testing.T, reuse string) {
	t.Helper()
	dir := t.TempDir()
	weir(t, "up", "--run.dir", dir, "--run.name", "mine", "--broker.listen", "127.0.0.1:0", "--trainer.steps", "4",
		"--trainer.batch_groups", "4", "--trainer.group_size", "4", "--trainer.minibatches", "2", "--trainer.eta", "1", "--trainer.reuse", reuse,
		"--trainer.max_dropped_groups", "8",
		"--trainer.cold_start.steps", "60", "--trainer.checkpoint.every", "4", "--model.hidden", "16", "--model.intermediate", "32",
		"--model.layers", "1", "--eval.every", "0", "--eval.test_questions", "1", "--view.listen", "")
	of := func(args ...string) (string, error) {
		return runWeir(t, "", append([]string{"trainer", "--run.dir", dir, "--run.name", "mine", "--once", "--from", "0"}, args...)...)
	}
	out, err := of("--shadow", "same")
	require.NoError(t, err)
	require.Contains(t, out, "shadow same of run mine goes on after step 0")
	require.Contains(t, out, ", weights 0 away\n")
	out, err = of("--shadow", "same")
	require.NoError(t, err)
	require.Contains(t, out, "nothing was left to learn: the run has no step after ")
	_, err = of("--shadow", "reinforce", "--trainer.loss.name", "reinforce", "--trainer.optimizer.learning_rate", "0.01")
	require.NoError(t, err)
	_, err = of("--shadow", "same", "--trainer.loss.name", "cispo")
	require.ErrorContains(t, err, "trainer.loss.name (from --trainer.loss.name): the shadow was begun with ")

	weights := func(folder ...string) string {
		store := filepath.Join(append(append([]string{dir, "mine"}, folder...), "checkpoints")...)
		hash, err := checkpoint.HashFile(filepath.Join(checkpoint.StepDir(store, 4), "model.safetensors"))
		require.NoError(t, err)
		return hash
	}
	require.Equal(t, weights(), weights("shadows", "same"))
	require.NotEqual(t, weights(), weights("shadows", "reinforce"))
	_, err = runWeir(t, "", "audit", "--run.dir", dir, "--run.name", "mine")
	require.NoError(t, err)
	out, err = runWeir(t, "", "status", "--run.dir", dir, "--run.name", "mine")
	require.NoError(t, err)
	require.Contains(t, out, "shadow same")
	require.Contains(t, out, "shadow reinforce")
	out, err = runWeir(t, "", "records", "csv", "--run.dir", filepath.Join(dir, "mine", "shadows"), "--run.name", "reinforce")
	require.NoError(t, err)
	require.Contains(t, out, "shadow/weight_distance")
	_, err = runWeir(t, "", "fork", filepath.Join(dir, "mine", "shadows", "reinforce"), "--step", "4", "winner")
	require.NoError(t, err)
	weir(t, "up", "--config", filepath.Join(dir, "winner", "config.yaml"), "--trainer.steps", "5", "--broker.listen", "127.0.0.1:0")
	_, err = runWeir(t, "", "audit", "--run.dir", dir, "--run.name", "winner")
	require.NoError(t, err)
	_, err = runWeir(t, "", "replay", filepath.Join(dir, "mine", "shadows", "reinforce"), "--step", "4")
	require.NoError(t, err)
}
