package advantage

import (
	"math"
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
// t counts action tokens, or positions with ByPosition. Rows of one trajectory follow one another.
type tokenBaseline struct {
	name    string
	options Options
	layout  layout
	// energy is W a token; lengths count action tokens a trajectory.
	energy  []float64
	lengths []int
}

const energyEpsilon = 1e-8

func (e *tokenBaseline) Name() string { return e.name }

func (e *tokenBaseline) Estimate(b *Batch, out *Result) error {
	if err := e.check(b); err != nil {
		return err
	}
	n := len(b.Mask)
	out.resize(n)
	e.energy, e.lengths = stats.Resize(e.energy, n), stats.Resize(e.lengths, e.layout.count())
	return stats.Parallel(e.layout.groups(), n, func(lo, hi int) error {
		var s sums
		for g := lo; g < hi; g++ {
			members := e.layout.members(g)
			for _, k := range members {
				if err := e.accumulate(b, k, out.Returns); err != nil {
					return err
				}
			}
			e.group(b, members, out, &s)
		}
		return nil
	})
}

// sums are over a group, one entry an aligned place.
type sums struct{ numerator, denominator []float64 }

// reach makes room for n places.
func (s *sums) reach(n int) {
	if more := n - len(s.numerator); more > 0 {
		s.numerator = append(s.numerator, make([]float64, more)...)
		s.denominator = append(s.denominator, make([]float64, more)...)
	}
}

func (e *tokenBaseline) check(b *Batch) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if err := stats.CheckLength("Logprobs", b.Logprobs, len(b.Mask)); err != nil {
		return err
	}
	if err := optional("ProbSquares", b.ProbSquares, len(b.Mask)); err != nil {
		return err
	}
	if err := optional("Weights", b.Weights, len(b.Mask)); err != nil {
		return err
	}
	if err := e.layout.build(b); err != nil {
		return err
	}
	return e.layout.buildGroups(b.Group, b.Rows())
}

// accumulate fills the returns and the energy of trajectory k.
func (e *tokenBaseline) accumulate(b *Batch, k int, returns []float64) error {
	rows := e.layout.rowsOf(k)
	e.lengths[k] = 0
	energy := 0.0
	for _, i := range rows {
		for t := b.Offsets[i]; t < b.Offsets[i+1]; t++ {
			if b.Mask[t] != 0 {
				pi := math.Exp(b.Logprobs[t])
				squares := pi * pi
				if b.ProbSquares != nil {
					squares = b.ProbSquares[t]
				}
				w := 1 - 2*pi + squares
				if b.Weights != nil {
					w *= b.Weights[t] * b.Weights[t]
				}
				energy += w
				e.lengths[k]++
			}
			e.energy[t] = energy
		}
	}
	running := 0.0
	for _, i := range slices.Backward(rows) {
		for hi := b.Offsets[i+1]; hi > b.Offsets[i]; {
			start, acts := stats.LastRun(b.Mask[b.Offsets[i]:hi])
			lo := b.Offsets[i] + start
			if acts {
				running = stats.Scan(b.Rewards[lo:hi], 1, running, returns[lo:hi])
			} else {
				stats.Set(returns[lo:hi], running)
			}
			hi = lo
		}
		if !stats.Finite(running) || !stats.Finite(energy) {
			return tokenFault(b, i, true, field{"Rewards", b.Rewards}, field{"Logprobs", b.Logprobs},
				field{"ProbSquares", b.ProbSquares}, field{"Weights", b.Weights})
		}
	}
	return nil
}

// group fills the advantages of one group.
func (e *tokenBaseline) group(b *Batch, members []int, out *Result, s *sums) {
	clear(s.numerator)
	clear(s.denominator)
	for _, k := range members {
		place := 0
		for _, i := range e.layout.rowsOf(k) {
			lo, hi := b.Offsets[i], b.Offsets[i+1]
			s.reach(place + hi - lo)
			place = e.add(b.Mask[lo:hi], out.Returns[lo:hi], e.energy[lo:hi], s, place)
		}
	}
	compared := len(members)
	if !e.options.ByPosition || !e.options.CountEmpty {
		compared = 0
		for _, k := range members {
			compared += min(e.lengths[k], 1)
		}
	}
	longest, tail := e.tail(members)
	for p, d := range s.denominator { // numerators become baselines
		s.numerator[p] /= d + energyEpsilon
	}
	for _, k := range members {
		place, until := 0, len(s.numerator)
		if k == longest {
			until = tail
		}
		for _, i := range e.layout.rowsOf(k) {
			lo, hi := b.Offsets[i], b.Offsets[i+1]
			m, returns, advantages := b.Mask[lo:hi], out.Returns[lo:hi], out.Advantages[lo:hi]
			if compared == 1 {
				e.single(m, returns, advantages)
			} else {
				place = e.subtract(m, returns, advantages, s.numerator[:until], place)
			}
			if e.options.MaskReturns {
				stats.Mask(returns, m)
			}
		}
	}
}

// add adds a row's returns, weighted by energy, from a place on, and returns the place after it.
func (e *tokenBaseline) add(m []uint8, returns, energy []float64, s *sums, place int) int {
	step := 0
	if e.options.ByPosition {
		step = 1
	}
	returns, energy = returns[:len(m)], energy[:len(m)]
	for t, v := range m {
		if v != 0 {
			s.numerator[place] += returns[t] * energy[t]
			s.denominator[place] += energy[t]
			place++
		} else {
			place += step
		}
	}
	return place
}

// subtract writes a row's advantages over the baselines, 0 beyond their end, and returns the place after it.
func (e *tokenBaseline) subtract(m []uint8, returns, advantages, baselines []float64, place int) int {
	step := 0
	if e.options.ByPosition {
		step = 1
	}
	returns, advantages = returns[:len(m)], advantages[:len(m)]
	for t, v := range m {
		if v == 0 {
			advantages[t] = 0
			place += step
			continue
		}
		advantages[t] = returns[t]
		if place < len(baselines) {
			advantages[t] -= baselines[place]
		}
		place++
	}
	return place
}

// single is a group of one: its returns, or nothing.
func (e *tokenBaseline) single(m []uint8, returns, advantages []float64) {
	for t, v := range m {
		advantages[t] = stats.Masked(returns[t]-e.options.baseline(returns[t]), v)
	}
}

// tail is the trajectory that alone is the longest of its group, in action tokens, and the length of the second;
// -1 when there is none or the option is off.
func (e *tokenBaseline) tail(members []int) (longest, second int) {
	longest = -1
	if !e.options.ZeroTail || len(members) < 2 {
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
