package consumers_test

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/schemas"
)

// A Batcher is given weights, generates, and is given newer weights.
func ExampleBatcher() {
	model := gpu.Config{
		ModelType: "llama", VocabSize: 100, HiddenSize: 16, IntermediateSize: 32, NumLayers: 1, NumHeads: 2, NumKVHeads: 2,
		RopeTheta: 1e4, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 64,
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sampler := consumers.NewBatcher(consumers.DefaultConfig(), native.Backend{}.NewDecoder, nil)
	done := make(chan error, 1)
	go func() { done <- sampler.Run(ctx) }()

	for version := range int64(2) {
		policy, err := native.New(model, native.Options{Seed: uint64(version)})
		if err != nil {
			panic(err)
		}
		weights, err := policy.Weights(ctx)
		if err != nil {
			panic(err)
		}
		if _, err := sampler.Swap(ctx, consumers.Snapshot{Version: version, Config: model, Weights: weights}); err != nil {
			panic(err)
		}
		request := &schemas.GenerateRequest{Episode: "e", Tokens: []int32{1, 2, 3}, MaxTokens: 4, Temperature: 1, Seed: 7}
		err = sampler.Generate(ctx, request, func(c *schemas.GenerateChunk) error {
			fmt.Println(len(c.Tokens), "tokens of versions", c.Versions, "stop:", c.Stop)
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// 4 tokens of versions [0 0 0 0] stop: length
	// 4 tokens of versions [1 1 1 1] stop: length
	// <nil>
}
