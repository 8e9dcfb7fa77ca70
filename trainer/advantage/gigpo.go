package advantage

import (
	"bytes"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// gigpo adds to the trajectory's advantage within its group the advantage of each turn among the group's turns that began in the same state
// (arXiv 2505.10978, equations 3 and 7). A turn is a run of action tokens; with step_unit segment, all action tokens of a row.
//
//	A = A_episode + weight A_turn,  A_turn from the discounted returns G_k = r_k + gamma G_{k+1} of turns with the same anchor
//
// A turn whose state no other turn shares has turn advantage 0.
type gigpo struct {
	outcome
	Steps
	anchor     string
	stepWeight float64
}

// turn is a run of action tokens, [lo, hi); with step_unit segment the action tokens among [lo, hi).
type turn struct {
	lo, hi     int
	trajectory int
	// value is the sum of the run's rewards, then the discounted return.
	value, advantage float64
}

// turns are the turns of a group, in order, in memory that is reused.
type turns struct {
	all []turn
	// states holds, for each turn, its state; the turns of state s are order[start[s]:start[s+1]].
	states, order, start []int
	ids                  map[uint64]int
	returns, relative    []float64
}

func (e *gigpo) Estimate(b *Batch, out *Result) error {
	if err := e.layOutBatch(b); err != nil {
		return err
	}
	if err := stats.CheckLength("Tokens", b.Tokens, len(b.Mask)); err != nil {
		return err
	}
	out.resizeShared(len(b.Mask))
	clear(e.advantages)
	alone := outcome{whitener: e.whitener, Alone: Alone{SingleZero}, formula: e.formula}
	return stats.Parallel(e.layout.groupCount(), len(b.Mask), func(lo, hi int) error {
		t := turns{ids: map[uint64]int{}}
		for g := lo; g < hi; g++ { // all of a group's work while it is in the cache
			if err := e.sumGroup(b, g); err != nil {
				return err
			}
			members := e.countedMembers(g)
			e.shapeRewards(b, g, members)
			if err := e.formula(&e.outcome, members); err != nil {
				return err
			}
			e.cutGroup(b, g, &t, out.Advantages)
			t.discountRewards(e.StepGamma)
			if err := t.compareTurns(&alone); err != nil {
				return err
			}
			for _, t := range t.all {
				v := e.advantages[t.trajectory] + e.stepWeight*t.advantage
				if e.StepUnit == UnitSegment {
					stats.Fill(out.Advantages[t.lo:t.hi], b.Mask[t.lo:t.hi], v, 0)
				} else {
					stats.Set(out.Advantages[t.lo:t.hi], v)
				}
			}
		}
		return nil
	})
}

// cutGroup finds the turns of group g, and writes 0 to the tokens that are in no turn.
func (e *gigpo) cutGroup(b *Batch, g int, t *turns, advantages []float64) {
	t.all, t.states = t.all[:0], t.states[:0]
	clear(t.ids)
	for k := e.layout.groupStart[g]; k < e.layout.groupStart[g+1]; k++ {
		rows := e.layout.rowsOf(e.layout.trajectories[k])
		for n, i := range rows {
			switch {
			case e.StepUnit == UnitSegment:
				t.addRow(b, i, k, advantages)
			case e.anchor == AnchorContext:
				t.addTurns(b, i, k, b.Offsets[i], true, advantages)
			default:
				t.addTurns(b, i, k, b.Offsets[i]+countHistory(b, rows[max(0, n-1)], i), false, advantages)
			}
		}
	}
}

// addTurns adds the runs of action tokens of a row of trajectory k. The state of the first run is named by the tokens from before on; grows
// says whether the tokens of a later run's state begin there too, or else behind the run ahead of it.
func (t *turns) addTurns(b *Batch, row, k, before int, grows bool, advantages []float64) {
	for lo := b.Offsets[row]; lo < b.Offsets[row+1]; {
		n, acts := stats.FirstRun(b.Mask[lo:b.Offsets[row+1]])
		hi := lo + n
		if acts {
			t.addTurn(turn{lo: lo, hi: hi, trajectory: k, value: stats.Total(b.Rewards[lo:hi])}, anchorHash(b.Tokens[before:lo]))
			if !grows {
				before = hi
			}
		} else {
			clear(advantages[lo:hi])
		}
		lo = hi
	}
}

// countHistory counts the tokens of row last, up to its last action token, that the row after it begins with, ahead of its first turn's
// observation. It is 0 unless the row begins with all of them and has an observation behind them: then the state of the row's first turn is
// everything before that turn. A row has no history of itself.
func countHistory(b *Batch, last, row int) int {
	end := lastAction(b, []int{last}) + 1
	first := bytes.IndexByte(b.Mask[b.Offsets[row]:b.Offsets[row+1]], 1)
	n := end - b.Offsets[last]
	if last == row || end == 0 || first <= n {
		return 0
	}
	head := b.Tokens[b.Offsets[row]:][:n]
	if !slices.Equal(head, b.Tokens[b.Offsets[last]:end]) {
		return 0
	}
	return n
}

// addRow adds the sampled tokens of a row of trajectory k as a single turn, which began in the state of all tokens before it.
func (t *turns) addRow(b *Batch, row, k int, advantages []float64) {
	start, hi := b.Offsets[row], b.Offsets[row+1]
	n := 0
	if start < hi {
		if first, acts := stats.FirstRun(b.Mask[start:hi]); !acts {
			n = first
		}
	}
	lo := start + n
	clear(advantages[start:lo])
	if lo < hi {
		value, _ := stats.Sum(b.Rewards[lo:hi], b.Mask[lo:hi])
		t.addTurn(turn{lo: lo, hi: hi, trajectory: k, value: value}, anchorHash(b.Tokens[start:lo]))
	}
}

// addTurn appends a turn that began in the state of this anchor.
func (t *turns) addTurn(next turn, anchor uint64) {
	state, known := t.ids[anchor]
	if !known {
		state = len(t.ids)
		t.ids[anchor] = state
	}
	t.all, t.states = append(t.all, next), append(t.states, state)
}

// discountRewards turns the turns' rewards into returns.
func (t *turns) discountRewards(gamma float64) {
	for k := len(t.all) - 2; k >= 0; k-- {
		if t.all[k].trajectory == t.all[k+1].trajectory {
			t.all[k].value += gamma * t.all[k+1].value
		}
	}
}

// compareTurns fills the turns' advantages, each among the turns of its state.
func (t *turns) compareTurns(alone *outcome) error {
	t.order, t.start = bucketByKey(t.states, len(t.ids), t.order, t.start)
	for s := range len(t.ids) {
		members := t.order[t.start[s]:t.start[s+1]]
		t.returns, t.relative = stats.Resize(t.returns, len(members)), stats.Resize(t.relative, len(members))
		for j, k := range members {
			t.returns[j] = t.all[k].value
		}
		if err := alone.formula(alone, group{rewards: t.returns, advantages: t.relative}); err != nil {
			return err
		}
		for j, k := range members {
			t.all[k].advantage = t.relative[j]
		}
	}
	return nil
}

// anchorHash returns the state that a turn began in: a hash of the tokens before the turn. a hash of the tokens that led there.
func anchorHash(ids []int32) uint64 {
	h := mixHash(0xcbf29ce484222325, uint64(len(ids)))
	for len(ids) >= 2 { // by two, as each multiplication waits for the multiplication before
		h = mixHash(h, uint64(uint32(ids[0]))<<32|uint64(uint32(ids[1])))
		ids = ids[2:]
	}
	for _, id := range ids {
		h = mixHash(h, uint64(uint32(id)))
	}
	return h
}

// mixHash returns another number for each pair of numbers, nearly always.
func mixHash(h, v uint64) uint64 {
	h = (h ^ v) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}
