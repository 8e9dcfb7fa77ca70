package episodes

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/streams/generate"
)

// The values of Config.Engine.
const (
	// EngineStandIn takes Config.Token a token, and counts the tokens that it samples again.
	EngineStandIn = "stand-in"
	// EngineNative is the engine in Go, with a small model of random weights.
	EngineNative = "native"
)

// serveEngines starts the engines of a stage.
func (s *stage) serveEngines(ctx context.Context, group *errgroup.Group) error {
	for i := range s.cfg.Engines {
		name, serve := fmt.Sprintf("engine-%d", i), s.engine.ServeCall
		if s.cfg.Engine == EngineNative {
			batcher, err := startNative(ctx, group, i)
			if err != nil {
				return err
			}
			serve = batcher.Generate
		}
		group.Go(func() error { return generate.Serve(ctx, s.run, name, serve) })
	}
	return nil
}

// startNative starts an engine in Go. All have the same weights; the i-th has its own number of sequences that it samples at once, so that
// no two batches are alike.
func startNative(ctx context.Context, group *errgroup.Group, i int) (*consumers.Batcher, error) {
	model := gpu.Config{
		ModelType: "llama", VocabSize: 33, HiddenSize: 32, IntermediateSize: 64, NumLayers: 2, NumHeads: 2, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 4096,
	}
	engine, err := native.New(model, native.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	weights, err := engine.Weights(ctx)
	if err != nil {
		return nil, err
	}
	cfg := consumers.DefaultConfig()
	cfg.Name, cfg.Slots, cfg.StepTokenBudget = fmt.Sprintf("engine-%d", i), 5+3*i, 64+16*i
	batcher := consumers.NewBatcher(cfg, native.Backend{}.NewDecoder, nil)
	group.Go(func() error { return batcher.Run(ctx) })
	_, err = batcher.Swap(ctx, consumers.Snapshot{Config: model, Weights: weights})
	return batcher, err
}
