package parts

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// [engine]
// counting is an engine that counts the tokens which another engine evaluates and differentiates, and its steps.
type counting struct {
	gpu.Engine
	evaluated, differentiated, steps int
}

// Evaluate hands each part's outputs to each, in order.
func (c *counting) Evaluate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) error) error {
	c.evaluated += tokens(parts)
	return c.Engine.Evaluate(ctx, parts, each)
}

// Accumulate does the same, and adds to the gradient what each returns for a part's outputs.
func (c *counting) Accumulate(ctx context.Context, parts []*gpu.Batch, each func(int, *gpu.Outputs) (*gpu.Gradients, error)) error {
	c.differentiated += tokens(parts)
	return c.Engine.Accumulate(ctx, parts, each)
}

// Step moves the weights along the gradient that was accumulated, and begins another.
func (c *counting) Step(ctx context.Context, o gpu.StepOptions) (gpu.StepStats, error) {
	c.steps++
	return c.Engine.Step(ctx, o)
}

func tokens(parts []*gpu.Batch) (n int) {
	for _, p := range parts {
		n += len(p.Tokens)
	}
	return n
}

// [test] The example above works.
func TestAnEngineOfYourOwn(t *testing.T) {
	t.Parallel()
	config := gpu.Config{ModelType: "llama", VocabSize: 7, HiddenSize: 8, IntermediateSize: 16, NumLayers: 1, NumHeads: 2, NumKVHeads: 1, RopeTheta: 1e4, RMSNormEps: 1e-5, TieEmbeddings: true, MaxPositions: 8}
	inner, err := native.New(config, native.Options{Seed: 1, Threads: 1, Init: native.Init{EmbeddingStd: 0.1}})
	require.NoError(t, err)
	var engine gpu.Engine = &counting{Engine: inner}
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	parts := []*gpu.Batch{{Tokens: []int32{1, 2, 3}, Offsets: []int{0, 3}, Mask: []uint8{0, 1, 1}, Temperature: []float32{1}}}
	before := 0.0
	require.NoError(t, engine.Evaluate(t.Context(), parts, func(_ int, o *gpu.Outputs) error {
		before = float64(o.Logprobs[1] + o.Logprobs[2])
		return nil
	}))
	// The gradient of minus the log-probability of both sampled tokens.
	require.NoError(t, engine.Accumulate(t.Context(), parts, func(int, *gpu.Outputs) (*gpu.Gradients, error) {
		return &gpu.Gradients{Logprobs: []float32{0, -1, -1}}, nil
	}))
	_, err = engine.Step(t.Context(), gpu.StepOptions{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8})
	require.NoError(t, err)
	require.NoError(t, engine.Evaluate(t.Context(), parts, func(_ int, o *gpu.Outputs) error {
		require.Greater(t, float64(o.Logprobs[1]+o.Logprobs[2]), before, "the tokens have become more likely")
		return nil
	}))
	require.Equal(t, counting{inner, 6, 3, 1}, *engine.(*counting)) //nolint:forcetypeassert // made above
}
