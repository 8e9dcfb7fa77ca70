package parts

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// [sampler]
// fair draws every token of the vocabulary with the same probability.
type fair struct {
	version    atomic.Int64
	vocabulary atomic.Int64
}

func newFair() *fair {
	f := &fair{}
	f.version.Store(-1)
	return f
}

// Run has nothing to do but to wait: each call is served where it is made.
func (f *fair) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Swap puts a version to use. An inference server would be given s.Weights, or the folder s.Dir, here.
func (f *fair) Swap(_ context.Context, s consumers.Snapshot) (consumers.Swapped, error) {
	f.vocabulary.Store(int64(s.Config.VocabSize))
	f.version.Store(s.Version)
	return consumers.Swapped{}, nil
}

func (f *fair) Version() int64       { return f.version.Load() }
func (f *fair) Load() consumers.Load { return consumers.Load{} }

// Generate sends all tokens in one chunk. The random number of a token depends on the seed and on the token's position alone.
func (f *fair) Generate(_ context.Context, req *schemas.GenerateRequest, emit func(*schemas.GenerateChunk) error) error {
	version, vocabulary := f.version.Load(), f.vocabulary.Load()
	if version < max(0, req.MinVersion) {
		return emit(&schemas.GenerateChunk{Done: true, Stop: schemas.GenerateError, Error: "no version is new enough yet", Retry: true, Busy: true})
	}
	chunk := &schemas.GenerateChunk{Done: true, Stop: schemas.GenerateLength}
	for i := range req.MaxTokens {
		random := rand.New(rand.NewPCG(req.Seed, uint64(len(req.Tokens)+i)))
		token := int32(random.Int64N(vocabulary))
		chunk.Tokens = append(chunk.Tokens, token)
		chunk.Logprobs = append(chunk.Logprobs, float32(-math.Log(float64(vocabulary))))
		chunk.Versions = append(chunk.Versions, int32(version))
		if slices.Contains(req.StopTokens, token) {
			chunk.Stop = schemas.GenerateStopToken
			break
		}
	}
	return emit(chunk)
}

// [test] The example above works.
func TestASamplerOfYourOwn(t *testing.T) {
	t.Parallel()
	var sampler consumers.Sampler = newFair()
	call := func(tokens ...int32) *schemas.GenerateChunk {
		var got *schemas.GenerateChunk
		require.NoError(t, sampler.Generate(t.Context(), &schemas.GenerateRequest{Tokens: tokens, MaxTokens: 5, Seed: 9}, func(c *schemas.GenerateChunk) error {
			got = c
			return nil
		}))
		return got
	}
	require.True(t, call(1).Retry, "before the first version")
	_, err := sampler.Swap(t.Context(), consumers.Snapshot{Version: 3, Config: gpu.Config{VocabSize: 10}})
	require.NoError(t, err)
	whole := call(1)
	require.Len(t, whole.Tokens, 5)
	require.Len(t, whole.Versions, 5)
	require.EqualValues(t, 3, whole.Versions[0])
	rest := call(append([]int32{1}, whole.Tokens[:2]...)...)
	require.Equal(t, whole.Tokens[2:], rest.Tokens[:3], "another sampler can go on in the middle")
}
