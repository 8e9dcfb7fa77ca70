package native_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// Defect S3: with a large vocabulary the head's rows were one block, and one worker's. That they are shared must not
// show in a bit of the result.
func TestALargeVocabularyIsTrainedToTheSameBitsByAnyNumberOfWorkers(t *testing.T) {
	t.Parallel()
	s := shapes()[0]
	s.cfg.VocabSize, s.cfg.HiddenSize, s.cfg.NumLayers, s.seqs, s.length, s.maskEvery = 70_001, 16, 1, 3, 30, 1
	s.cfg.IntermediateSize, s.cfg.NumHeads, s.cfg.NumKVHeads = 16, 2, 1
	batch := s.batch()
	g := &gpu.Gradients{Logprobs: make([]float32, len(batch.Tokens)), Entropies: make([]float32, len(batch.Tokens))}
	for i := range g.Logprobs {
		g.Logprobs[i], g.Entropies[i] = float32(i%7)-3, float32(i%3)/10
	}
	var want *gpu.Weights
	for _, threads := range []int{1, 2, 5} {
		e, err := native.New(s.cfg, native.Options{Seed: 1, Threads: threads})
		require.NoError(t, err)
		_, err = e.Forward(t.Context(), batch, true)
		require.NoError(t, err)
		require.NoError(t, e.Backward(t.Context(), g))
		_, err = e.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1})
		require.NoError(t, err)
		got, err := e.Weights(t.Context())
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "%d workers", threads)
		require.NoError(t, e.Close())
	}
}
