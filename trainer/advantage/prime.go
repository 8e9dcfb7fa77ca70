package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// primeRLOO is leave-one-out over two rewards, dense process rewards and the outcome, summed to returns (PRIME,
// arXiv 2502.01456, equation 5). With n rows in a group and m_j the mean process reward of row j:
//
//	r_t = process (p_t n - sum_j m_j) / (n - 1) + [t last] outcome (R_i n - sum_j R_j) / (n - 1)
//	G_t = sum_{s >= t} r_s,  A = whiten(G)
type primeRLOO struct {
	name    string
	options Options
	layout  layout
	splitter
	// One entry a row.
	rewards, means []float64
	parts          []stats.Moments
}

func (e *primeRLOO) Name() string { return e.name }

func (e *primeRLOO) Estimate(b *Batch, out *Result) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	rows := *b
	rows.Trajectory, rows.Step = nil, nil
	if err := e.layout.build(&rows); err != nil {
		return err
	}
	if err := e.layout.buildGroups(b.Group, b.Rows()); err != nil {
		return err
	}
	process, rewards, err := e.split(b, &e.layout)
	if err != nil {
		return err
	}
	e.rewards, e.means = stats.Resize(e.rewards, b.Rows()), stats.Resize(e.means, b.Rows())
	e.parts = stats.Resize(e.parts, b.Rows())
	returns := out.raw(len(b.Mask))
	var m stats.Moments
	err = stats.Parallel(e.layout.groups(), len(b.Mask), func(lo, hi int) error {
		for g := lo; g < hi; g++ {
			if err := e.group(b, e.layout.members(g), rewards, process, returns); err != nil {
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
	if err := e.options.whiten(returns, out.Advantages, b.Mask, m); err != nil {
		return err
	}
	if e.options.MaskReturns && !e.options.MaskAdvantages && !out.AdvantagesOnly {
		stats.Mask(returns, b.Mask) // only now, as the advantages carry what stood there
	}
	return nil
}

// group fills the returns of a group's rows. A group of one has nothing to leave out: its rewards stand, or
// count for nothing, as Single says.
func (e *primeRLOO) group(b *Batch, rows []int, rewards, processRewards, returns []float64) error {
	n, process, outcome := 0.0, 0.0, 0.0
	for _, i := range rows {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		reward, length, err := scoreRow(b, rewards, i, e.options.MaskRewards)
		if err != nil {
			return err
		}
		sum, _ := stats.Sum(processRewards[lo:hi], b.Mask[lo:hi])
		e.rewards[i], e.means[i] = reward, stats.Divide(sum, length)
		if !stats.Finite(e.means[i]) {
			return tokenFault(b, i, true, field{"ProcessRewards", processRewards})
		}
		if length == 0 && !e.options.CountEmpty {
			continue
		}
		n++
		process, outcome = process+e.means[i], outcome+e.rewards[i]
	}
	// leaveOneOut is reward*scale - sum*share.
	scale, share := n/(n-1), 1/(n-1)
	if n <= 1 {
		scale, share = 1, 1
		if e.options.Single == SingleReward {
			share = 0
		}
	}
	for _, i := range rows {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		last := e.options.OutcomeWeight * (e.rewards[i]*scale - outcome*share)
		e.parts[i] = e.returns(b.Mask[lo:hi], processRewards[lo:hi], scale, process*share, last, returns[lo:hi])
		if e.options.MaskReturns && e.options.MaskAdvantages {
			stats.Mask(returns[lo:hi], b.Mask[lo:hi])
		}
	}
	return nil
}

// returns sums a row's rewards backward; the outcome's part, last, stands at its last action token. It gives the
// moments over action tokens.
func (e *primeRLOO) returns(mask []uint8, process []float64, scale, baseline, last float64, out []float64) (m stats.Moments) {
	scale, baseline = scale*e.options.ProcessWeight, baseline*e.options.ProcessWeight
	running := 0.0
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
	return m
}
