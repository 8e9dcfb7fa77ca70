package advantage

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/trainer/stats"
)

// naiveStep is a step as its tokens, written out.
type naiveStep struct {
	tokens []int
	// state is what the step began in, spelt out.
	state      string
	group      int
	bootstrap  float64
	reward     float64
	value      float64
	gain, next float64
}

// naiveSteps are the steps of each trajectory, in order: the runs of action tokens, or the action tokens of a row.
func naiveSteps(b *Batch, unit, anchored string) map[int][]*naiveStep {
	spell := func(lo, hi int) string {
		var s strings.Builder
		for _, id := range b.Tokens[lo:hi] {
			s.WriteRune('a' + id)
		}
		return s.String()
	}
	rows := upTo(b.Rows())
	slices.SortStableFunc(rows, func(i, j int) int { return b.Step[i] - b.Step[j] })
	out := map[int][]*naiveStep{}
	before := map[int]string{} // the context before, of each trajectory, up to its last action token
	for _, i := range rows {
		var here []*naiveStep
		from := b.Offsets[i]
		if first := from + slices.Index(b.Mask[from:b.Offsets[i+1]], 1); unit == UnitTurn && anchored == AnchorObservation && first >= from {
			if rest, begins := strings.CutPrefix(spell(from, first), before[b.Trajectory[i]]); begins && rest != "" {
				from = first - len(rest)
			}
		}
		before[b.Trajectory[i]] = spell(b.Offsets[i], max(b.Offsets[i], lastAction(b, []int{i})+1))
		for t := b.Offsets[i]; t < b.Offsets[i+1]; t++ {
			switch {
			case b.Mask[t] == 0:
				continue
			case len(here) == 0, unit == UnitTurn && b.Mask[t-1] == 0:
				s := &naiveStep{group: b.Group[i], state: spell(from, t), value: b.Values[t]}
				here = append(here, s)
			}
			s := here[len(here)-1]
			s.tokens, s.reward = append(s.tokens, t), s.reward+b.Rewards[t]
			if anchored == AnchorObservation {
				from = t + 1
			}
		}
		out[b.Trajectory[i]] = append(out[b.Trajectory[i]], here...)
	}
	for _, i := range rows { // what follows the last row of a trajectory
		if steps := out[b.Trajectory[i]]; len(steps) > 0 {
			steps[len(steps)-1].bootstrap = b.Bootstrap[i]
		}
	}
	return out
}

// normal brings numbers to mean 0 and deviation 1, as whitened steps are.
func normal(x []*float64, epsilon float64) {
	mean, squares := 0.0, 0.0
	for _, v := range x {
		mean += *v / float64(len(x))
	}
	for _, v := range x {
		squares += (*v - mean) * (*v - mean)
	}
	std := 0.0
	if len(x) > 1 {
		std = math.Sqrt(squares / float64(len(x)-1))
	}
	for _, v := range x {
		*v = (*v - mean) / (std + epsilon)
	}
}

