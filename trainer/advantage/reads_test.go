package advantage

import (
	"fmt"
	"math/rand/v2"
	"reflect"
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
					b.StateValues = append(b.StateValues, b.Values[len(b.Values)-1])
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

// outcomeOf is all that an estimator gives, as text, or "" where its keys are refused.
func outcomeOf(t require.TestingT, a Arithmetic, name string, keys any, batches []*Batch) string {
	e, err := NewAs(a, name, keys)
	if err != nil {
		return ""
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

// Defect N16: each key that an estimator has changes its result, for every estimator, unless it says beside what nothing reads it.
func TestEveryKeyOfAnEstimatorMatters(t *testing.T) {
	t.Parallel()
	texts := []string{SingleReward, SingleZero, ByGAE, ByReturn, Broadcast, AnchorContext, AnchorObservation, UnitSegment, UnitTurn, UnitAuto}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			batches := []*Batch{
				everyCase(random, false, 1, 4, 3), everyCase(random, true, 4, 2, 3), everyCase(random, false, 3, 2),
			}
			bases := []func() any{func() any { return Keys(name) }}
			if name == "bilevel" {
				bases = nil
				for _, steps := range []string{ByReturn, ByGAE} {
					for _, tokens := range []string{Broadcast, ByGAE} {
						bases = append(bases, func() any {
							k := Keys(name).(*Bilevel)
							k.StepCredit, k.TokenCredit = steps, tokens
							return k
						})
					}
				}
			}
			for _, base := range bases {
				keys := base()
				was := outcomeOf(t, DefaultArithmetic(), name, keys, batches)
				require.NotEmpty(t, was)
				for _, key := range perturb.Keys(reflect.ValueOf(keys).Elem().Interface()) {
					changed := false
					perturb.Each(keys, key, texts, func() {
						now := outcomeOf(t, DefaultArithmetic(), name, keys, batches)
						changed = changed || now != "" && now != was
					})
					unread := ""
					if u, ok := keys.(interface{ Unread(string) string }); ok {
						unread = u.Unread(key)
					}
					require.Equal(t, unread == "", changed, "%s %s", key, unread)
				}
			}
		})
	}
}
