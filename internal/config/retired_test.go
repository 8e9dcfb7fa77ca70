package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
)

// A configuration that an older build wrote holds every key that it had.
func TestRetiredKeysAreReadAtTheValueThatEveryRunHas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`trainer:
  eta: 2
  advantage: {count_empty: false, count_epsilon: 0, episode_agents: [], mask_rewards: true}
  loss: {options: {aggregation: {empty_nan: false}}}
`), 0o600))
	for _, src := range []Sources{{Written: path}, {Files: []string{path}}} {
		c, origins, err := Resolve(builtin.Doors(), src)
		require.NoError(t, err)
		require.Equal(t, 2, c.Trainer.Eta)
		require.Contains(t, origins, "trainer.eta")
		require.NotContains(t, origins, "trainer.advantage.count_empty")
	}
	_, _, err := Resolve(builtin.Doors(), Sources{Flags: map[string]string{
		"trainer.advantage.count_empty": "true",
	}})
	require.ErrorContains(t, err, "trainer.advantage.count_empty (from --trainer.advantage.count_empty): true: the key is gone, and every run has false: take it out")
}

func TestRetiredKeysAreNoKeys(t *testing.T) {
	t.Parallel()
	known := Keys(reference())
	for key := range retired {
		require.False(t, slices.Contains(known, key), key)
	}
}
