package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// stepwise gives all action tokens of a row the same advantage: a row is a step of an agent, a context and the actions in it. With
// step_unit turn the batch is cut into rows of a single turn first.
type stepwise struct {
	name string
	whitener
	Steps
	// lambda is the lambda of generalized advantage estimation over steps.
	lambda float64
	// byGAE credits steps by generalized advantage estimation, else by their discounted return.
	byGAE  bool
	layout layout
	steps  steps
	// whole are the steps' advantages after whitening, sample the advantages that count in it.
	whole, sample []float64
	rewards       []float64
	rows          []int
	inner         *tokenwise
	cutter        cutter
}

// steps hold an entry for each row.
type steps struct{ rewards, values, advantages, returns []float64 }

func (e *stepwise) Name() string { return e.name }

func (e *stepwise) Estimate(b *Batch, out *Result) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if e.StepUnit != UnitTurn {
		return e.estimateSteps(b, out)
	}
	turns, err := e.cutter.cutByTurns(b)
	if err != nil {
		return err
	}
	return e.cutter.faultInRow(e.estimateSteps(turns, out))
}

// estimateSteps takes each row as a step.
func (e *stepwise) estimateSteps(b *Batch, out *Result) error {
	if err := e.layout.buildRows(b); err != nil {
		return err
	}
	if err := checkOptional("Bootstrap", b.Bootstrap, b.Rows()); err != nil {
		return err
	}
	if err := stats.CheckRowsFinite("Bootstrap", b.Bootstrap); err != nil {
		return err
	}
	if err := e.steps.readSteps(b, e.byGAE, e.MaskRewards); err != nil {
		return err
	}
	for k := range e.layout.trajectoryCount() {
		rows, after := e.layout.rowsOf(k), 0.0
		if b.Bootstrap != nil {
			after = b.Bootstrap[rows[len(rows)-1]]
		}
		e.steps.creditBackward(e.countedSteps(b, rows), e.byGAE, e.StepGamma, e.lambda, after)
	}
	if e.inner != nil {
		return e.estimateTokens(b, out)
	}
	e.whitenSteps(b)
	if out.AdvantagesOnly && !e.byGAE {
		out.resizeShared(len(b.Mask))
	} else {
		out.resizeApart(len(b.Mask))
	}
	return stats.Parallel(b.Rows(), len(b.Mask), func(first, end int) error {
		for i := first; i < end; i++ {
			lo, hi := b.Offsets[i], b.Offsets[i+1]
			e.fillTokens(b.Mask[lo:hi], e.whole[i], e.MaskAdvantages, out.Advantages[lo:hi])
			if out.Returns == nil {
				continue
			}
			e.fillTokens(b.Mask[lo:hi], e.steps.returns[i], e.MaskReturns, out.Returns[lo:hi])
		}
		return nil
	})
}

// fillTokens gives a row's action tokens, or all of its tokens, the value v.
func (e *stepwise) fillTokens(m []uint8, v float64, masked bool, out []float64) {
	off := v
	if masked {
		off = 0
	}
	stats.Fill(out, m, v, off)
}

// countedSteps returns the rows that are steps: rows with action tokens, or all if CountEmpty.
func (e *stepwise) countedSteps(b *Batch, rows []int) []int {
	if e.CountEmpty {
		return rows
	}
	e.rows = e.rows[:0]
	for _, i := range rows {
		if hasAction(b, i) {
			e.rows = append(e.rows, i)
		}
	}
	return e.rows
}

// whitenSteps brings the steps' advantages to mean 0 and deviation 1, each step counting once however long.
func (e *stepwise) whitenSteps(b *Batch) {
	e.whole = append(e.whole[:0], e.steps.advantages...)
	if !e.Whiten {
		return
	}
	sample := e.sample[:0]
	for i, a := range e.steps.advantages {
		if e.CountEmpty || hasAction(b, i) {
			sample = append(sample, a)
		}
	}
	mean, std := stats.MeanStd(sample)
	for i, a := range e.steps.advantages {
		e.whole[i] = (a - mean) / (std + e.WhitenEpsilon)
	}
	e.sample = sample
}