// The steps of a trajectory are its contexts or its turns, as step_unit says: the estimators of steps against sums written out.
func TestAStepIsAContextOrATurn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		o := defaultOptions()
		o.StepUnit = rapid.SampledFrom([]string{UnitSegment, UnitTurn}).Draw(t, "unit")
		o.StepGamma, o.StepLambda = rapid.Float64Range(0, 1).Draw(t, "gamma"), rapid.Float64Range(0, 1).Draw(t, "lambda")
		o.Gamma, o.Lambda, o.Whiten = 0.9, 0.7, rapid.Bool().Draw(t, "whiten")
		for _, credit := range []string{ByReturn, ByGAE} {
			advantages, returns := make([]float64, len(b.Mask)), make([]float64, len(b.Mask))
			within := make([]float64, len(b.Mask)) // bilevel's by GAE over the tokens of a step
			var all []*float64
			var steps []*naiveStep
			for _, of := range naiveSteps(b, o.StepUnit, "") {
				for k, s := range of {
					sum := 0.0
					for l := k; l < len(of); l++ {
						if credit == ByReturn {
							sum += math.Pow(o.StepGamma, float64(l-k)) * of[l].reward
							continue
						}
						next := of[l].bootstrap
						if l+1 < len(of) {
							next = of[l+1].value
						}
						sum += math.Pow(o.StepGamma*o.StepLambda, float64(l-k)) * (of[l].reward + o.StepGamma*next - of[l].value)
					}
					s.gain, s.next = sum, sum+s.value
					if credit == ByReturn {
						s.gain += math.Pow(o.StepGamma, float64(len(of)-k)) * of[len(of)-1].bootstrap
						s.next = s.gain
					}
					running, next := 0.0, 0.0
					for j, at := range slices.Backward(s.tokens) {
						reward := b.Rewards[at]
						if j == len(s.tokens)-1 {
							reward = s.next
						}
						running = reward + o.Gamma*next - b.Values[at] + o.Gamma*o.Lambda*running
						next, within[at] = b.Values[at], running
					}
					all, steps = append(all, &s.gain), append(steps, s)
				}
			}
			if o.Whiten {
				normal(all, o.WhitenEpsilon)
			}
			for _, s := range steps {
				for _, at := range s.tokens {
					advantages[at], returns[at] = s.gain, s.next
				}
			}
			names := map[string]string{ByReturn: "reinforce_step", ByGAE: "gae_step"}
			o.StepCredit, o.TokenCredit = credit, Broadcast
			for _, name := range []string{names[credit], "bilevel"} {
				got := mustEstimate(t, name, o, b)
				require.InDeltaSlice(t, advantages, got.Advantages, 1e-6, "%s by %s", name, o.StepUnit)
				require.InDeltaSlice(t, returns, got.Returns, 1e-6, "%s by %s", name, o.StepUnit)
			}
			o.TokenCredit = ByGAE
			plain := o
			plain.Whiten = false
			require.InDeltaSlice(t, within, mustEstimate(t, "bilevel", plain, b).Advantages, 1e-6, "bilevel by tokens, by %s", o.StepUnit)
		}
	})
}

// GiGPO's steps are turns unless a run says that they are contexts; either way those of a group are compared that began in one
// state.
func TestGiGPOAgainstItsSums(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		o := defaultOptions()
		o.StepUnit = rapid.SampledFrom([]string{UnitAuto, UnitSegment, UnitTurn}).Draw(t, "unit")
		o.Anchor = rapid.SampledFrom([]string{AnchorObservation, AnchorContext}).Draw(t, "anchor")
		o.StepGamma, o.StepWeight = rapid.Float64Range(0, 1).Draw(t, "gamma"), rapid.Float64Range(0, 2).Draw(t, "weight")
		o.DivideByStd = rapid.Bool().Draw(t, "divide")
		unit := o.StepUnit
		if unit == UnitAuto {
			unit = UnitTurn
		}
		relative := func(x float64, among []float64) float64 {
			if len(among) == 1 {
				return 0
			}
			mean, squares := 0.0, 0.0
			for _, v := range among {
				mean += v / float64(len(among))
			}
			for _, v := range among {
				squares += (v - mean) * (v - mean)
			}
			if !o.DivideByStd {
				return x - mean
			}
			return (x - mean) / (math.Sqrt(squares/float64(len(among)-1)) + o.StdEpsilon)
		}
		want := make([]float64, len(b.Mask))
		var steps []*naiveStep
		totals := map[int][]float64{}
		total := map[*naiveStep]float64{}
		for _, of := range naiveSteps(b, unit, o.Anchor) {
			sum := 0.0
			for k, s := range of {
				sum += s.reward
				for l := k; l < len(of); l++ {
					s.gain += math.Pow(o.StepGamma, float64(l-k)) * of[l].reward
				}
			}
			for _, s := range of {
				total[s] = sum
			}
			totals[of[0].group] = append(totals[of[0].group], sum)
			steps = append(steps, of...)
		}
		for _, s := range steps {
			var same []float64
			for _, other := range steps {
				if other.group == s.group && other.state == s.state {
					same = append(same, other.gain)
				}
			}
			for _, at := range s.tokens {
				want[at] = relative(total[s], totals[s.group]) + o.StepWeight*relative(s.gain, same)
			}
		}
		got := mustEstimate(t, "gigpo", o, b).Advantages
		for k, w := range want {
			require.InDelta(t, w, got[k], 1e-6*max(1, math.Abs(w)), "token %d by %s", k, unit)
		}
	})
}

