package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// primeRLOO is leave-one-out over two rewards, dense process rewards and the outcome, summed to returns (PRIME,
// arXiv 2502.01456, equation 5). With n trajectories in a group and m_j the mean process reward of trajectory j:
//
//	r_t = process (p_t n - sum_j m_j) / (n - 1) + [t last] outcome (R_i n - sum_j R_j) / (n - 1)
//	G_t = sum_{s >= t} r_s,  A = whiten(G)
//
// The sum runs over all rows of the trajectory.
type primeRLOO struct {
	name string
	Arithmetic
	PrimeRLOO
	layout layout
	splitter
	// An entry for each trajectory.
	rewards, means []float64
	parts          []stats.Moments
}

func (e *primeRLOO) Name() string { return e.name }

func (e *primeRLOO) Estimate(b *Batch, out *Result) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if err := e.layout.buildRows(b); err != nil {
		return err
	}
	if err := e.layout.buildGroups(b.Group, b.Rows()); err != nil {
		return err
	}
	process, rewards, err := e.splitRewards(b, &e.layout)
	if err != nil {
		return err
	}
	n := e.layout.trajectoryCount()
	e.rewards, e.means, e.parts = stats.Resize(e.rewards, n), stats.Resize(e.means, n), stats.Resize(e.parts, n)
	returns := out.resizeReturns(len(b.Mask))
	var m stats.Moments
	err = stats.Parallel(e.layout.groupCount(), len(b.Mask), func(lo, hi int) error {
		for g := lo; g < hi; g++ {
			if err := e.fillReturns(b, e.layout.groupMembers(g), rewards, process, returns); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, part := range e.parts {
		m = m.Merge(part)
	}
	if err := (&whitener{e.Arithmetic, e.Whitening}).whitenTokens(returns, out.Advantages, b.Mask, m); err != nil {
		return err
	}
	if e.MaskReturns && !e.MaskAdvantages && !out.AdvantagesOnly {
		stats.Mask(returns, b.Mask) // only now, as the advantages read the masked entries
	}
	return nil
}

// fillReturns fills the returns of a group's trajectories. A group of one trajectory has no others: its rewards stand, or count as 0, by
// the key single.
func (e *primeRLOO) fillReturns(b *Batch, members []int, rewards, processRewards, returns []float64) error {
	n, process, outcome := 0.0, 0.0, 0.0
	for _, k := range members {
		length, err := e.sumTrajectory(b, k, rewards, processRewards)
		if err != nil {
			return err
		}
		if length == 0 && !e.CountEmpty {
			continue
		}
		n++
		process, outcome = process+e.means[k], outcome+e.rewards[k]
	}
	// leaveOneOut is reward*scale - sum*share.
	scale, share := n/(n-1), 1/(n-1)
	if n <= 1 {
		scale, share = 1, 1
		if e.Single == SingleReward {
			share = 0
		}
	}
	for _, k := range members {
		e.parts[k] = stats.Moments{}
		from := primeState{last: e.OutcomeWeight * (e.rewards[k]*scale - outcome*share)}
		for _, i := range slices.Backward(e.layout.rowsOf(k)) {
			lo, hi := b.Offsets[i], b.Offsets[i+1]
			var m stats.Moments
			from, m = e.rowReturns(b.Mask[lo:hi], processRewards[lo:hi], scale, process*share, from, returns[lo:hi])
			e.parts[k] = e.parts[k].Merge(m)
			if e.MaskReturns && e.MaskAdvantages {
				stats.Mask(returns[lo:hi], b.Mask[lo:hi])
			}
		}
	}
	return nil
}

// sumTrajectory notes trajectory k's outcome and its mean process reward, and counts its action tokens.
func (e *primeRLOO) sumTrajectory(b *Batch, k int, rewards, processRewards []float64) (length float64, err error) {
	rows, process := e.layout.rowsOf(k), 0.0
	if e.rewards[k], length, err = scoreRows(b, rewards, rows, e.MaskRewards); err != nil {
		return 0, err
	}
	for _, i := range rows {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		sum, _ := stats.Sum(processRewards[lo:hi], b.Mask[lo:hi])
		if process += sum; !stats.Finite(process) {
			return 0, tokenFault(b, i, true, field{"ProcessRewards", processRewards})
		}
	}
	e.means[k] = stats.Divide(process, length)
	return length, nil
}

// primeState is the state that the sum carries backward: the return so far, and the outcome's part until the last action token has taken
// it.
type primeState struct{ running, last float64 }

// rowReturns sums a row's rewards backward, from the state after the row. It returns the state for the row before it, and the moments over
// action tokens. It gives where the row before it goes on from, and the moments over action tokens.
func (e *primeRLOO) rowReturns(mask []uint8, process []float64, scale, baseline float64, from primeState, out []float64) (to primeState, m stats.Moments) {
	scale, baseline = scale*e.ProcessWeight, baseline*e.ProcessWeight
	running, last := from.running, from.last
	for hi := len(mask); hi > 0; {
		lo, acts := stats.LastRun(mask[:hi])
		rewards, returns := process[lo:hi], out[lo:hi]
		hi = lo
		if !acts {
			stats.Set(returns, running)
			continue
		}
		running, last = running+last, 0
		for t, p := range slices.Backward(rewards) {
			running += p*scale - baseline
			returns[t] = running
		}
		m = m.Merge(stats.MomentsOfAll(returns))
	}
	return primeState{running, last}, m
}
