package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Defect N16: what was set and is passed over is named, with its origin; what was not set, or stands in a file as it is by
// default, is not.
func TestUnreadNamesWhatWasSetForNothing(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "model:\n  hidden: 64\n  layers: 2\ntrainer:\n  advantage:\n    lambda: 0.9\n    gamma: 1\n")
	cfg := Default()
	origins, err := Load(cfg, Sources{Files: []string{file}, Flags: map[string]string{
		"model.folder": "somewhere", "trainer.loss.options.tau_positive": "2", "trainer.selection.resample.take": "0", "trainer.eta": "4",
	}})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	var have []string
	for _, e := range cfg.Unread(origins) {
		have = append(have, e.Error())
	}
	require.Equal(t, []string{
		"model.layers (from " + file + "): model.folder says what the model is",
		"trainer.advantage.lambda (from " + file + "): advantage grpo does not read it",
		"trainer.loss.options.tau_positive (from --trainer.loss.options.tau_positive): loss decoupled_ppo does not read it",
		"trainer.selection.resample.take (from --trainer.selection.resample.take): selection.resample.by is off",
	}, have)

	cfg = Default()
	origins, err = Load(cfg, Sources{Flags: map[string]string{"trainer.advantage.name": "mt_grpo", "task.corpus": "c.jsonl"}})
	require.NoError(t, err)
	unread := cfg.Unread(origins)
	require.Len(t, unread, 2)
	require.Contains(t, unread[0].Problem, "task library has data of its own")
	require.Contains(t, unread[1].Problem, "no process reward")
	require.Empty(t, Default().Unread(nil))
}

// Everything that the defaults leave out is passed over for a reason that there is; nothing is said of keys in use.
func TestTheDefaultsUseWhatTheyAreSetTo(t *testing.T) {
	t.Parallel()
	cfg := Default()
	changed := cfg.unread("trainer.eta") + cfg.unread("trainer.advantage.std_epsilon") + cfg.unread("task.name") + cfg.unread("model.hidden")
	require.Empty(t, changed)
}
