package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// turnwise is MT-GRPO (arXiv 2505.11821, section 4): the turns before a trajectory's last turn are credited with its process rewards beside
// the outcome, each compared within the group; the last turn with the outcome alone.
//
//	A = A_outcome + weight A_turn before the last turn, A_outcome in it, then whitened
//
// A trajectory of a single turn is credited with the two together.
type turnwise struct {
	outcome
	// weight multiplies the turns' advantage.
	weight float64
	splitter
	turns, turnAdvantages []float64
	spans                 []lastTurn
}

func (e *turnwise) Estimate(b *Batch, out *Result) error {
	if err := e.layOutBatch(b); err != nil {
		return err
	}
	rewards, outcome, err := e.splitRewards(b, &e.layout)
	if err != nil {
		return err
	}
	final := *b
	final.Rewards = outcome
	if err := e.sumRewards(&final); err != nil {
		return err
	}
	if err := e.sumProcessRewards(b, rewards); err != nil {
		return err
	}
	out.resizeShared(len(b.Mask))
	if err := e.compareOutcomesAndTurns(); err != nil {
		return err
	}
	e.spans = stats.Resize(e.spans, e.layout.trajectoryCount())
	var m stats.Moments
	for k, trajectory := range e.layout.trajectories {
		e.spans[k] = e.findLastTurn(b, e.layout.rowsOf(trajectory))
		earlier, last := e.turnCredits(k)
		m = m.Merge(stats.Moments{N: e.lengths[k] - e.spans[k].tokens, Mean: earlier})
		m = m.Merge(stats.Moments{N: e.spans[k].tokens, Mean: last})
	}
	f := stats.Identity()
	if e.Whiten {
		if f, err = e.chosenWhitening().Of(m); err != nil {
			return err
		}
	}
	off := f.At(0)
	if e.MaskAdvantages {
		off = 0
	}
	return stats.Parallel(e.layout.trajectoryCount(), len(b.Mask), func(lo, hi int) error {
		for k := lo; k < hi; k++ {
			earlier, last := e.turnCredits(k)
			e.fillAdvantages(b, k, f.At(earlier), f.At(last), off, out.Advantages)
		}
		return nil
	})
}

// sumProcessRewards adds up each trajectory's process rewards.
func (e *turnwise) sumProcessRewards(b *Batch, rewards []float64) error {
	n := e.layout.trajectoryCount()
	e.turns, e.turnAdvantages = stats.Resize(e.turns, n), stats.Resize(e.turnAdvantages, n)
	for k, trajectory := range e.layout.trajectories {
		e.turns[k] = 0
		for _, i := range e.layout.rowsOf(trajectory) {
			r, _, err := scoreSingleRow(b, rewards, i, e.MaskRewards)
			if err != nil {
				return tokenFault(b, i, e.MaskRewards, field{"ProcessRewards", rewards})
			}
			e.turns[k] += r
		}
	}
	return nil
}

// compareOutcomesAndTurns fills the outcome's and the turns' advantages, each compared within the group.
func (e *turnwise) compareOutcomesAndTurns() error {
	clear(e.turnAdvantages)
	for g := range e.layout.groupCount() {
		lo := e.layout.groupStart[g]
		members := e.countedMembers(g)
		if err := e.formula(&e.outcome, members); err != nil {
			return err
		}
		kept := lo + e.kept[g]
		members.rewards, members.advantages = e.turns[lo:kept], e.turnAdvantages[lo:kept]
		if err := e.formula(&e.outcome, members); err != nil {
			return err
		}
	}
	return nil
}

// turnCredits returns the advantages of trajectory k's earlier turns, and of its last turn.
func (e *turnwise) turnCredits(k int) (earlier, last float64) {
	earlier = e.advantages[k] + e.weight*e.turnAdvantages[k]
	if e.spans[k].only {
		return earlier, earlier
	}
	return earlier, e.advantages[k]
}

// fillAdvantages writes a trajectory's advantages.
func (e *turnwise) fillAdvantages(b *Batch, k int, earlier, last, off float64, advantages []float64) {
	begins := e.spans[k].begins
	for j, i := range e.layout.rowsOf(e.layout.trajectories[k]) {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		cut := hi
		switch {
		case j == begins.row:
			cut = begins.token
		case j > begins.row:
			cut = lo
		}
		stats.Fill(advantages[lo:cut], b.Mask[lo:cut], earlier, off)
		stats.Fill(advantages[cut:hi], b.Mask[cut:hi], last, off)
	}
}

// lastTurn is the last run of action tokens of a trajectory: where it begins, how many tokens it has, and whether it is the only run.
type lastTurn struct {
	begins place
	tokens float64
	only   bool
}

// place is a token in a row of a trajectory.
type place struct{ row, token int }

// findLastTurn finds a trajectory's last turn, from its end.
func (e *turnwise) findLastTurn(b *Batch, rows []int) lastTurn {
	turn := lastTurn{begins: place{-1, 0}, only: true}
	for j, row := range slices.Backward(rows) {
		for t := b.Offsets[row+1] - 1; t >= b.Offsets[row]; t-- {
			switch {
			case b.Mask[t] != 0 && turn.begins.row >= 0:
				turn.only = false
				return turn
			case b.Mask[t] != 0:
				turn.tokens++
			case turn.tokens > 0 && turn.begins.row < 0:
				turn.begins = place{j, t}
			}
		}
		if turn.tokens > 0 && turn.begins.row < 0 { // a row ends a turn
			turn.begins = place{j, b.Offsets[row]}
		}
	}
	return turn
}
