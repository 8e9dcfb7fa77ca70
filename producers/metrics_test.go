package producers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// What a policy makes up must not become a label.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	env := newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines})
	inner := env.Agent
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		if err := inner.Run(ctx, e); err != nil {
			return err
		}
		if _, err := e.Call(ctx, "made up", ""); err != nil {
			return err
		}
		return e.Begin(e.Context()) // what an agent does that writes its context anew
	})
	s := newStream(newTicket(0))
	metrics, err := producers.NewMetrics(registry)
	require.NoError(t, err)
	_, err = producers.NewMetrics(registry)
	require.ErrorContains(t, err, "register producer metrics")
	p := startWith(t, config(), producers.Deps{
		Stream: s, Environments: map[string]producers.Environment{"t": env}, Metrics: metrics,
	})
	<-s.idle
	p.stop()
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		require.Regexp(t, "^weir_producer_", family.GetName())
		for _, m := range family.GetMetric() {
			values[family.GetName()+labels(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"weir_producer_episodes_total answer":      1,
		"weir_producer_episodes_running":           0,
		"weir_producer_tokens_total policy":        9,
		"weir_producer_tool_seconds ok search":     2,
		"weir_producer_tool_seconds error unknown": 1,
		"weir_producer_generate_seconds":           3,
		"weir_producer_publish_seconds":            1,
		"weir_producer_episode_seconds":            1,
		"weir_producer_reward":                     1,
		"weir_producer_contexts_begun_anew_total":  1,
	} {
		got, known := values[name]
		require.True(t, known, name)
		require.InDelta(t, want, got, 0, name)
	}
}

func labels(m *dto.Metric) string {
	text := ""
	for _, label := range m.GetLabel() {
		text += " " + label.GetValue()
	}
	return text
}

func BenchmarkRollout(b *testing.B) {
	tok := newTokenizer(b)
	env := newEnvironment(b, nil)
	for b.Loop() {
		env.Policy = &scripted{tok: tok, lines: rightLines}
		_, _, err := producers.Rollout(context.Background(), newTicket(0), env)
		require.NoError(b, err)
	}
}

// What takes an episode out of training is counted by its cause, and a call that was unavailable apart from those that the agent is told of.
func TestEachFailureIsCountedByItsCause(t *testing.T) {
	away := calling{"search", func(context.Context, producers.Call) (producers.Observation, error) {
		return producers.Observation{}, fmt.Errorf("%w: no server", producers.ErrUnavailable)
	}}
	wrong := errors.New("wrong")
	for want, change := range map[string]func(*producers.Environment, *schemas.Ticket){
		"weir_producer_dropped_total tool failed": func(e *producers.Environment, _ *schemas.Ticket) {
			e.Policy, e.Tools = &scripted{tok: newTokenizer(t), lines: rightLines}, []producers.Tool{away}
		},
		"weir_producer_dropped_total reward failed": func(e *producers.Environment, _ *schemas.Ticket) { e.Reward = scoreless{wrong} },
		"weir_producer_dropped_total engine failed": func(e *producers.Environment, _ *schemas.Ticket) {
			e.Policy = policyFunc(func(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
				return nil, generate.ErrFailed
			})
		},
		"weir_producer_dropped_total agent failed": func(e *producers.Environment, _ *schemas.Ticket) {
			e.Agent = agentFunc(func(context.Context, *producers.Episode) error { return wrong })
		},
		"weir_producer_dropped_total too_large failed": func(e *producers.Environment, _ *schemas.Ticket) {
			e.Policy = &scripted{tok: newTokenizer(t), lines: rightLines}
		},
		"weir_producer_dropped_total nothing_sampled failed": func(_ *producers.Environment, ticket *schemas.Ticket) { ticket.Limits.MaxTokens = 3 },
		"weir_producer_dropped_total  panicked": func(e *producers.Environment, _ *schemas.Ticket) {
			e.Agent = agentFunc(func(context.Context, *producers.Episode) error { panic(wrong) })
		},
	} {
		t.Run(want, func(t *testing.T) {
			env, ticket, cfg := newEnvironment(t, fresh(t)), newTicket(0), config()
			change(&env, ticket)
			cfg.MaxDeliver = 1
			registry, s := prometheus.NewRegistry(), newStream(ticket)
			metrics, err := producers.NewMetrics(registry)
			require.NoError(t, err)
			var stream producers.Stream = s
			if strings.Contains(want, "too_large") {
				stream = narrow{s}
			}
			p := startWith(t, cfg, producers.Deps{Stream: stream, Environments: map[string]producers.Environment{"t": env}, Metrics: metrics})
			<-s.idle
			p.stop()
			require.Empty(t, s.published)
			families, err := registry.Gather()
			require.NoError(t, err)
			counted := map[string]uint64{}
			for _, family := range families {
				for _, m := range family.GetMetric() {
					counted[family.GetName()+labels(m)] = uint64(m.GetCounter().GetValue()) + m.GetHistogram().GetSampleCount()
				}
			}
			require.EqualValues(t, 1, counted[want], counted)
			if strings.Contains(want, " tool ") {
				require.EqualValues(t, 1, counted["weir_producer_tool_seconds unavailable search"])
			}
		})
	}
}

// scoreless is a reward that cannot score.
type scoreless struct{ err error }

func (s scoreless) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	return producers.Score{}, s.err
}

// narrow is a stream that takes no trajectory.
type narrow struct{ *stream }

func (narrow) Publish(context.Context, *schemas.Trajectory) error { return streams.ErrTooLarge }
