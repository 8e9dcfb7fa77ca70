package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding Q3 of the core's second review: where inference.max_tokens is below what episodes may grow to, each that does would end
// there. The configuration says so, of the run's limit and of a task's own.
func TestAnEngineShorterThanTheEpisodesIsRefused(t *testing.T) {
	t.Parallel()
	_, err := load(map[string]string{"inference.max_tokens": "64", "trainer.limits.max_tokens": "160"})
	require.ErrorContains(t, err, "trainer.limits.max_tokens: 160: must not exceed inference.max_tokens, 64")
	_, err = load(map[string]string{"inference.max_tokens": "64", "trainer.limits.max_tokens": "64", "tasks.library.limits.max_tokens": "65"})
	require.ErrorContains(t, err, "tasks.library.limits.max_tokens: 65: must not exceed inference.max_tokens, 64")
	cfg, err := load(map[string]string{"inference.max_tokens": "64", "trainer.limits.max_tokens": "63", "tasks.library.limits.max_tokens": "64"})
	require.NoError(t, err)
	require.Equal(t, 64, cfg.Longest())
}
