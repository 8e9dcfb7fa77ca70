package producers_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Beside finding A10 of the agents' review: long errors of tools that the policy brought about, and a long answer, made the trainer refuse the trajectory.
func TestNoTrajectoryHasMoreTextThanTheTrainerTakes(t *testing.T) {
	t.Parallel()
	answer := strings.Repeat("\u00e9", 1<<20)
	env := newEnvironment(t, policyFunc(one))
	env.Tools = []producers.Tool{calling{"fail", func(context.Context, producers.Call) (producers.Observation, error) {
		return producers.Observation{}, errors.New(strings.Repeat("e", 1<<17))
	}}}
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		if err := e.Begin([]int32{1}); err != nil {
			return err
		}
		if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
			return err
		}
		for range 30 {
			if _, err := e.Call(ctx, "fail", strings.Repeat("a", 1<<17)); err != nil {
				return err
			}
			if _, err := e.Call(ctx, strings.Repeat("n", 1<<17), ""); err != nil {
				return err
			}
		}
		e.Finish(answer, schemas.StopAnswer)
		return nil
	})
	var scored string
	env.Reward = answerReward{&scored}
	ticket := newTicket(0)
	ticket.Limits.MaxTurns = 60
	got, _, err := producers.Rollout(t.Context(), ticket, env)
	require.NoError(t, err)
	got.Producer = "p"
	require.NoError(t, got.Validate())
	require.Equal(t, answer, scored, "the reward is of the whole answer")
	text := len(got.Answer)
	require.Len(t, got.Turns[0].Calls, 60)
	for _, call := range got.Turns[0].Calls {
		require.NotEmpty(t, call.Tool)
		require.True(t, call.Failed)
		text += len(call.Tool) + len(call.Arguments) + len(call.Error)
	}
	most := schemas.MaxText(max(ticket.Limits.MaxTokens, got.Tokens()))
	require.LessOrEqual(t, text, most)
	require.Greater(t, text, most/4, "no more is cut than has to be")
	require.True(t, strings.HasPrefix(answer, got.Answer))
	require.Zero(t, len(got.Answer)%2, "between characters")
}

// answerReward notes the answer that it scores.
type answerReward struct{ answer *string }

func (r answerReward) Score(_ context.Context, _ *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	*r.answer = t.Answer
	return producers.Score{}, nil
}
