package producers_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Finding 12b.4: the time limit ran while nobody had come for an episode: the agent that came late was cut off in the middle of its work, and
// what it had sampled was trained on.
func TestTheTimeOfAnEpisodeBeginsWhenItsAgentHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		env := newEnvironment(t, policyFunc(one))
		var came time.Time
		works := 50 * time.Second
		env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
			require.Equal(t, limit, e.TimeLeft())
			<-time.After(5 * time.Second)
			e.NoteUnclaimed(true)
			<-time.After(time.Hour)
			e.NoteUnclaimed(false)
			came = time.Now()
			if err := e.Begin([]int32{1}); err != nil {
				return err
			}
			if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
				return err
			}
			select {
			case <-time.After(works):
			case <-ctx.Done():
				require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded, "the gateway ends the episode for good")
				return context.Cause(ctx)
			}
			e.Finish("x", schemas.StopAnswer)
			return nil
		})
		ticket := newTicket(1)
		ticket.Limits.Timeout = limit
		got, _, err := producers.Rollout(t.Context(), ticket, env)
		require.NoError(t, err)
		require.Equal(t, schemas.StopAnswer, got.Stop)
		require.Equal(t, 55*time.Second, got.FinishedAt.Sub(got.StartedAt), "the wait is no part of the episode")

		works = limit
		got, _, err = producers.Rollout(t.Context(), ticket, env)
		require.NoError(t, err)
		require.Equal(t, schemas.StopTimeout, got.Stop)
		require.Equal(t, 55*time.Second, time.Since(came), "the 5 s before the wait count")
	})
}