// Short observations of small token ids were taken for one another: the length and the first token went into the hash alike.
func TestStatesOfDifferentLengthsAreDifferent(t *testing.T) {
	t.Parallel()
	seen := map[uint64][]int32{}
	for n := range 5 {
		ids := make([]int32, n)
		for k := range 1 << (2 * n) { // every sequence of n ids below 4
			for i := range ids {
				ids[i] = int32(k >> (2 * i) & 3)
			}
			h := anchorHash(ids)
			require.NotContains(t, seen, h, "%v and %v", ids, seen[h])
			seen[h] = slices.Clone(ids)
		}
	}
}

// A trajectory whose context only grows has the advantages, by turns, of one that begins each turn with a new context.
func TestTurnsOfOneContextAreAsContextsOfOneTurn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		for k, m := range b.Mask { // turns have tokens of their own, so that no observation repeats the context before
			b.Tokens[k] += 3 * int32(m)
		}
		var c cutter
		apart, err := c.cutByTurns(b)
		require.NoError(t, err)
		for i := range apart.Step { // the turns follow one another
			apart.Step[i] = 100*apart.Step[i] + c.turns[i]
		}
		o := defaultOptions()
		o.StepGamma = 0.9
		for _, name := range []string{"gae_step", "reinforce_step", "bilevel", "gigpo"} {
			o.StepUnit = UnitTurn
			want := mustEstimate(t, name, o, b)
			o.StepUnit = UnitSegment
			got := mustEstimate(t, name, o, apart)
			require.InDeltaSlice(t, want.Advantages, got.Advantages, 1e-12, name)
		}
	})
}

func TestFaultsOfTurnsNameTheRow(t *testing.T) {
	t.Parallel()
	good := func() *Batch {
		return &Batch{
			Offsets: []int{0, 2, 6}, Mask: []uint8{0, 1, 0, 1, 0, 1}, Rewards: make([]float64, 6), Values: make([]float64, 6),
			Trajectory: []int{0, 0}, Step: []int{0, 1}, Bootstrap: []float64{0, 0},
		}
	}
	o := defaultOptions()
	o.StepUnit = UnitTurn
	for _, c := range []struct {
		field, problem string
		row            int
		spoil          func(*Batch)
	}{
		{"Rewards", "turn 1: token 1 is NaN", 1, func(b *Batch) { b.Rewards[5] = math.NaN() }},
		{"Values", "turn 0: token 1 is +Inf", 1, func(b *Batch) { b.Values[3] = math.Inf(1) }},
		{"Bootstrap", "turn 0: is NaN", 1, func(b *Batch) { b.Bootstrap[1] = math.NaN() }},
		{"StepRewards", "has an entry a row, and step_unit is turn", -1, func(b *Batch) { b.StepRewards = []float64{1, 2} }},
		{"StepValues", "has an entry a row, and step_unit is turn", -1, func(b *Batch) { b.StepValues = []float64{1, 2} }},
		{"Trajectory", "1 entries, want 2", -1, func(b *Batch) { b.Trajectory = []int{1} }},
		{"Step", "3 entries, want 2", -1, func(b *Batch) { b.Step = []int{1, 2, 3} }},
	} {
		b := good()
		c.spoil(b)
		e, err := newOf("gae_step", o)
		require.NoError(t, err)
		var fault *stats.BatchError
		require.ErrorAs(t, e.Estimate(b, &Result{}), &fault, c.field)
		require.Equal(t, &stats.BatchError{Field: c.field, Row: c.row, Problem: c.problem}, fault)
	}
	o.StepUnit = "turns"
	require.ErrorContains(t, Validate("gae_step", o.keys("gae_step")), `step_unit: unknown "turns": did you mean "turn"?`)
}

// What is reused from batch to batch does not show.
func TestTurnsOfOneBatchDoNotShowInTheNext(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	o := defaultOptions()
	o.StepUnit = UnitTurn
	e, err := newOf("gae_step", o)
	require.NoError(t, err)
	for _, sizes := range [][]int{{4, 3}, {1, 2}, {4, 4, 4}} {
		b := everyCase(random, false, sizes...)
		var out Result
		require.NoError(t, e.Estimate(b, &out))
		require.Equal(t, mustEstimate(t, "gae_step", o, b).Advantages, out.Advantages)
	}
}
