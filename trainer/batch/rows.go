package batch

import (
	"math/rand/v2"
	"slices"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
)

// Rows are segments laid end to end: row i is the tokens [Offsets[i], Offsets[i+1]). Segments without a sampled token are left out, because
// nothing of them is trained on.
type Rows struct {
	Offsets []int
	// One entry a token. Rewards holds the outcome at the last sampled token of the part (see Part) and process
	// rewards at the token that ends their turn. Behaviour is the sampling policy's log-probability.
	Tokens    []int32
	Mask      []uint8
	Versions  []int32
	Behaviour []float64
	Rewards   []float64
	// StateValues are the values of the states that the tokens' turns began in, NaN where nobody could estimate it, 0
	// at other tokens; nil unless every trajectory brings values.
	StateValues []float64
	// Seconds are the wall-clock of the tool call that the token's turn made; 0 where there was none.
	Seconds []float64
	// Credit is 1 at the tokens that advantages are estimated over, which are also the tokens that a critic learns at; nil where these are the
	// tokens of Mask.
	Credit []uint8
	// One entry a row. Group and Trajectory count from 0 in the batch, Step within the trajectory.
	Group       []int
	Trajectory  []int
	Step        []int
	Temperature []float32
	// Part is the unit that advantages take as a trajectory, and PartGroup as its group. They equal Trajectory and Group except in groups
	// whose trajectories have rewards of single agents. There a part is an agent's segments in a trajectory, and a part's group is the same
	// agent's parts in the trajectories of the group. Parts and their groups count from 0 in the batch. Peers is how many parts the part's
	// group has, including itself; 0 where parts are whole trajectories.
	Part, PartGroup, Peers []int
	// Agent is a number that stands for the name of the agent whose part the row is of; 0 where parts are whole trajectories.
	Agent []int
	// Role is the role of that agent: see [schemas.Role]. "" where parts are whole trajectories.
	Role []string
	// Stop is why the row's trajectory ended.
	Stop []schemas.StopReason
	// Baselines are the returns of the greedy rollouts of the rows' groups; nil unless every group has a baseline.
	Baselines []float64
	// Trajectories and Groups are their numbers in the batch.
	Trajectories, Groups int
}

// NewRows lays out the members of a batch that are trained on.
func NewRows(b *Batch) *Rows {
	r := &Rows{Offsets: []int{0}, Groups: len(b.Groups)}
	bare := slices.ContainsFunc(b.Groups, func(g Taken) bool { return g.Baseline == nil })
	l := &rowBuilder{Rows: r, baselines: !bare, values: b.haveValues()}
	for _, group := range b.Groups {
		l.beginGroup(group)
		for i := range group.Members {
			if !group.Members[i].PassedOver {
				l.addMember(&group.Members[i])
			}
		}
		l.group++
	}
	for _, g := range r.PartGroup {
		r.Peers = append(r.Peers, l.peers[g])
	}
	return r
}

// haveValues reports whether every trajectory that is trained on brings the values of its states.
func (b *Batch) haveValues() bool {
	trained := 0
	for _, g := range b.Groups {
		for i := range g.Members {
			if g.Members[i].PassedOver {
				continue
			}
			if trained++; len(g.Members[i].Trajectory.Values) == 0 {
				return false
			}
		}
	}
	return trained > 0
}

// Unmasked are the rows with every token trained on but the first of each row and the tokens with which a row begins as the row before it
// in its part: each token is trained on once. tools are the tokens, of all that are trained on, that no policy sampled. It shows, for
// comparison, a trainer without action masks.
func (r *Rows) Unmasked() (unmasked *Rows, tools []int) {
	out := *r
	out.Mask = slices.Clone(r.Mask)
	last := map[int]int{} // the row before, of each part
	for i := range r.Offsets[1:] {
		first := r.Offsets[i] + 1
		if before, ok := last[r.Part[i]]; ok {
			first = max(first, r.Offsets[i]+r.countRepeated(before, i))
		}
		last[r.Part[i]] = i
		for j := first; j < r.Offsets[i+1]; j++ {
			if r.Mask[j] == 0 {
				out.Mask[j] = 1
				tools = append(tools, j)
			}
		}
	}
	return &out, tools
}

