package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// Defect N16: what was set and is passed over is named, with its origin; what was not set, or stands in a file as it is by
// default, is not.
func TestUnreadNamesWhatWasSetForNothing(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "model:\n  hidden: 64\n  layers: 2\ntrainer:\n  steps: 30\n")
	cfg, origins, err := Resolve(builtin.Doors(), Sources{Files: []string{file}, Flags: map[string]string{
		"model.folder": "somewhere", "trainer.loss.options.correction.m2_threshold": "-1", "trainer.loss.options.aggregation.length": "2", "trainer.selection.resample.take": "0", "trainer.eta": "4",
	}})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	var have []string
	for _, e := range cfg.Unread(origins) {
		have = append(have, e.Error())
	}
	require.Equal(t, []string{
		"model.layers (from " + file + "): model.folder says what the model is",
		"trainer.loss.options.aggregation.length (from --trainer.loss.options.aggregation.length): loss.options.aggregation.mode is token-mean",
		"trainer.selection.resample.take (from --trainer.selection.resample.take): selection.resample.by is off",
	}, have)

	cfg, origins, err = Resolve(builtin.Doors(), Sources{Flags: map[string]string{"trainer.advantage.name": "mt_grpo", "tasks.library.reward.length_target.words": "3"}})
	require.NoError(t, err)
	unread := cfg.Unread(origins)
	require.Len(t, unread, 2)
	require.Contains(t, unread[0].Problem, "tasks.library.reward.length is 0")
	require.Contains(t, unread[1].Problem, "the tools of task library give no process reward")
	require.Empty(t, Default(builtin.Doors()).Unread(nil))
}

// Everything that the defaults leave out is passed over for a reason that there is; nothing is said of keys in use.
func TestTheDefaultsUseWhatTheyAreSetTo(t *testing.T) {
	t.Parallel()
	cfg := Default(builtin.Doors())
	changed := cfg.unreadReason("trainer.eta") + cfg.unreadReason("trainer.advantage.std_epsilon") + cfg.unreadReason("tasks.library.type") + cfg.unreadReason("model.hidden")
	require.Empty(t, changed)
}
