package loss_test

import (
	"fmt"

	"github.com/weir-rl/weir/trainer/loss"
)

// A micro-batch's log-probabilities go in, their gradient comes out.
func ExampleObjective() {
	config := loss.DefaultConfig()
	config.Name = "ppo"
	objective, err := loss.NewObjective(config)
	if err != nil {
		panic(err)
	}
	var out loss.Result
	err = objective.Loss(&loss.Batch{
		Offsets:    []int{0, 3}, // one row of three tokens, the second of them a tool's
		Mask:       []uint8{1, 0, 1},
		Logprobs:   []float64{-1, 0, -0.5},
		Proximal:   []float64{-1, 0, -0.9},
		Advantages: []float64{1, 0, 1},
	}, &out)
	if err != nil {
		panic(err)
	}
	fmt.Printf("loss %.3f, gradient %.2f, clipped %.1f\n", out.Loss, out.Grad, out.Metrics["clip_fraction"].Value())
	// Output: loss -1.100, gradient [-0.50 0.00 0.00], clipped 0.5
}
