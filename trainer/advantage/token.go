package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// tokenwise gives each action token an advantage of its own, by a recursion that runs backward over the action
// tokens of a trajectory, across its rows. Tool output takes no time: gamma counts action tokens.
type tokenwise struct {
	name    string
	options tokenOptions
	// recursion fills a row of the result and returns the state for the row before it, and the moments of the advantages that may be
	// whitened.
	recursion func(o *tokenOptions, r tokenRow, from state) (state, stats.Moments)
	values    bool // reads Values
	baselines bool // reads Baselines
	// same is set if the advantages before whitening are the returns.
	same   bool
	layout layout
	// parts are moments of the advantages, with an entry for each trajectory.
	parts []stats.Moments
}

// tokenOptions are the options of the recursions.
type tokenOptions struct {
	whitener
	gamma, lambda float64
}

// tokenRow is a row: slices with an entry for each token.
type tokenRow struct {
	mask                []uint8
	rewards, values     []float64
	baseline            float64
	advantages, returns []float64
}

// state is the state that a recursion carries backward: the return or advantage so far, and the value of the next state.
type state struct{ running, next float64 }

func (e *tokenwise) Name() string { return e.name }

func (e *tokenwise) Estimate(b *Batch, out *Result) error {
	if err := e.checkBatch(b); err != nil {
		return err
	}
	o := e.options
	var returns []float64
	if e.values {
		out.resizeApart(len(b.Mask))
		returns = out.Returns
	} else {
		returns = out.resizeReturns(len(b.Mask))
		o.MaskReturns = o.MaskReturns && !out.AdvantagesOnly
	}
	n := e.layout.trajectoryCount()
	e.parts = stats.Resize(e.parts, n)
	err := stats.Parallel(n, len(b.Mask), func(lo, hi int) error {
		for k := lo; k < hi; k++ {
			var err error
			if e.parts[k], err = e.runTrajectory(b, &o, e.layout.rowsOf(k), out.Advantages, returns); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !o.Whiten {
		return err
	}
	var m stats.Moments
	for _, part := range e.parts {
		m = m.Merge(part)
	}
	from := out.Advantages
	if e.same {
		from = returns
	}
	if err := o.whitenTokens(from, out.Advantages, b.Mask, m); err != nil {
		return err
	}
	if e.same && o.MaskReturns && !o.MaskAdvantages {
		stats.Mask(returns, b.Mask) // only now, as the advantages read the masked entries
	}
	return nil
}

// runTrajectory runs the recursion over a trajectory's rows, last to first, and returns the moments of the advantages.
func (e *tokenwise) runTrajectory(b *Batch, o *tokenOptions, rows []int, advantages, returns []float64) (m stats.Moments, err error) {
	var s state
	if b.Bootstrap != nil {
		s.next = b.Bootstrap[rows[len(rows)-1]]
	}
	for _, i := range slices.Backward(rows) {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		r := tokenRow{
			mask: b.Mask[lo:hi], rewards: b.Rewards[lo:hi],
			advantages: advantages[lo:hi], returns: returns[lo:hi],
		}
		if e.values {
			r.values = b.Values[lo:hi]
		}
		if e.baselines {
			r.baseline = b.Baselines[i]
		}
		var row stats.Moments
		s, row = e.recursion(o, r, s)
		if !stats.Finite(s.running) || !stats.Finite(s.next) {
			return m, tokenFault(b, i, o.MaskRewards, field{"Rewards", b.Rewards}, field{"Values", b.Values})
		}
		m = m.Merge(row)
		e.maskRow(o, r)
	}
	return m, nil
}

// maskRow masks a row, which is still in the cache, unless it is to be whitened and masked later.
func (e *tokenwise) maskRow(o *tokenOptions, r tokenRow) {
	later := o.Whiten
	if !later {
		if e.same {
			copy(r.advantages, r.returns)
		}
		if o.MaskAdvantages {
			stats.Mask(r.advantages, r.mask)
		}
	}
	if o.MaskReturns && (o.CarryMasked || e.baselines) && !(later && e.same && !o.MaskAdvantages) {
		stats.Mask(r.returns, r.mask)
	}
}

// checkBatch checks shapes and lays the batch out.
func (e *tokenwise) checkBatch(b *Batch) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if e.values {
		if err := stats.CheckLength("Values", b.Values, len(b.Mask)); err != nil {
			return err
		}
	}
	if e.baselines {
		if err := stats.CheckLength("Baselines", b.Baselines, b.Rows()); err != nil {
			return err
		}
		if err := stats.CheckRowsFinite("Baselines", b.Baselines); err != nil {
			return err
		}
	}
	if err := checkOptional("Bootstrap", b.Bootstrap, b.Rows()); err != nil {
		return err
	}
	if err := stats.CheckRowsFinite("Bootstrap", b.Bootstrap); err != nil {
		return err
	}
	return e.layout.buildRows(b)
}

// gaeRecursion is generalized advantage estimation (arXiv 1506.02438, equations 11 and 16) over action tokens:
//
//	delta_t = r_t + gamma V_{t+1} - V_t,  A_t = delta_t + gamma lambda A_{t+1},  G_t = A_t + V_t
func gaeRecursion(o *tokenOptions, r tokenRow, s state) (state, stats.Moments) {
	var m stats.Moments
	for hi := len(r.mask); hi > 0; {
		lo, acts := stats.LastRun(r.mask[:hi])
		rewards, values := r.rewards[lo:hi], r.values[lo:hi]
		advantages, returns := r.advantages[lo:hi], r.returns[lo:hi]
		hi = lo
		if !acts {
			s.fillMasked(o, values, advantages, returns)
			continue
		}
		for t, v := range slices.Backward(values) {
			delta := rewards[t] + o.gamma*s.next - v
			s.running, s.next = delta+o.gamma*o.lambda*s.running, v
			advantages[t], returns[t] = s.running, s.running+v
		}
		m = m.Merge(stats.MomentsOfAll(advantages))
	}
	return s, m
}

// fillMasked fills tokens that are not actions, which take no time.
func (s state) fillMasked(o *tokenOptions, values, advantages, returns []float64) {
	a := 0.0
	if o.CarryMasked {
		a = s.running
	}
	stats.Set(advantages, a)
	if o.MaskReturns {
		clear(returns)
		return
	}
	for t, v := range values {
		returns[t] = a + v
	}
}

// discountedReturn is the discounted return over action tokens, the advantage of REINFORCE++ (arXiv 2501.03262)
// before whitening:
//
//	G_t = r_t + gamma G_{t+1}
//
// ResetAtMask breaks the sum at every token that is not an action.
func discountedReturn(o *tokenOptions, r tokenRow, s state) (state, stats.Moments) {
	var m stats.Moments
	for hi := len(r.mask); hi > 0; {
		lo, acts := stats.LastRun(r.mask[:hi])
		rewards, returns := r.rewards[lo:hi], r.returns[lo:hi]
		hi = lo
		switch {
		case acts:
			var run stats.Moments
			s.running, run = stats.Scan(rewards, o.gamma, s.running, returns)
			m = m.Merge(run)
		case o.ResetAtMask:
			s.resetAtMask(o, rewards, returns)
			s.running = 0
		default:
			stats.Set(returns, s.carriedValue(o))
		}
	}
	return s, m
}

// resetAtMask fills tokens that are not actions: the return of a token is its own reward; the last token adds gamma times the return after
// it.
func (s state) resetAtMask(o *tokenOptions, rewards, returns []float64) {
	clear(returns)
	if !o.CarryMasked {
		return
	}
	if !o.MaskRewards {
		copy(returns, rewards)
	}
	returns[len(returns)-1] += o.gamma * s.running
}

// carriedValue returns the value of a token that is not an action.
func (s state) carriedValue(o *tokenOptions) float64 {
	if o.CarryMasked {
		return s.running
	}
	return 0
}

// remaxRecursion subtracts the greedy rollout's reward from the return (arXiv 2310.10505):
//
//	A_t = sum_{s >= t} r_s - R(greedy)
func remaxRecursion(_ *tokenOptions, r tokenRow, s state) (state, stats.Moments) {
	for hi := len(r.mask); hi > 0; {
		lo, acts := stats.LastRun(r.mask[:hi])
		rewards, advantages, returns := r.rewards[lo:hi], r.advantages[lo:hi], r.returns[lo:hi]
		hi = lo
		if !acts {
			stats.Set(returns, s.running)
			copy(advantages, returns)
			continue
		}
		for t, reward := range slices.Backward(rewards) {
			s.running += reward
			returns[t] = s.running
			advantages[t] = s.running - r.baseline
		}
	}
	return s, stats.Moments{}
}
