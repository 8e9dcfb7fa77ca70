package advantage

import (
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// tokenBaseline is the optimal token baseline: at each action a baseline of its own, the mean return of the
// group's trajectories weighted by their path variance so far (Li et al., "The optimal token baseline", as in
// verl):
//
//	w_t = (1 - 2 pi_t + sum pi^2) rho_t^2,  W_t = sum_{s <= t} w_s
//	B_t = sum_i G_ti W_ti / (sum_i W_ti + 1e-8),  A_ti = G_ti - B_t
//
// t counts action tokens, or positions with ByPosition. Rows of a trajectory follow each other.
type tokenBaseline struct {
	name string
	Arithmetic
	TokenBaseline
	layout layout
	// lengths count action tokens a trajectory.
	lengths []int
	exp     *stats.Exp
}

const energyEpsilon = 1e-8

func (e *tokenBaseline) Name() string { return e.name }

func (e *tokenBaseline) Estimate(b *Batch, out *Result) error {
	if err := e.checkBatch(b); err != nil {
		return err
	}
	returns := out.resizeReturns(len(b.Mask))
	e.lengths = stats.Resize(e.lengths, e.layout.trajectoryCount())
	return stats.Parallel(e.layout.groupCount(), len(b.Mask), func(lo, hi int) error {
		var s sums
		for g := lo; g < hi; g++ { // all of a group's work while it is in the cache
			if err := e.estimateGroup(b, e.layout.groupMembers(g), returns, out.Advantages, &s); err != nil {
				return err
			}
		}
		return nil
	})
}

// sums are over a group's trajectories, with an entry for each aligned place, in memory that is reused.
type sums struct {
	// weighted is of G W, then the baseline; energy of W.
	weighted, energy []float64
	// probabilities are the probabilities of a run of actions.
	probabilities []float64
}

// growTo makes room for n places.
func (s *sums) growTo(n int) {
	if more := n - len(s.energy); more > 0 {
		s.weighted, s.energy = append(s.weighted, make([]float64, more)...), append(s.energy, make([]float64, more)...)
	}
}

func (e *tokenBaseline) checkBatch(b *Batch) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if err := stats.CheckLength("Logprobs", b.Logprobs, len(b.Mask)); err != nil {
		return err
	}
	if err := checkOptional("ProbSquares", b.ProbSquares, len(b.Mask)); err != nil {
		return err
	}
	if err := checkOptional("Weights", b.Weights, len(b.Mask)); err != nil {
		return err
	}
	if err := e.layout.buildRows(b); err != nil {
		return err
	}
	return e.layout.buildGroups(b.Group, b.Rows())
}

// estimateGroup fills the advantages of a group.
func (e *tokenBaseline) estimateGroup(b *Batch, members []int, returns, advantages []float64, s *sums) error {
	s.weighted, s.energy = s.weighted[:0], s.energy[:0]
	compared := 0
	for _, k := range members {
		if err := e.fillReturns(b, k, returns); err != nil {
			return err
		}
		if err := e.addWeighted(b, k, returns, s); err != nil {
			return err
		}
		if e.lengths[k] > 0 || e.ByPosition && e.CountEmpty {
			compared++
		}
	}
	for p, w := range s.energy {
		s.weighted[p] /= w + energyEpsilon
	}
	longest, tail := e.longestTail(members)
	for _, k := range members {
		baselines := s.weighted
		if k == longest {
			baselines = baselines[:tail]
		}
		e.subtractBaselines(b, k, returns, advantages, baselines, compared == 1)
	}
	return nil
}

// fillReturns fills trajectory k's returns, last to first.
func (e *tokenBaseline) fillReturns(b *Batch, k int, returns []float64) error {
	running := 0.0
	for _, i := range slices.Backward(e.layout.rowsOf(k)) {
		for hi := b.Offsets[i+1]; hi > b.Offsets[i]; {
			start, acts := stats.LastRun(b.Mask[b.Offsets[i]:hi])
			lo := b.Offsets[i] + start
			rewards, run := b.Rewards[lo:hi], returns[lo:hi]
			hi = lo
			if !acts {
				stats.Set(run, running)
				continue
			}
			for t, r := range slices.Backward(rewards) {
				running += r
				run[t] = running
			}
		}
		if !stats.Finite(running) {
			return e.rowFault(b, i)
		}
	}
	return nil
}

