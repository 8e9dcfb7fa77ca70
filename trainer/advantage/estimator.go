package advantage

import "github.com/weir-rl/weir/trainer/stats"

// Batch is the input of an estimator. Offsets, Mask and Rewards are always set; the other fields where the estimator needs them: a missing
// array is an error that names it.
type Batch struct {
	// Offsets delimit the rows: len = rows + 1, from 0 to the number of tokens.
	Offsets []int
	// Mask is 1 at action tokens, else 0.
	Mask []uint8
	// Rewards a token: the outcome at a row's last action token, process rewards at the token that ends their turn.
	Rewards []float64
	// Group, Trajectory and Step a row: ids of the prompt group and of the trajectory, position in it. A nil Trajectory makes each row a
	// trajectory of its own; a nil Step orders a trajectory's rows as they come. In a run whose trajectories have rewards of single agents,
	// an agent's part of a trajectory has its own id in Trajectory, and the same agent's parts of a prompt group share an id in Group.
	Group      []int
	Trajectory []int
	Step       []int

	// Values a token: the critic's, of the state before the token; nil without a critic.
	Values []float64
	// StateValues a token: at an action token the value of the state that its turn began in, estimated by episodes that go on from there;
	// NaN where nobody could (vineppo). Other entries are not read.
	StateValues []float64
	// Bootstrap a row: the critic's value of the state after a trajectory's last row, where the rollout was cut off. 0 where the rollout
	// ended by itself; nil means that all did.
	Bootstrap []float64
	// Baselines a row: the reward of the greedy rollout of the same prompt (remax).
	Baselines []float64
	// Logprobs and ProbSquares a token: log pi of the token, and the sum over the vocabulary of pi squared
	// (optimal_token_baseline). Without ProbSquares the sum counts as the token's own pi squared, its lower bound.
	Logprobs, ProbSquares []float64
	// Weights a token: importance weights (optimal_token_baseline); nil means 1.
	Weights []float64
	// Tokens are the token ids (gigpo, to tell states apart).
	Tokens []int32
	// Agent and Episode a row: the acting agent of a multi-agent episode, and the episode (rae, hierarchical_grpo). Nil means a single
	// agent, a single episode. In a run Episode is the trajectory, and Agent stands for the agent's name where agents are credited apart,
	// else 0.
	Agent, Episode []int
	// Role a row: the role that its agent plays, by name (hierarchical_grpo), beside Episode, whose ids are the batch's. Nil means none.
	// In a run it is [schemas.Role] of the agent's name where agents are credited apart, else "".
	Role []string

	// The fields from here on are nil in a run of Weir, whose trajectories do not have them: they are for other callers.

	// StepRewards a row: the step's reward. Nil: the sum of its token rewards.
	StepRewards []float64
	// StepValues a row: the critic's value of the state before the row. Nil: the value at its first action token.
	StepValues []float64
	// ProcessRewards a token, apart from Rewards (prime_rloo, mt_grpo). Nil: the Rewards before a trajectory's last action token.
	ProcessRewards []float64
}

// Rows is the number of rows.
func (b *Batch) Rows() int { return max(0, len(b.Offsets)-1) }

// Result has an entry for each token. Advantages and Returns are 0 where the mask is 0, except as [Arithmetic] allows.
type Result struct {
	Advantages []float64
	// Returns are the critic's targets. For estimators that compare whole trajectories they are the advantages, in the same memory.
	Returns []float64
	// AdvantagesOnly asks for no returns, because there is no critic: less memory is touched, and Returns is nil. The caller sets it.
	// Estimators that read Values return Returns all the same.
	AdvantagesOnly bool
}

// resizeApart makes room for advantages and returns apart.
func (r *Result) resizeApart(tokens int) {
	if len(r.Returns) > 0 && len(r.Advantages) > 0 && &r.Returns[0] == &r.Advantages[0] {
		r.Returns = nil
	}
	r.Advantages, r.Returns = stats.Resize(r.Advantages, tokens), stats.Resize(r.Returns, tokens)
}

// resizeShared makes room for advantages that are the returns too.
func (r *Result) resizeShared(tokens int) {
	r.Advantages = stats.Resize(r.Advantages, tokens)
	r.Returns = r.Advantages
	if r.AdvantagesOnly {
		r.Returns = nil
	}
}

// resizeReturns makes room for an estimator without a critic, and returns the place of its returns: apart, or the place of the advantages.
// apart, or where the advantages will stand.
func (r *Result) resizeReturns(tokens int) []float64 {
	if r.AdvantagesOnly {
		r.resizeShared(tokens)
		return r.Advantages
	}
	r.resizeApart(tokens)
	return r.Returns
}

// Estimator turns rewards into advantages. It does not keep its arguments; out's slices are reused when large enough. A fault in the batch
// is a *stats.BatchError that names the field and the row. An estimator reuses scratch memory from call to call, so it must not be called
// by several goroutines at once.
type Estimator interface {
	// Name in configuration.
	Name() string
	Estimate(b *Batch, out *Result) error
}

// Stateful is an estimator that learns from batch to batch, whose state a checkpoint keeps.
type Stateful interface {
	Estimator
	// State returns the estimator's state as JSON; nil when it is that of a new estimator.
	State() ([]byte, error)
	// Restore replaces the estimator's state by a state that State returned; nil is the state of a new estimator.
	Restore(state []byte) error
}

// checkRewards checks the fields that every estimator reads.
func checkRewards(b *Batch) error {
	if err := stats.CheckRows(b.Offsets, b.Mask); err != nil {
		return err
	}
	return stats.CheckLength("Rewards", b.Rewards, len(b.Mask))
}

// checkOptional checks the length of an array that may be nil.
func checkOptional[T any](field string, x []T, n int) error {
	if x == nil {
		return nil
	}
	return stats.CheckLength(field, x, n)
}

// field is a per-token array by its name in Batch.
type field struct {
	name string
	x    []float64
}

// tokenFault names the first value of row i that is not finite; failing that, the first field overflowed.
// Masked tokens are passed over when masked is set.
func tokenFault(b *Batch, i int, masked bool, fields ...field) error {
	for _, f := range fields {
		for t := b.Offsets[i]; t < b.Offsets[i+1]; t++ {
			if f.x != nil && (b.Mask[t] != 0 || !masked) && !stats.Finite(f.x[t]) {
				return stats.Fault(f.name, i, "token %d is %v", t-b.Offsets[i], f.x[t])
			}
		}
	}
	return stats.Fault(fields[0].name, i, "the sum overflows: the values are too large")
}
