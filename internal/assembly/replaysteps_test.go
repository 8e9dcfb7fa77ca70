package assembly

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/relearn"
)

// Finding 8 of the eighth reader: a replay beside the trainer failed where the trainer removed the checkpoint that it had chosen.
func TestAReplayChoosesAnotherCheckpointWhereItsOwnWasRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gone, there := filepath.Join(dir, "step_000012"), filepath.Join(dir, "step_000013")
	require.NoError(t, os.Mkdir(there, 0o755))
	_, lacks := os.ReadFile(filepath.Join(gone, "config.json"))
	for name, c := range map[string]struct {
		base string
		told bool
		err  error
		want bool
	}{
		"the checkpoint is gone":         {gone, false, lacks, true},
		"a step was told":                {gone, true, lacks, false},
		"a file of a checkpoint is gone": {there, false, lacks, false},
		"another error":                  {gone, false, os.ErrPermission, false},
		"no error, and it was removed":   {gone, false, nil, false},
	} {
		r := &stepReplayer{plan: &relearn.Plan{From: &checkpoint.Checkpoint{Dir: c.base}}, told: c.told}
		require.Equal(t, c.want, r.lostBase(c.err), name)
	}
}

// Steps are learnt again under the settings that they were trained with, whatever the sources of now say: rules of the loss are a list, and
// an algorithm has keys of its own. A list of then was left as it is now, and the steps came out otherwise.
func TestTheLearnerOfEarlierStepsHasTheirSettings(t *testing.T) {
	t.Parallel()
	doors := builtin.Doors()
	for name, c := range map[string]struct{ was, now string }{
		"a number":      {"trainer: {optimizer: {learning_rate: 0.002}}", "trainer: {optimizer: {learning_rate: 0.003}}"},
		"a rule":        {"trainer: {loss: {options: {correction: {rules: [mask token ratio - 2]}}}}", ""},
		"rules":         {"trainer: {loss: {options: {correction: {rules: [mask token ratio - 2, clamp mean k1 -1 1]}}}}", ""},
		"no rule":       {"trainer: {loss: {options: {correction: {rules: [none]}}}}", ""},
		"rules of now":  {"", "trainer: {loss: {options: {correction: {rules: [mask token ratio - 2, zero max k3 - 9]}}}}"},
		"an empty list": {"trainer: {loss: {name: cispo}}", "trainer: {loss: {name: cispo, options: {correction: {rules: [mask token ratio - 2]}}}}"},
		"another loss":  {"trainer: {loss: {options: {clip_high: 0.3}}}", "trainer: {loss: {name: gspo, options: {clip_high: 0.0005}}}"},
		"its own keys":  {"trainer: {loss: {name: cispo, options: {clip_high: 4}}}", "trainer: {loss: {name: decoupled_ppo, options: {correction: {cap: 3}}}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			resolve := func(text string) *config.Config {
				file := filepath.Join(dir, "run.yaml")
				require.NoError(t, os.WriteFile(file, []byte("run: {dir: "+dir+"}\n"+text+"\n"), 0o600))
				cfg, _, err := Resolve(doors, config.Sources{Files: []string{file}})
				require.NoError(t, err)
				return cfg
			}
			was, now := resolve(c.was), resolve(c.now)
			settings := trainingSettings(was)
			for _, left := range []*config.Config{nil, was, now} { // what the run has written before or after the change
				s, err := New(now, Options{Parts: doors, Files: []string{filepath.Join(dir, "run.yaml")}, Environ: []string{}, Log: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				if left != nil {
					text, err := config.YAML(left.Portable())
					require.NoError(t, err)
					require.NoError(t, os.MkdirAll(now.Folder(), 0o755))
					require.NoError(t, os.WriteFile(filepath.Join(now.Folder(), ConfigFile), text, 0o600))
				} else if name == "another loss" || name == "its own keys" {
					continue // the file's keys are none of the loss of then
				}
				learner, err := s.learnerOf(settings)
				require.NoError(t, err)
				got := *was
				got.Trainer.Config = learner
				require.Equal(t, settings, trainingSettings(&got))
			}
		})
	}
}
