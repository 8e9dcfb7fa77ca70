package producers_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// mailing is a tool that says nothing about what its calls change.
type mailing struct{ paying }

func (mailing) Effects() producers.Effects { return producers.EffectsOutside }

// searching is a tool that may be called again.
type searching struct{ paying }

func (searching) Effects() producers.Effects { return producers.EffectsNone }

// A producer ships the values of the states that its turns began in: the means of the returns of the episodes that go on from them, whose
// tokens it counts. Another producer with the same ticket comes to the same values. Greedy rollouts have none.
func TestAProducerShipsTheValuesOfItsStates(t *testing.T) {
	cfg := config()
	cfg.Values.Samples = 500
	env := newEnvironment(t, policyFunc(tossed))
	env.Agent, env.Tools, env.Reward = coins(3), []producers.Tool{searching{}}, lastText(env.Tokenizer.Decode([]int32{9}))
	produce := func() *schemas.Trajectory {
		greedy := newTicket(1)
		greedy.Sampling.Temperature = 0
		s := newStream(newTicket(0), greedy)
		registry := prometheus.NewRegistry()
		m, err := producers.NewMetrics(registry)
		require.NoError(t, err)
		p := startWith(t, cfg, producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}, Metrics: m})
		<-s.idle
		p.stop()
		require.Len(t, s.published, 2)
		at := 0
		if s.published[0].Greedy() {
			at = 1
		}
		require.Empty(t, s.published[1-at].Values)
		require.Equal(t, 500*(3+2+1), s.published[at].ValueTokens())
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() == "weir_producer_value_tokens_total" {
				require.EqualValues(t, 500*(3+2+1), family.GetMetric()[0].GetCounter().GetValue())
			}
		}
		n, err := testutil.GatherAndCount(registry, "weir_producer_value_tokens_total")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		return s.published[at]
	}
	first := produce()
	require.NoError(t, first.Validate())
	require.Len(t, first.Values, 3)
	last := first.Segments[0].Tokens[:first.Turns[2].Start]
	require.InDelta(t, 3*chanceOfNine(last), first.Values[2].Mean, 0.27, "four standard errors of 500 coins that pay 3")
	for _, v := range first.Values {
		require.Equal(t, 500, v.Samples)
	}
	require.Equal(t, first.Values, produce().Values)
}

// A policy cannot take an episode out of training by a call that nobody can repeat: a state that no other episode comes to has no value,
// and is counted; the trajectory comes all the same, with the values of the states before.
func TestAStateThatNobodyComesToAgainHasNoValue(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(env *producers.Environment)
		samples []int
	}{
		"all may be called again": {func(*producers.Environment) {}, []int{1, 1, 1}},
		"a tool that may change something outside": {
			func(env *producers.Environment) { env.Tools = []producers.Tool{mailing{}} }, []int{1, 0, 0},
		},
		"a tool that answers otherwise": {func(env *producers.Environment) {
			env.Agent = newEnvironment(t, nil).Agent
			env.Policy = &scripted{tok: newTokenizer(t), lines: rightLines}
			// The first call of the episode that goes on after a turn: two by the episode, two by the episode from the prompt on.
			env.Tools = []producers.Tool{repeating{&countingTool{Tool: newEnvironment(t, nil).Tools[0], change: 5}}}
		}, []int{1, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.Values.Samples = 1
			env := newEnvironment(t, policyFunc(tossed))
			env.Agent, env.Tools, env.Reward = coins(3), []producers.Tool{searching{}}, lastText(env.Tokenizer.Decode([]int32{9}))
			c.change(&env)
			s := newStream(newTicket(0))
			registry := prometheus.NewRegistry()
			m, err := producers.NewMetrics(registry)
			require.NoError(t, err)
			p := startWith(t, cfg, producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}, Metrics: m})
			<-s.idle
			p.stop()
			require.Empty(t, s.closed)
			require.Len(t, s.published, 1)
			require.NoError(t, s.published[0].Validate())
			unvalued := 0.0
			for i, v := range s.published[0].Values {
				require.Equal(t, c.samples[i], v.Samples, "turn %d", i)
				unvalued += float64(1 - v.Samples)
			}
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, family := range families {
				if family.GetName() == "weir_producer_states_unvalued_total" {
					require.InDelta(t, unvalued, family.GetMetric()[0].GetCounter().GetValue(), 0)
				}
			}
		})
	}
}

// repeating is a counted tool that may be called again.
type repeating struct{ *countingTool }

func (repeating) Effects() producers.Effects { return producers.EffectsNone }
