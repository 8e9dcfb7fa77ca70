package advantage

import (
	"math"

	"github.com/weir-rl/weir/trainer/stats"
)

// vinePPO is VinePPO (arXiv 2410.01679, section 4): the value of the state that a turn begins in is the mean return of episodes that go on
// from there, and each token of a turn has the advantage of its turn, with a discount of 1:
//
//	A_k = r_k + V(s_{k+1}) - V(s_k)
//
// After the last turn V is 0: the outcome is in r. A turn is a run of action tokens; of turns without a token between them the first has the
// state. A turn whose state has no value is credited together with the turn before it, as a single turn; the first turn then has the
// value 0.
type vinePPO struct {
	name string
	Arithmetic
	layout layout
	turns  []valuedTurn
}

// valuedTurn is a turn, or several that are credited together.
type valuedTurn struct {
	value, reward float64
	// end is the number of tokens of the trajectory up to the end of the turn.
	end int
}

func (e *vinePPO) Name() string { return e.name }

func (e *vinePPO) Estimate(b *Batch, out *Result) error {
	if err := checkRewards(b); err != nil {
		return err
	}
	if err := stats.CheckLength("StateValues", b.StateValues, len(b.Mask)); err != nil {
		return err
	}
	if err := e.layout.buildRows(b); err != nil {
		return err
	}
	out.resizeShared(len(b.Mask))
	for k := range e.layout.trajectoryCount() {
		if err := e.readTurns(b, e.layout.rowsOf(k)); err != nil {
			return err
		}
		e.creditTurns(b, e.layout.rowsOf(k), out.Advantages)
	}
	return nil
}

// readTurns reads the turns of a trajectory.
func (e *vinePPO) readTurns(b *Batch, rows []int) error {
	e.turns = e.turns[:0]
	tokens := 0
	for _, row := range rows {
		acted := false
		for t := b.Offsets[row]; t < b.Offsets[row+1]; t++ {
			tokens++
			acts := b.Mask[t] != 0
			if acts && !acted {
				if err := e.beginTurn(b, row, t); err != nil {
					return err
				}
			}
			acted = acts
			if len(e.turns) == 0 || !acts && e.MaskRewards {
				continue
			}
			last := &e.turns[len(e.turns)-1]
			if last.reward += b.Rewards[t]; !stats.Finite(last.reward) {
				return tokenFault(b, row, e.MaskRewards, field{"Rewards", b.Rewards})
			}
			if acts {
				last.end = tokens
			}
		}
	}
	return nil
}

// beginTurn begins the turn of an action token.
func (e *vinePPO) beginTurn(b *Batch, row, t int) error {
	v := b.StateValues[t]
	switch {
	case math.IsInf(v, 0):
		return stats.Fault("StateValues", row, "token %d is %v", t-b.Offsets[row], v)
	case !math.IsNaN(v):
		e.turns = append(e.turns, valuedTurn{value: v})
	case len(e.turns) == 0:
		e.turns = append(e.turns, valuedTurn{})
	}
	return nil
}

// creditTurns writes the advantages of a trajectory.
func (e *vinePPO) creditTurns(b *Batch, rows []int, advantages []float64) {
	tokens, k := 0, 0
	for _, row := range rows {
		for t := b.Offsets[row]; t < b.Offsets[row+1]; t++ {
			tokens++
			for k < len(e.turns)-1 && tokens > e.turns[k].end {
				k++
			}
			if advantages[t] = 0; b.Mask[t] == 0 || k >= len(e.turns) {
				continue
			}
			after := 0.0
			if k+1 < len(e.turns) {
				after = e.turns[k+1].value
			}
			advantages[t] = e.turns[k].reward + after - e.turns[k].value
		}
	}
}
