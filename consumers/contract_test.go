package consumers_test

import (
	"testing"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/samplertest"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
)

// The Batcher keeps every Sampler's contract.
func TestTheBatcherKeepsTheContract(t *testing.T) {
	t.Parallel()
	samplertest.Run(t, func(t *testing.T) *samplertest.Rig {
		cfg := consumers.DefaultConfig()
		cfg.Slots, cfg.StepTokenBudget, cfg.ChunkTokens, cfg.Swap = 8, 64, 4, consumers.SwapRecompute
		return &samplertest.Rig{
			Sampler: consumers.NewBatcher(cfg, native.Backend{Options: native.Options{Threads: 1}}.NewDecoder, nil),
			Config:  fakemodel.Config(), Logprobs: fakemodel.NewOracle(t).Logprobs, Reproduces: true,
			Snapshot: func(version int64) consumers.Snapshot {
				return consumers.Snapshot{Version: version, Config: fakemodel.Config(), Weights: fakemodel.Weights(t, version)}
			},
		}
	})
}
