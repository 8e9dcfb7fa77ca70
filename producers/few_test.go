package producers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// Newcomer's friction N8: one answer, right or wrong, is no certain score.
func TestFewEqualAnswersAreNoCertainScore(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.219, producers.EvalScore{N: 1}.StandardError(), 1e-3)
	require.InDelta(t, 0.219, producers.EvalScore{N: 1, ExactMatch: 1}.StandardError(), 1e-3)
	require.InDelta(t, 0.0935, producers.EvalScore{N: 10, ExactMatch: 1}.StandardError(), 1e-3)
	require.Zero(t, producers.EvalScore{N: 240, ExactMatch: 1}.StandardError())
	require.Zero(t, producers.EvalScore{}.StandardError())
}
