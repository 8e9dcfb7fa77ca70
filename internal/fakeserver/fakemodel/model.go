// Package fakemodel is a small model with a version for every seed, for tests of samplers: its weights, its folder, and
// its log-probabilities by a way of their own.
package fakemodel

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/safetensors"
)

// Config is the model's: small, with heads that are as wide as vLLM's attention on processors takes.
func Config() gpu.Config {
	return gpu.Config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", VocabSize: 29, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2,
		NumHeads: 2, NumKVHeads: 1, HeadDim: 32, RopeTheta: 1e4, RMSNormEps: 1e-6, MaxPositions: 64, DType: "float32",
	}
}

// Weights are a version's.
func Weights(tb testing.TB, version int64) *gpu.Weights {
	tb.Helper()
	e, err := native.New(Config(), native.Options{Seed: uint64(version) + 11, Threads: 1, Init: native.Init{EmbeddingStd: 0.35}}) //nolint:gosec // a small count
	require.NoError(tb, err)
	w, err := e.Weights(tb.Context())
	require.NoError(tb, err)
	return w
}

// Folder writes a version as a folder of dir and returns its path.
func Folder(tb testing.TB, dir string, version int64) string {
	tb.Helper()
	path := filepath.Join(dir, fmt.Sprintf("v%d", version))
	require.NoError(tb, hf.Save(path, Config(), Weights(tb, version), nil, safetensors.F32))
	return path
}

// Oracle computes log-probabilities a token at a time, each version with a decoder of its own. It is safe for concurrent use.
type Oracle struct {
	tb       testing.TB
	mu       sync.Mutex
	decoders map[int64]gpu.Decoder
}

// NewOracle makes an Oracle.
func NewOracle(tb testing.TB) *Oracle {
	tb.Helper()
	return &Oracle{tb: tb, decoders: map[int64]gpu.Decoder{}}
}

// Logprobs are the log-probabilities of tokens[from:] under a version's weights.
func (o *Oracle) Logprobs(version int64, tokens []int32, from int, temperature float32) []float32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := Config()
	dec := o.decoders[version]
	if dec == nil {
		var err error
		dec, err = native.Backend{Options: native.Options{Threads: 1}}.NewDecoder(c, Weights(o.tb, version), gpu.DecoderOptions{Slots: 1, MaxTokens: c.MaxPositions})
		require.NoError(o.tb, err)
		o.decoders[version] = dec
	}
	slot, err := dec.Open()
	require.NoError(o.tb, err)
	defer dec.Close(slot)
	var out []float32
	next := tokens[:from]
	for i := from; i < len(tokens); i++ {
		all, err := dec.Extend(o.tb.Context(), []gpu.Extension{{Slot: slot, Tokens: next, Sample: true, Temperature: temperature, TopLogprobs: c.VocabSize}})
		require.NoError(o.tb, err)
		for _, t := range all[0].Top {
			if t.Token == tokens[i] {
				out = append(out, t.Logprob)
			}
		}
		next = tokens[i : i+1]
	}
	return out
}
