package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// turnwise is MT-GRPO (arXiv 2505.11821, section 4): the turns before a trajectory's last one are credited with
// its process rewards beside the outcome, each compared within the group; the last turn with the outcome alone.
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
	if err := e.collect(b); err != nil {
		return err
	}
	rewards, outcome, err := e.split(b, &e.layout)
	if err != nil {
		return err
	}
	final := *b
	final.Rewards = outcome
	if err := e.sum(&final); err != nil {
		return err
	}
	n := e.layout.count()
	e.turns, e.turnAdvantages = stats.Resize(e.turns, n), stats.Resize(e.turnAdvantages, n)
	for k, trajectory := range e.layout.trajectories {
		e.turns[k] = 0
		for _, i := range e.layout.rowsOf(trajectory) {
			r, _, err := scoreRow(b, rewards, i, e.MaskRewards)
			if err != nil {
				return tokenFault(b, i, e.MaskRewards, field{"ProcessRewards", rewards})
			}
			e.turns[k] += r
		}
	}
	out.share(len(b.Mask))
	clear(e.turnAdvantages)
	for g := range e.layout.groups() {
		lo := e.layout.groupStart[g]
		members := e.members(g)
		if err := e.formula(&e.outcome, members); err != nil {
			return err
		}
		kept := lo + e.kept[g]
		members.rewards, members.advantages = e.turns[lo:kept], e.turnAdvantages[lo:kept]
		if err := e.formula(&e.outcome, members); err != nil {
			return err
		}
	}
	e.spans = stats.Resize(e.spans, e.layout.count())
	var m stats.Moments
	for k, trajectory := range e.layout.trajectories {
		e.spans[k] = e.span(b, e.layout.rowsOf(trajectory))
		earlier, last := e.credits(k)
		m = m.Merge(stats.Moments{N: e.lengths[k] - e.spans[k].tokens, Mean: earlier})
		m = m.Merge(stats.Moments{N: e.spans[k].tokens, Mean: last})
	}
	f := stats.Identity()
	if e.Whiten {
		if f, err = e.whitening().Of(m); err != nil {
			return err
		}
	}
	off := f.At(0)
	if e.MaskAdvantages {
		off = 0
	}
	return stats.Parallel(e.layout.count(), len(b.Mask), func(lo, hi int) error {
		for k := lo; k < hi; k++ {
			earlier, last := e.credits(k)
			e.fill(b, k, f.At(earlier), f.At(last), off, out.Advantages)
		}
		return nil
	})
}

// credits are what trajectory k's earlier turns get, and its last.
func (e *turnwise) credits(k int) (earlier, last float64) {
	earlier = e.advantages[k] + e.weight*e.turnAdvantages[k]
	if e.spans[k].only {
		return earlier, earlier
	}
	return earlier, e.advantages[k]
}

// fill writes a trajectory's advantages.
func (e *turnwise) fill(b *Batch, k int, earlier, last, off float64, advantages []float64) {
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

// lastTurn is the last run of action tokens of a trajectory: where it begins, how many tokens it has, and whether
// there is no other.
type lastTurn struct {
	begins place
	tokens float64
	only   bool
}

// place is a token of one of a trajectory's rows.
type place struct{ row, token int }

// span finds a trajectory's last turn, from its end.
func (e *turnwise) span(b *Batch, rows []int) lastTurn {
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
