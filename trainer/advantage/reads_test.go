package advantage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/perturb"
)

// everyCase is a batch with groups of one and more, trajectories of several rows, rows and trajectories without an
// action token, and rewards at tokens that are not actions.
func everyCase(random *rand.Rand, process bool, sizes ...int) *Batch {
	b := &Batch{Offsets: []int{0}}
	number := func() float64 { return random.Float64()*4 - 2 }
	trajectory := 0
	for g, size := range sizes {
		for k := range size {
			baseline := number()
			for step := range 1 + (k+g)%3 {
				mask := []uint8{0, 1, 1, 0, 1, 0, 1}[:3+2*((k+step)%3)]
				if k == 3 || k == 2 && step == 1 || g == 1 && size == 2 && k == 1 {
					mask = make([]uint8, 2)
				}
				for _, m := range mask {
					b.Mask = append(b.Mask, m)
					b.Rewards = append(b.Rewards, number())
					b.Values = append(b.Values, number())
					b.Logprobs = append(b.Logprobs, -random.Float64()*3)
					b.Tokens = append(b.Tokens, int32(random.IntN(2)))
					if process {
						b.ProcessRewards = append(b.ProcessRewards, number())
					}
				}
				b.Offsets = append(b.Offsets, len(b.Mask))
				b.Group, b.Trajectory, b.Step = append(b.Group, g), append(b.Trajectory, trajectory), append(b.Step, step)
				b.Bootstrap, b.Baselines = append(b.Bootstrap, number()), append(b.Baselines, baseline)
				b.Agent, b.Episode = append(b.Agent, trajectory%2), append(b.Episode, trajectory/2)
				b.Role = append(b.Role, []string{"none", "some"}[trajectory%2])
			}
			trajectory++
		}
	}
	return b
}

// outcomeOf is all that an estimator gives, as text, or why it refuses.
func outcomeOf(t require.TestingT, name string, o Options, batches []*Batch) string {
	e, err := New(name, o)
	if err != nil {
		return "" // no such setting
	}
	var all []any
	for _, b := range batches {
		var out Result
		err := e.Estimate(b, &out)
		all = append(all, fmt.Sprint(err), fmt.Sprint(out.Advantages), fmt.Sprint(out.Returns))
		if s, ok := e.(Stateful); ok {
			state, err := s.State()
			require.NoError(t, err)
			all = append(all, string(state))
		}
	}
	return fmt.Sprint(all...)
}

// readsOf are the options that change what an estimator gives, under one of the bases.
func readsOf(t require.TestingT, name string, bases []Options, batches []*Batch) []string {
	var read []string
	for _, key := range perturb.Keys(Options{}) {
		for _, o := range bases {
			was, changed := outcomeOf(t, name, o, batches), false
			perturb.Each(&o, key, []string{SingleReward, SingleZero, ByGAE, ByReturn, Broadcast, AnchorContext, AnchorObservation, UnitSegment, UnitTurn, UnitAuto}, func() {
				now := outcomeOf(t, name, o, batches)
				changed = changed || now != "" && now != was
			})
			if changed {
				read = append(read, key)
				break
			}
		}
	}
	return read
}

// bases are the settings that others depend on, in all combinations.
func bases() []Options {
	var out []Options
	for k := 0; k < 1<<6; k += 3 {
		o := DefaultOptions()
		o.Whiten, o.MaskAdvantages, o.MaskReturns = k&1 == 0, k&2 == 0, k&4 == 0
		o.CarryMasked, o.ByPosition = k&8 != 0, k&8 != 0
		o.MaskRewards, o.CountEmpty = k&16 == 0, k&32 != 0
		if k&4 != 0 {
			o.Single = SingleReward
		}
		out = append(out, o)
	}
	return out
}

// Defect N16: what an estimator is declared to read is what changes its result, for every estimator and option.
func TestReadsAreTheOptionsThatMatter(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			batches := []*Batch{
				everyCase(random, false, 1, 4, 3), everyCase(random, true, 4, 2, 3), everyCase(random, false, 3, 2),
			}
			credits := []Options{DefaultOptions()}
			if name == "bilevel" {
				credits = nil
				for _, steps := range []string{ByReturn, ByGAE} {
					for _, tokens := range []string{Broadcast, ByGAE} {
						credits = append(credits, Options{StepCredit: steps, TokenCredit: tokens})
					}
				}
			}
			for _, credit := range credits {
				all := bases()
				for i := range all {
					all[i].StepCredit, all[i].TokenCredit = credit.StepCredit, credit.TokenCredit
				}
				read := readsOf(t, name, all, batches)
				slices.Sort(read)
				require.Equal(t, read, Reads(name, credit), "%s %s", credit.StepCredit, credit.TokenCredit)
			}
		})
	}
}
