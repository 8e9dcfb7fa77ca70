package torch

import (
	"math"

	"github.com/weir-rl/weir/gpu"
)

// readStepped reads step's answer.
func readStepped(f *frame) (gpu.StepStats, error) {
	var answer struct {
		// Norm is absent where it is not finite: JSON has no such number.
		Norm    *float64 `json:"norm"`
		Skipped bool     `json:"skipped"`
	}
	if err := f.decodeHeader(&answer); err != nil {
		return gpu.StepStats{}, err
	}
	stats := gpu.StepStats{GradNorm: math.NaN(), Skipped: answer.Skipped}
	if answer.Norm != nil {
		stats.GradNorm = *answer.Norm
	}
	return stats, nil
}
