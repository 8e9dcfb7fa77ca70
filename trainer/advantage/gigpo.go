package advantage

import (
	"github.com/weir-rl/weir/trainer/stats"
)

// gigpo adds to the trajectory's advantage within its group that of each turn among the group's turns that began in
// the same state (arXiv 2505.10978, equations 3 and 7). A turn is a run of action tokens.
//
//	A = A_episode + weight A_turn,  A_turn from the discounted returns G_k = r_k + gamma G_{k+1} of turns with one anchor
//
// A turn whose state no other turn shares has turn advantage 0.
type gigpo struct {
	outcome
	turns []turn
	// states holds, for each turn, its state; the turns of state s are order[start[s]:start[s+1]].
	states, order, start []int
	returns, relative    []float64
}

// turn is a run of action tokens, [lo, hi), after an observation from before on.
type turn struct {
	before, lo, hi    int
	trajectory, group int
	anchor            uint64
	// value is the sum of the run's rewards, then the discounted return.
	value, advantage float64
}

func newGiGPO(name string, o Options) Estimator {
	return &gigpo{outcome: outcome{name: name, options: o, formula: grpo}}
}

func (e *gigpo) Estimate(b *Batch, out *Result) error {
	if err := e.compare(b); err != nil {
		return err
	}
	if b.Anchor == nil {
		if err := stats.CheckLength("Tokens", b.Tokens, len(b.Mask)); err != nil {
			return err
		}
	} else if err := stats.CheckLength("Anchor", b.Anchor, len(b.Mask)); err != nil {
		return err
	}
	out.share(len(b.Mask))
	e.turns = e.turns[:0]
	for k, trajectory := range e.layout.trajectories {
		e.cut(b, k, e.layout.rowsOf(trajectory), e.layout.group[trajectory], out.Advantages)
	}
	err := stats.Parallel(len(e.turns), len(b.Mask), func(lo, hi int) error {
		for k := lo; k < hi; k++ {
			t := &e.turns[k]
			t.anchor = e.anchor(b, t.before, t.lo)
			t.value = stats.Total(b.Rewards[t.lo:t.hi])
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.discount()
	if err := e.compareStates(); err != nil {
		return err
	}
	return stats.Parallel(len(e.turns), len(b.Mask), func(lo, hi int) error {
		for _, t := range e.turns[lo:hi] {
			clear(out.Advantages[t.before:t.lo])
			stats.Set(out.Advantages[t.lo:t.hi], e.advantages[t.trajectory]+e.options.StepWeight*t.advantage)
		}
		return nil
	})
}

// cut appends a trajectory's turns, and clears what no turn follows.
func (e *gigpo) cut(b *Batch, k int, rows []int, group int, advantages []float64) {
	for _, i := range rows {
		before := b.Offsets[i] // where the observation before the next turn begins
		for lo := before; lo < b.Offsets[i+1]; {
			n, acts := stats.FirstRun(b.Mask[lo:b.Offsets[i+1]])
			if acts {
				e.turns = append(e.turns, turn{before: before, lo: lo, hi: lo + n, trajectory: k, group: group})
				before = lo + n
			}
			lo += n
		}
		clear(advantages[before:b.Offsets[i+1]])
	}
}

// discount turns the turns' rewards into returns.
func (e *gigpo) discount() {
	for k := len(e.turns) - 2; k >= 0; k-- {
		if e.turns[k].trajectory == e.turns[k+1].trajectory {
			e.turns[k].value += e.options.StepGamma * e.turns[k+1].value
		}
	}
}

// compareStates fills the turns' advantages.
func (e *gigpo) compareStates() error {
	single := e.options.Single
	e.options.Single = SingleZero
	defer func() { e.options.Single = single }()
	for s := range e.groupStates() {
		members := e.order[e.start[s]:e.start[s+1]]
		e.returns, e.relative = stats.Resize(e.returns, len(members)), stats.Resize(e.relative, len(members))
		for j, k := range members {
			e.returns[j] = e.turns[k].value
		}
		if err := grpo(&e.outcome, group{rewards: e.returns, advantages: e.relative}); err != nil {
			return err
		}
		for j, k := range members {
			e.turns[k].advantage = e.relative[j]
		}
	}
	return nil
}

// anchor is the state that the turn from token at began in: the caller's name for it, or a hash of the observation
// that led there.
func (e *gigpo) anchor(b *Batch, before, at int) uint64 {
	if b.Anchor != nil {
		return uint64(b.Anchor[at])
	}
	h := uint64(0xcbf29ce484222325)
	for _, id := range b.Tokens[before:at] {
		h = (h ^ uint64(uint32(id))) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// groupStates sorts the turns by (prompt group, anchor) and returns how many such states there are.
func (e *gigpo) groupStates() int {
	type state struct {
		group  int
		anchor uint64
	}
	ids := map[state]int{}
	e.states = stats.Resize(e.states, len(e.turns))
	for k, t := range e.turns {
		s := state{t.group, t.anchor}
		if _, ok := ids[s]; !ok {
			ids[s] = len(ids)
		}
		e.states[k] = ids[s]
	}
	e.order, e.start = bucket(e.states, len(ids), e.order, e.start)
	return len(ids)
}
