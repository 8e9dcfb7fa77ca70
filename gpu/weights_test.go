package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
)

func TestAValueHeadIsAddedAndTakenAway(t *testing.T) {
	t.Parallel()
	without := gpu.Config{VocabSize: 5, HiddenSize: 4, IntermediateSize: 3, NumLayers: 1, NumHeads: 2, NumKVHeads: 2}
	w := &gpu.Weights{Tensors: without.Layout()}
	with, headed := gpu.WithValueHead(without, w, true)
	require.True(t, with.ValueHead)
	require.Equal(t, gpu.Tensor{Name: gpu.ValueHeadTensor, Shape: []int{1, 4}, Data: make([]float32, 4)}, headed.Tensors[len(w.Tensors)])
	headed.Tensors[len(w.Tensors)].Data[2] = 7
	_, same := gpu.WithValueHead(with, headed, true)
	require.Equal(t, headed, same, "one that is there stays")
	back, bare := gpu.WithValueHead(with, headed, false)
	require.Equal(t, without, back)
	require.Equal(t, w, bare)
}
