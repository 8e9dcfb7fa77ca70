package learner

import "github.com/weir-rl/weir/trainer/batch"

// Tokens is what a step computed for each token of its batch, for people to look at. Each array has one entry a token of the rows,
// and nobody writes to them any more.
type Tokens struct {
	// Rows are the batch laid out.
	Rows *batch.Rows
	// Advantages are what the loss was given.
	Advantages []float64
	// Start are the log-probabilities under the policy at the step's start, Last those when a token was last trained on; before
	// an optimizer step, where the step takes one alone, they are the same.
	Start, Last []float64
}

// keepTokens gives out what the step computed, where that is asked for.
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
