package learner

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/advantage"
)

// begunAnew is a dialogue whose context begins anew with the history behind each of these turns.
func begunAnew(whole *schemas.Trajectory, behind ...int) *schemas.Trajectory {
	out, of := *whole, whole.Segments[0]
	out.Segments, out.Turns = nil, slices.Clone(whole.Turns)
	begin := 0
	cut := func(end int) {
		s := schemas.Segment{Temperature: of.Temperature, Tokens: of.Tokens[:end]}
		s.ActionMask, s.Logprobs, s.Versions = slices.Clone(of.ActionMask[:end]), slices.Clone(of.Logprobs[:end]), slices.Clone(of.Versions[:end])
		for at := range begin {
			s.ActionMask[at], s.Logprobs[at], s.Versions[at] = 0, 0, schemas.NoVersion
		}
		out.Segments, begin = append(out.Segments, s), end
	}
	for k := range out.Turns {
		out.Turns[k].Segment = len(out.Segments)
		if slices.Contains(behind, k) {
			cut(out.Turns[k].End)
		}
	}
	cut(len(of.Tokens))
	return &out
}

// Where tokens that no policy sampled are credited or trained on, a context that begins anew with the history changes nothing: each token
// is credited, and trained on, once, with the advantage and the critic's target that it has in one context.
//
// Finding 14.6: with tokens: all the history was credited again, in each context.
func TestHistoryIsCreditedOnceOverAllTokens(t *testing.T) {
	t.Parallel()
	engine, _ := smallModel(t, 32)
	whole := []*schemas.Trajectory{
		dialogue(1, schemas.StopAnswer, 1, [3]int32{2, 2, 5}, [3]int32{3, 3, 4}, [3]int32{2, 3, 1}),
		dialogue(0, schemas.StopAnswer, 1, [3]int32{2, 3, 4}, [3]int32{3, 2, 5}, [3]int32{2, 2, 0}),
		dialogue(0.5, schemas.StopAnswer, 1, [3]int32{4, 4, 3}, [3]int32{4, 4, 3}, [3]int32{1, 4, 2}),
	}
	anew := []*schemas.Trajectory{begunAnew(whole[0], 0), begunAnew(whole[1], 0, 1), begunAnew(whole[2], 1)}
	compared := 0
	for _, name := range advantage.Names() {
		facts := advantage.FactsOf(name, advantage.Keys(name))
		if slices.Contains(facts.Requires, "Baselines") || slices.Contains([]string{"reinforce_step", "gae_step", "bilevel"}, name) {
			continue // a greedy rollout; steps that are contexts
		}
		for _, m := range everyMasks() {
			change := func(c *Config) {
				c.Advantage.Name = name
				if slices.Contains(facts.Requires, "Values") {
					c.Critic.Network = CriticHead
				}
				m.set(c)
			}
			cfg := testConfig()
			if change(&cfg); !cfg.creditsTools() && cfg.MaskTools || cfg.Validate() != nil {
				continue
			}
			compared++
			var credited, trained [2][]float64
			for i, group := range [][]*schemas.Trajectory{whole, anew} {
				s := stepBeforeUpdate(t, engine, change, group...)
				for at, on := range s.rows.CreditMask() {
					if on == 1 {
						credited[i] = append(credited[i], float64(s.rows.Tokens[at]), s.result.Advantages[at])
						if s.result.Returns != nil {
							credited[i] = append(credited[i], s.result.Returns[at])
						}
					}
					if s.rows.Mask[at] == 1 {
						trained[i] = append(trained[i], float64(s.rows.Tokens[at]), s.result.Advantages[at])
					}
				}
			}
			require.InDeltaSlice(t, credited[0], credited[1], 1e-5, "%s, %+v", name, m)
			require.InDeltaSlice(t, trained[0], trained[1], 1e-5, "%s, %+v", name, m)
		}
	}
	require.Greater(t, compared, 30)
}