// addWeighted adds trajectory k's returns to the sums of its actions' places, weighted by its energy, and counts the actions.
func (e *tokenBaseline) addWeighted(b *Batch, k int, returns []float64, s *sums) error {
	e.lengths[k] = 0
	energy, place := 0.0, 0
	for _, i := range e.layout.rowsOf(k) {
		s.growTo(place + b.Offsets[i+1] - b.Offsets[i])
		for lo := b.Offsets[i]; lo < b.Offsets[i+1]; {
			n, acts := stats.FirstRun(b.Mask[lo:b.Offsets[i+1]])
			if acts {
				energy = e.weighRun(b, lo, returns[lo:lo+n], energy, s, place)
				e.lengths[k] += n
			}
			if acts || e.ByPosition {
				place += n
			}
			lo += n
		}
		if !stats.Finite(energy) {
			return e.rowFault(b, i)
		}
	}
	return nil
}

// weighRun is addWeighted of a run of actions from token lo on, and returns the energy after it.
func (e *tokenBaseline) weighRun(b *Batch, lo int, returns []float64, energy float64, s *sums, place int) float64 {
	n := len(returns)
	s.probabilities = stats.Resize(s.probabilities, n)
	e.exp.Of(b.Logprobs[lo:lo+n], s.probabilities)
	weighted, energies := s.weighted[place:place+n], s.energy[place:place+n]
	for t, pi := range s.probabilities {
		squares := pi * pi
		if b.ProbSquares != nil {
			squares = b.ProbSquares[lo+t]
		}
		w := 1 - 2*pi + squares
		if b.Weights != nil {
			w *= b.Weights[lo+t] * b.Weights[lo+t]
		}
		energy += w
		weighted[t] += returns[t] * energy
		energies[t] += energy
	}
	return energy
}

// rowFault names the value in row i that is not finite.
func (e *tokenBaseline) rowFault(b *Batch, i int) error {
	return tokenFault(b, i, true, field{"Rewards", b.Rewards}, field{"Logprobs", b.Logprobs},
		field{"ProbSquares", b.ProbSquares}, field{"Weights", b.Weights})
}

// subtractBaselines writes trajectory k's advantages over the baselines, 0 beyond their end. A group of one trajectory gets its returns, or
// 0.
func (e *tokenBaseline) subtractBaselines(b *Batch, k int, returns, advantages, baselines []float64, single bool) {
	place := 0
	for _, i := range e.layout.rowsOf(k) {
		for lo := b.Offsets[i]; lo < b.Offsets[i+1]; {
			n, acts := stats.FirstRun(b.Mask[lo:b.Offsets[i+1]])
			from, to := returns[lo:lo+n], advantages[lo:lo+n]
			lo += n
			switch {
			case !acts:
				clear(to)
				if e.MaskReturns {
					clear(from)
				}
			case single:
				for t, g := range from {
					to[t] = g - e.singleBaseline(g)
				}
			default:
				subtractRun(from, baselines[min(place, len(baselines)):], to)
			}
			if acts || e.ByPosition {
				place += n
			}
		}
	}
}

// subtractRun is subtractBaselines of a run of actions.
func subtractRun(returns, baselines, advantages []float64) {
	n := min(len(baselines), len(returns))
	for t, v := range baselines[:n] {
		advantages[t] = returns[t] - v
	}
	copy(advantages[n:], returns[n:])
}

// longestTail returns the trajectory that alone is the longest of its group, in action tokens, and the length of the second; -1 when there
// is none or the option is off.
func (e *tokenBaseline) longestTail(members []int) (longest, second int) {
	longest = -1
	if !e.ZeroTail || len(members) < 2 {
		return -1, 0
	}
	first, second := -1, -1
	for _, k := range members {
		switch n := e.lengths[k]; {
		case n > first:
			longest, first, second = k, n, first
		default:
			second = max(second, n)
		}
	}
	if first == second {
		return -1, 0
	}
	return longest, second
}
