package native_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
)

// A model learns a sequence by heart and then recites it. The loss is the negative sum of log-probabilities, so
// its gradient with respect to each of them is -1.
func Example() {
	ctx := context.Background()
	e, err := native.New(gpu.Config{
		ModelType: "llama", VocabSize: 10, HiddenSize: 16, IntermediateSize: 32, NumLayers: 1, NumHeads: 2, NumKVHeads: 1,
		RopeTheta: 10000, RMSNormEps: 1e-6, TieEmbeddings: true, MaxPositions: 16,
	}, native.Options{Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()

	b := &gpu.Batch{
		Tokens: []int32{3, 1, 4, 1, 5, 9, 2, 6}, Offsets: []int{0, 8}, Mask: []uint8{0, 1, 1, 1, 1, 1, 1, 1},
	}
	g := &gpu.Gradients{Logprobs: []float32{0, -1, -1, -1, -1, -1, -1, -1}}
	for range 100 {
		err := e.Accumulate(ctx, []*gpu.Batch{b}, func(int, *gpu.Outputs) (*gpu.Gradients, error) { return g, nil })
		if err != nil {
			log.Fatal(err)
		}
		if _, err := e.Step(ctx, gpu.StepOptions{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, ClipNorm: 1}); err != nil {
			log.Fatal(err)
		}
	}

	weights, err := e.Weights(ctx)
	if err != nil {
		log.Fatal(err)
	}
	d, err := native.NewDecoder(e.Config(), weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 16}, 0)
	if err != nil {
		log.Fatal(err)
	}
	slot, err := d.Open()
	if err != nil {
		log.Fatal(err)
	}
	said := []int32{3}
	for len(said) < 8 {
		// Temperature 0 takes the most likely token.
		next, err := d.Extend(ctx, []gpu.Extension{{Slot: slot, Tokens: said[len(said)-1:], Sample: true}})
		if err != nil {
			log.Fatal(err)
		}
		said = append(said, next[0].Token)
	}
	fmt.Println(said)
	// Output: [3 1 4 1 5 9 2 6]
}
