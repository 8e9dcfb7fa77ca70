package native_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// Evaluate and Accumulate are the forward and the backward pass of each part in turn, bit for bit.
func TestPartsAreForwardAndBackwardInTurn(t *testing.T) {
	parts := []*gpu.Batch{randomBatch(300, 40, 3), randomBatch(300, 90), randomBatch(300, 7, 7, 7)}
	one, two := newEngine(t, smallConfig(), native.Options{Seed: 3}), newEngine(t, smallConfig(), native.Options{Seed: 3})
	var want [][]float32
	for _, b := range parts {
		o, err := one.Forward(t.Context(), b, true)
		require.NoError(t, err)
		want = append(want, slices.Clone(o.Logprobs))
		require.NoError(t, one.Backward(t.Context(), upstream(len(b.Tokens))))
	}
	require.NoError(t, two.Evaluate(t.Context(), parts, func(i int, o *gpu.Outputs) error {
		require.Equal(t, want[i], o.Logprobs)
		return nil
	}))
	require.NoError(t, two.Accumulate(t.Context(), parts, func(i int, o *gpu.Outputs) (*gpu.Gradients, error) {
		require.Equal(t, want[i], o.Logprobs)
		return upstream(len(parts[i].Tokens)), nil
	}))
	for _, e := range []*native.Engine{one, two} {
		_, err := e.Step(t.Context(), stepOptions)
		require.NoError(t, err)
	}
	first, err := one.Weights(t.Context())
	require.NoError(t, err)
	second, err := two.Weights(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
}
