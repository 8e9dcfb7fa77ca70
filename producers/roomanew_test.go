package producers_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// What RoomAnew says can be begun can be begun, and not a token more.
func TestTheRoomOfAFurtherSegmentIsThatOfItsLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits schemas.Limits
		want   int
		stop   schemas.StopReason
	}{
		"tokens of a segment":    {schemas.Limits{MaxTokens: 16}, 16, schemas.StopTokens},
		"tokens of all":          {schemas.Limits{MaxTokens: 16, MaxTotalTokens: 20}, 20 - 11, schemas.StopTokens},
		"segments that are left": {schemas.Limits{MaxTokens: 16, MaxSegments: 2}, 16, schemas.StopTokens},
		"no segment is left":     {schemas.Limits{MaxTokens: 16, MaxSegments: 1}, 0, schemas.StopSegments},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment(t, policyFunc(one))
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				if err := e.Begin(make([]int32, 10)); err != nil {
					return err
				}
				if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
					return err
				}
				require.Equal(t, c.want, e.RoomAnew())
				err := e.Begin(make([]int32, c.want+1))
				var stopped *producers.StoppedError
				require.ErrorAs(t, err, &stopped)
				require.Equal(t, c.stop, stopped.Reason)
				if c.want > 0 {
					require.NoError(t, e.Begin(make([]int32, c.want)))
				}
				e.Finish("", schemas.StopFormat)
				return nil
			})
			ticket := newTicket(1)
			ticket.Limits = c.limits
			_, _, err := producers.Rollout(t.Context(), ticket, env)
			require.NoError(t, err)
		})
	}
}

// Finding A10e of the agents' review: an episode whose ticket bounds no segments ran to its end, and was then refused for having more than the trainer takes.
func TestAnEpisodeEndsAtTheSegmentsThatTheTrainerTakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ticket, trainer, want int }{
		"the trainer's": {0, 3, 3}, "the ticket's own": {2, 3, 2}, "none": {0, 0, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnvironment(t, policyFunc(one))
			env.MaxSegments = c.trainer
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				for range 9 {
					if err := e.Begin([]int32{1}); err != nil {
						return err
					}
					if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
						return err
					}
				}
				e.Finish("x", schemas.StopAnswer)
				return nil
			})
			ticket := newTicket(1)
			ticket.Limits = schemas.Limits{MaxTokens: 16, MaxSegments: c.ticket}
			got, _, err := producers.Rollout(t.Context(), ticket, env)
			require.NoError(t, err)
			require.Len(t, got.Segments, c.want)
			require.Equal(t, c.want < 9, got.Stop == schemas.StopSegments)
		})
	}
}
