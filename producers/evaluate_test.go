package producers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func evalConfig() producers.EvalConfig {
	return producers.EvalConfig{Name: "test", Samples: 1, Concurrency: 3, Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 96}}
}

func evalPrompts() []schemas.Prompt {
	var prompts []schemas.Prompt
	for _, p := range []struct{ source, answer string }{{"a", "helsinki"}, {"a", "oslo"}, {"b", "helsinki"}, {"b", "HELSINKI."}} {
		prompts = append(prompts, schemas.Prompt{
			ID: p.source + p.answer, Text: "what is the capital of finland ?", Answers: []string{p.answer}, Source: p.source,
		})
	}
	return prompts
}

// reader is a policy that searches once and answers with what it is shown after "capital".
func reader(t *testing.T) policyFunc {
	t.Helper()
	tok := newTokenizer(t)
	return func(_ context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		say := "<search> finland </search>"
		if context := tok.Decode(r.Tokens); strings.Contains(context, "<info>") {
			_, info, _ := strings.Cut(context, "<info>")
			say = "<answer> nothing </answer>"
			if _, after, ok := strings.Cut(info, "capital "); ok {
				say = "<answer> " + strings.Fields(after)[0] + " </answer>"
			}
		}
		g := &generate.Result{Tokens: tok.Encode(say), Stop: schemas.GenerateStopToken}
		g.Logprobs, g.Versions = make([]float32, len(g.Tokens)), make([]int32, len(g.Tokens))
		return g, nil
	}
}

// A turn of a score is bounded as a turn in training.
func TestAScoreBoundsATurn(t *testing.T) {
	policy, longest := reader(t), 0
	env := newEnvironment(t, policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		longest = max(longest, r.MaxTokens)
		return policy(ctx, r)
	}))
	cfg := evalConfig()
	cfg.TurnTokens, cfg.Concurrency = 7, 1
	_, err := producers.Evaluate(context.Background(), env, evalPrompts(), cfg)
	require.NoError(t, err)
	require.Equal(t, 7, longest)
	cfg.TurnTokens = -1
	_, err = producers.Evaluate(context.Background(), env, evalPrompts(), cfg)
	require.ErrorContains(t, err, "turn_tokens")
}

func TestEvaluate(t *testing.T) {
	env := newEnvironment(t, reader(t))
	report, err := producers.Evaluate(context.Background(), env, evalPrompts(), evalConfig())
	require.NoError(t, err)
	require.InDelta(t, 0.85, report.Reward, 1e-12)
	report.Reward = 0
	require.Equal(t, producers.EvalScore{N: 4, ExactMatch: 0.75, Turns: 1, Tokens: 6}, report.EvalScore)
	require.InDelta(t, 0.5, report.BySource["a"].ExactMatch, 0)
	require.InDelta(t, 1, report.BySource["b"].ExactMatch, 0)
	require.Equal(t, map[schemas.StopReason]int{schemas.StopAnswer: 4}, report.Stops)
	require.InDelta(t, 0.2165, report.StandardError(), 1e-4)
}

// The control: the same policy with a tool that finds nothing scores nothing.
func TestEvaluateWithoutTheTool(t *testing.T) {
	env := newEnvironment(t, reader(t))
	env.Tools = []producers.Tool{nothingFound{env.Tools[0]}}
	report, err := producers.Evaluate(context.Background(), env, evalPrompts(), evalConfig())
	require.NoError(t, err)
	require.Zero(t, report.ExactMatch)
	require.InDelta(t, 1, report.Turns, 0)
}

func TestEvaluateSaysWhatWentWrong(t *testing.T) {
	env := newEnvironment(t, policyFunc(func(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
		return nil, errors.New("no engine")
	}))
	_, err := producers.Evaluate(context.Background(), env, evalPrompts(), evalConfig())
	require.ErrorContains(t, err, "no engine")
	_, err = producers.Evaluate(context.Background(), env, evalPrompts(), producers.EvalConfig{Temperature: -1})
	for _, want := range []string{"samples: 0", "concurrency: 0", "temperature: -1", "limits.max_tokens: 0"} {
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = producers.Evaluate(ctx, newEnvironment(t, reader(t)), evalPrompts(), evalConfig())
	require.ErrorIs(t, err, context.Canceled)
}

// nothingFound looks like a tool and finds nothing.
type nothingFound struct{ producers.Tool }

func (nothingFound) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: tools.NothingFound}, nil
}

// Finding 15a.9: a score left out a question for whose session nobody had room four times, as the machinery's failure.
func TestAQuestionForWhichNobodyHasRoomWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			full   time.Duration
			failed int
		}{{30 * time.Minute, 0}, {2 * time.Hour, 1}} {
			began := time.Now()
			roll := func(_ context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, *producers.Transcript, error) {
				if ticket.Prompt.ID == "waits" && time.Since(began) < c.full {
					return nil, nil, fmt.Errorf("%w: open a session: %w", producers.ErrNotBegun, producers.ErrNoRoom)
				}
				return &schemas.Trajectory{Stop: schemas.StopAnswer, Reward: 1}, &producers.Transcript{}, nil
			}
			cfg := evalConfig()
			cfg.Attempts, cfg.RetryDelay = 4, 100*time.Millisecond
			report, err := producers.EvaluateBy(t.Context(), roll, []schemas.Prompt{{ID: "plays"}, {ID: "waits"}}, cfg)
			require.NoError(t, err)
			require.Equal(t, c.failed, report.Failed)
			require.Equal(t, 2-c.failed, report.N)
		}
	})
}
