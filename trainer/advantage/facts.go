package advantage

import "slices"

// Facts are what a trainer must know of an estimator before it runs. The zero value is that of an estimator that reads
// the rewards alone, and learns from groups of any size.
type Facts struct {
	// Requires names the fields of Batch, beside Offsets, Mask and Rewards, without which the estimator fails. In a run
	// there are always Group, Trajectory, Step, Tokens, Agent and Episode; Logprobs and Baselines (one greedy rollout more a group) where
	// they are named here; and Values with a critic, without which the configuration is refused. Other fields are refused.
	Requires []string
	// Improves names the fields of Batch that the estimator reads where they are set, and approximates where they are nil.
	// The trainer sets ProbSquares and Weights where they are named here and the engine and the loss give them.
	Improves []string
	// LeastGroup is the size of the smallest group that the estimator takes without an error. 0 means 1.
	LeastGroup int
	// LearnsFrom is the size of the smallest group that the estimator learns from under these options: every trajectory of
	// a smaller group gets advantage 0, whatever its reward. 0 means 1.
	LearnsFrom int
	// ByTurns says that the estimator tells the turns of a trajectory apart by the mask, which a run must then keep at 0
	// for what tools returned.
	ByTurns bool
	// Process says that the estimator is made for process rewards, and is a simpler one without them.
	Process bool
	// Reads names the options, by key, that change the result; a run that sets any other is told that nothing reads it.
	Reads []string
}

// from is f of an estimator that learns from groups of n and more.
func (f Facts) from(n int) Facts {
	f.LearnsFrom = n
	return f
}

// FactsOf are the facts of the named estimator, stock or foreign, under these options; of an unknown name the zero value.
// LeastGroup and LearnsFrom are at least 1, and Reads is sorted.
//
// An option that matters only beside some values of others counts as read, but for those of bilevel that its two credits
// leave out.
func FactsOf(name string, o Options, foreign ...Foreign) Facts {
	b, err := find(name, foreign)
	if err != nil {
		return Facts{}
	}
	f := b.facts
	f.Reads = append(slices.Clone(f.Reads), "normalize_process")
	if b.under != nil {
		b.under(o, &f)
	}
	slices.Sort(f.Reads)
	f.Reads = slices.Compact(f.Reads)
	f.LeastGroup, f.LearnsFrom = max(1, f.LeastGroup), max(1, f.LearnsFrom)
	return f
}

// Requires is that of the named stock estimator's Facts.
func Requires(name string, o Options) []string { return FactsOf(name, o).Requires }

// Improves is that of the named stock estimator's Facts.
func Improves(name string) []string { return FactsOf(name, DefaultOptions()).Improves }

// LeastGroup is that of the named stock estimator's Facts.
func LeastGroup(name string) int { return FactsOf(name, DefaultOptions()).LeastGroup }

// LearnsFrom is that of the named stock estimator's Facts.
func LearnsFrom(name string, o Options) int { return FactsOf(name, o).LearnsFrom }

// Reads is that of the named stock estimator's Facts.
func Reads(name string, o Options) []string { return FactsOf(name, o).Reads }
