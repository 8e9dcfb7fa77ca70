package learner

import (
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

// Tokens are a step's results for each token of its batch, for people to look at. Each array has an entry for each token of the rows. The
// arrays do not change any more.
type Tokens struct {
	// Rows are the batch laid out.
	Rows *batch.Rows
	// Advantages are the loss's input.
	Advantages []float64
	// Start are the log-probabilities under the policy at the step's start, Last under the policy that last trained on the token; in a step
	// with a single optimizer step they are the same.
	Start, Last []float64
}

// keepTokens sets the results for each token, if they are kept.
func (s *step) keepTokens() {
	t := s.stats.Tokens
	if t == nil {
		return
	}
	t.Advantages, t.Start = s.result.Advantages, s.before.logprobs
	if t.Start == nil {
		t.Start = t.Last
	}
}

// meanAdvantages returns the mean advantage over the tokens of each trajectory that are trained on and credited; NaN where a trajectory has
// none.
func meanAdvantages(r *batch.Rows, advantages []float64) []float64 {
	means, credited := make([]loss.Mean, r.Trajectories), r.CreditMask()
	for row, of := range r.Trajectory {
		for k := r.Offsets[row]; k < r.Offsets[row+1]; k++ {
			if r.Mask[k] != 0 && credited[k] != 0 && k < len(advantages) {
				means[of].Sum += advantages[k]
				means[of].Count++
			}
		}
	}
	out := make([]float64, len(means))
	for i, m := range means {
		out[i] = m.Sum / m.Count
	}
	return out
}
