package advantage

// Facts are the facts that a trainer needs about an estimator before it runs. The zero value describes an estimator that reads the rewards
// alone, and learns from groups of any size.
type Facts struct {
	// Requires names the fields of Batch, beside Offsets, Mask and Rewards, without which the estimator fails. In a run there are always
	// Group, Trajectory, Step, Tokens, Agent and Episode; Logprobs and Baselines (a further, greedy rollout for each group) where they are
	// named here; Values with a critic, without which the configuration is refused;
	// and StateValues, with which producers then have to send their trajectories. Other fields are refused.
	Requires []string
	// Improves names the fields of Batch that the estimator reads where they are set, and approximates where they are nil. The trainer sets
	// ProbSquares and Weights where they are named here and the engine and the loss provide them.
	Improves []string
	// LeastGroup is the size of the smallest group that the estimator accepts without an error. 0 means 1.
	LeastGroup int
	// LearnsFrom is the size of the smallest group that the estimator learns from under its keys: every trajectory of
	// a smaller group gets advantage 0, whatever its reward. 0 means 1.
	LearnsFrom int
	// ByTurns is set if the estimator tells the turns of a trajectory apart, or where it ends, by the mask, which a run must then keep at 0
	// for the output of tools.
	ByTurns bool
	// OverAnyTokens is set if a sampled token has the same advantage whether or not the mask has the output of tools beside it: an
	// estimator that compares whole trajectories.
	OverAnyTokens bool
	// Process is set if the estimator is made for process rewards, and is a simpler estimator without them.
	Process bool
}

// FactsOf are the facts of the named estimator, stock or foreign, under its keys; nil keys are the defaults. They are the zero value for an
// unknown name, and for keys of another estimator. LeastGroup and LearnsFrom are at least 1.
func FactsOf(name string, keys any, foreign ...Foreign) Facts {
	b, err := findBuilder(name, foreign)
	if err != nil {
		return Facts{}
	}
	if keys, err = b.fillKeys(name, keys); err != nil {
		return Facts{}
	}
	f := b.facts(keys)
	f.LeastGroup, f.LearnsFrom = max(1, f.LeastGroup), max(1, f.LearnsFrom)
	return f
}