// estimateTokens is the second level: GAE over the tokens of each step, whose return is the reward of its last action. GAE over the tokens
// of each step, whose return is the reward of its last action.
func (e *stepwise) estimateTokens(b *Batch, out *Result) error {
	e.rewards = append(e.rewards[:0], b.Rewards...)
	placeReturns(b, e.steps.returns, e.rewards)
	inner := *b
	inner.Rewards, inner.Trajectory, inner.Step = e.rewards, nil, nil
	inner.Bootstrap = nil // the steps' returns hold it
	return e.inner.Estimate(&inner, out)
}

// placeReturns puts each row's return in place of the reward of its last action token.
func placeReturns(b *Batch, returns, rewards []float64) {
	for i, g := range returns {
		for t := b.Offsets[i+1] - 1; t >= b.Offsets[i]; t-- {
			if b.Mask[t] != 0 {
				rewards[t] = g
				break
			}
		}
	}
}

// readSteps takes the steps' rewards and values from the batch.
func (s *steps) readSteps(b *Batch, values, masked bool) error {
	rows := b.Rows()
	s.rewards, s.values = stats.Resize(s.rewards, rows), stats.Resize(s.values, rows)
	s.advantages, s.returns = stats.Resize(s.advantages, rows), stats.Resize(s.returns, rows)
	clear(s.advantages)
	clear(s.returns)
	if b.StepRewards != nil {
		if err := stats.CheckLength("StepRewards", b.StepRewards, rows); err != nil {
			return err
		}
		if err := stats.CheckRowsFinite("StepRewards", b.StepRewards); err != nil {
			return err
		}
		copy(s.rewards, b.StepRewards)
	} else {
		err := stats.Parallel(rows, len(b.Mask), func(lo, hi int) error {
			for i := lo; i < hi; i++ {
				var err error
				if s.rewards[i], _, err = scoreSingleRow(b, b.Rewards, i, masked); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !values {
		return nil
	}
	if b.StepValues != nil {
		if err := stats.CheckLength("StepValues", b.StepValues, rows); err != nil {
			return err
		}
		copy(s.values, b.StepValues)
		return stats.CheckRowsFinite("StepValues", b.StepValues)
	}
	return s.firstValues(b)
}

// firstValues takes a step's value from its first action token; 0 if it has none.
func (s *steps) firstValues(b *Batch) error {
	if err := stats.CheckLength("Values", b.Values, len(b.Mask)); err != nil {
		return err
	}
	clear(s.values)
	for i := range s.values {
		for t := b.Offsets[i]; t < b.Offsets[i+1]; t++ {
			if b.Mask[t] != 0 {
				if !stats.Finite(b.Values[t]) {
					return stats.Fault("Values", i, "token %d is %v", t-b.Offsets[i], b.Values[t])
				}
				s.values[i] = b.Values[t]
				break
			}
		}
	}
	return nil
}

// creditBackward runs backward over the rows of one trajectory. By return (L0's step REINFORCE):
//
//	G_k = r_k + gamma G_{k+1},  A_k = G_k
//
// By GAE (StepPPO, Agent-R1):
//
//	delta_k = r_k + gamma V_{k+1} - V_k,  A_k = delta_k + gamma lambda A_{k+1},  G_k = A_k + V_k
//
// after is the value after the last row: the critic's where the rollout was cut off, else 0.
func (s *steps) creditBackward(rows []int, byGAE bool, gamma, lambda, after float64) {
	running, next := after, 0.0
	if byGAE {
		running, next = 0, after
	}
	for _, i := range slices.Backward(rows) {
		if byGAE {
			delta := s.rewards[i] + gamma*next - s.values[i]
			running = delta + gamma*lambda*running
			next = s.values[i]
			s.advantages[i], s.returns[i] = running, running+s.values[i]
			continue
		}
		running = s.rewards[i] + gamma*running
		s.advantages[i], s.returns[i] = running, running
	}
}
