package learner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplainedVariance(t *testing.T) {
	t.Parallel()
	returns, mask := []float64{1, 2, 9, 3, 4}, []uint8{1, 1, 0, 1, 1}
	require.InDelta(t, 1, explainedVariance(returns, returns, mask), 1e-12)
	require.InDelta(t, 0, explainedVariance([]float64{7, 7, 0, 7, 7}, returns, mask), 1e-12)
	require.InDelta(t, -3, explainedVariance([]float64{-1, -2, 0, -3, -4}, returns, mask), 1e-12)
	require.InDelta(t, 0.75, explainedVariance([]float64{0.5, 1, 0, 1.5, 2}, returns, mask), 1e-12)
	require.Zero(t, explainedVariance(returns, make([]float64, 5), mask))
}