// countRepeated counts the tokens with which a row begins as the row before does. Each stands behind the same tokens in both.
func (r *Rows) countRepeated(before, row int) int {
	a, b := r.Tokens[r.Offsets[before]:r.Offsets[before+1]], r.Tokens[r.Offsets[row]:r.Offsets[row+1]]
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// CreditedOver are the rows with advantages estimated over the tokens of another mask than the policy is trained on.
func (r *Rows) CreditedOver(mask []uint8) *Rows {
	out := *r
	out.Credit = mask
	return &out
}

// CreditMask is 1 at the tokens that advantages are estimated over.
func (r *Rows) CreditMask() []uint8 {
	if r.Credit == nil {
		return r.Mask
	}
	return r.Credit
}

// WithBehaviour are the rows with other log-probabilities of the sampling policy, one entry a token.
func (r *Rows) WithBehaviour(logprobs []float64) *Rows {
	out := *r
	out.Behaviour = logprobs
	return &out
}

// WithRewards are the rows with other rewards, one entry a token.
func (r *Rows) WithRewards(rewards []float64) *Rows {
	out := *r
	out.Rewards = rewards
	return &out
}

// Silenced are the rows with some trajectories, by their number in the batch, out of the loss: their rows have no action any more.
func (r *Rows) Silenced(trajectories map[int]bool) *Rows {
	out := *r
	out.Mask, out.Credit = slices.Clone(r.Mask), slices.Clone(r.Credit)
	for row, t := range r.Trajectory {
		if !trajectories[t] {
			continue
		}
		clear(out.Mask[r.Offsets[row]:r.Offsets[row+1]])
		if out.Credit != nil {
			clear(out.Credit[r.Offsets[row]:r.Offsets[row+1]])
		}
	}
	return &out
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.Offsets) - 1 }

// Length is the number of tokens of a row.
func (r *Rows) Length(row int) int { return r.Offsets[row+1] - r.Offsets[row] }

// All lists every row.
func (r *Rows) All() []int {
	all := make([]int, r.Len())
	for i := range all {
		all[i] = i
	}
	return all
}

// Minibatches deals the trajectories that have an action, shuffled, into at most n parts of nearly equal count, and lists each part's rows
// in ascending order. Rows of a trajectory stay together; groups need not.
func (r *Rows) Minibatches(n int, rng *rand.Rand) [][]int {
	rows := make([][]int, r.Trajectories)
	for row, t := range r.Trajectory {
		if slices.Contains(r.Mask[r.Offsets[row]:r.Offsets[row+1]], 1) {
			rows[t] = append(rows[t], row)
		}
	}
	rows = slices.DeleteFunc(rows, func(of []int) bool { return len(of) == 0 })
	n = min(n, len(rows))
	out := make([][]int, n)
	for i, t := range rng.Perm(len(rows)) {
		part := i * n / len(rows)
		out[part] = append(out[part], rows[t]...)
	}
	for _, part := range out {
		slices.Sort(part)
	}
	return out
}

// ActionTokens counts the sampled tokens of some rows.
func (r *Rows) ActionTokens(rows []int) int {
	n := 0
	for _, row := range rows {
		for _, m := range r.Mask[r.Offsets[row]:r.Offsets[row+1]] {
			n += int(m)
		}
	}
	return n
}

// GPU packs some rows for an engine, which is asked for outputs at the tokens that are trained on and at the tokens that advantages are
// estimated over.
func (r *Rows) GPU(rows []int) *gpu.Batch {
	b := &gpu.Batch{Offsets: r.PackedOffsets(rows), Tokens: Gather(r, rows, r.Tokens), Mask: Gather(r, rows, r.Mask)}
	for i, on := range Gather(r, rows, r.Credit) {
		b.Mask[i] |= on
	}
	for _, row := range rows {
		b.Temperature = append(b.Temperature, r.Temperature[row])
	}
	return b
}

// PackedOffsets returns the offsets of some rows packed end to end: one entry more than rows.
func (r *Rows) PackedOffsets(rows []int) []int {
	out := make([]int, 1, len(rows)+1)
	for _, row := range rows {
		out = append(out, out[len(out)-1]+r.Length(row))
	}
	return out
}

// Gather copies the entries of some rows, in that order, from an array with one entry a token; nil stays nil.
func Gather[T any](r *Rows, rows []int, from []T) []T {
	if from == nil {
		return nil
	}
	var out []T
	for _, row := range rows {
		out = append(out, from[r.Offsets[row]:r.Offsets[row+1]]...)
	}
	return out
}

// Pick copies the entries of some rows from an array with one entry a row.
func Pick[T any](rows []int, from []T) []T {
	out := make([]T, len(rows))
	for i, row := range rows {
		out[i] = from[row]
	}
	return out
}

// Scatter is the inverse of Gather: it puts packed entries back in their places.
func Scatter[T, U ~float32 | ~float64](r *Rows, rows []int, packed []T, to []U) {
	at := 0
	for _, row := range rows {
		for i := r.Offsets[row]; i < r.Offsets[row+1]; i++ {
			to[i] = U(packed[at])
			at++
		}
	}
}
