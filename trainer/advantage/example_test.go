package advantage_test

import (
	"fmt"

	"github.com/weir-rl/weir/trainer/advantage"
)

// Two trajectories answered one prompt; the first was right.
func ExampleNew() {
	keys := advantage.Keys("grpo").(*advantage.GRPO)
	keys.StdEpsilon = 1e-6
	estimator, err := advantage.New("grpo", keys)
	if err != nil {
		panic(err)
	}
	var out advantage.Result
	err = estimator.Estimate(&advantage.Batch{
		Offsets: []int{0, 3, 5},
		Mask:    []uint8{1, 0, 1, 1, 1},
		Rewards: []float64{0, 0, 1, 0, 0},
		Group:   []int{0, 0},
	}, &out)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.3f\n", out.Advantages)
	// Output: [0.707 0.000 0.707 -0.707 -0.707]
}
