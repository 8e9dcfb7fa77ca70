package producers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
)

// slowTool is a tool whose calls take a while; deaf is whether they ignore the end of their time.
type slowTool struct {
	kept
	takes time.Duration
	deaf  chan struct{}
}

func (s *slowTool) Call(ctx context.Context, _ producers.Call) (producers.Observation, error) {
	if s.deaf != nil {
		<-s.deaf
	}
	return producers.Observation{Text: "hmm"}, workFor(ctx, s.takes)
}

// guardedTool is a tool of which a single call is under way at once.
func guardedTool(t *testing.T, tool producers.Tool) producers.Tool {
	t.Helper()
	cfg := tools.DefaultGuardConfig()
	cfg.MaxConcurrent = 1
	guard, err := tools.NewGuard(cfg)
	require.NoError(t, err)
	guarded, err := guard.Wrap(tool)
	require.NoError(t, err)
	return guarded
}

// The door next to finding 15a.1: a call waited for its turn, by max_concurrent or services.NAME.concurrency, in its own time and in its episode's: what was
// left was cut off and trained on. It is so for episodes with a place of their own too.
func TestTheWaitOfACallForItsTurnIsNoPartOfItsTime(t *testing.T) {
	t.Parallel()
	for _, placed := range []bool{false, true} {
		t.Run(fmt.Sprint(placed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const takes, episodes = callTimeout * 8 / 10, 4
				env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
					if placed {
						e.NotePlace()
					}
					o, err := e.Call(ctx, "look", "x")
					if err == nil && o.Text != "hmm" {
						err = errors.New(o.Text)
					}
					return err
				}, guardedTool(t, &slowTool{kept: kept{name: "look"}, takes: takes}))
				began, ended := time.Now(), make(chan error, episodes)
				for i := range episodes {
					go func() {
						ticket := newTicket(i)
						ticket.Limits.Timeout = callTimeout
						got, _, err := producers.Rollout(t.Context(), ticket, env)
						if err == nil && (got.Stop != schemas.StopAnswer || got.FinishedAt.Sub(got.StartedAt) != takes) {
							err = fmt.Errorf("%s, in %s", got.Stop, got.FinishedAt.Sub(got.StartedAt))
						}
						ended <- err
					}()
				}
				for range episodes {
					require.NoError(t, <-ended)
				}
				require.Equal(t, episodes*takes, time.Since(began))
			})
		})
	}
}

// Finding 16a.9: behind calls of more than five minutes the wait ended too soon.
func TestTheWaitOfACallBehindLongCallsIsNoPartOfItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, takes, episodes = 10 * time.Minute, 8 * time.Minute, 4
		env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
			_, err := e.Call(ctx, "look", "x")
			return err
		})
		env.Tools = []producers.Tool{tools.Within(guardedTool(t, &slowTool{kept: kept{name: "look"}, takes: takes}), limit)}
		ended := make(chan error, episodes)
		for i := range episodes {
			go func() {
				ticket := newTicket(i)
				ticket.Limits.Timeout = limit
				got, _, err := producers.Rollout(t.Context(), ticket, env)
				if err == nil && got.Stop != schemas.StopAnswer {
					err = errors.New(string(got.Stop))
				}
				ended <- err
			}()
		}
		for range episodes {
			require.NoError(t, <-ended)
		}
	})
}

// A call behind calls that never end waits for some minutes, and fails: its time does not stand still for ever.
func TestACallBehindCallsThatNeverEndFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deaf := &slowTool{kept: kept{name: "look"}, deaf: make(chan struct{})}
		env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
			_, err := e.Call(ctx, "look", "x")
			return err
		}, guardedTool(t, deaf))
		ended := make(chan error, 2)
		began := time.Now()
		for i := range 2 {
			go func() {
				ticket := newTicket(i)
				ticket.Limits.Timeout = time.Minute
				_, _, err := producers.Rollout(t.Context(), ticket, env)
				ended <- err
			}()
		}
		require.NoError(t, <-ended, "the agent is told that the first call timed out")
		require.ErrorIs(t, <-ended, producers.ErrUnavailable)
		require.Less(t, time.Since(began), 10*time.Minute)
		close(deaf.deaf)
	})
}

// The time of a call runs but while it waits, in calls within calls too; its context tells when it passes.
func TestTheTimeOfACallStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over, within := errors.New("over"), errors.New("over within")
		env := placesEnvironment(t, func(ctx context.Context, _ *producers.Episode) error {
			began := time.Now()
			outer, end := producers.LimitCall(ctx, 10*time.Second, over)
			defer end()
			inner, endInner := producers.LimitCall(outer, 4*time.Second, within)
			defer endInner()
			require.NoError(t, workFor(ctx, time.Second))
			deadline, known := inner.Deadline()
			require.True(t, known)
			require.Equal(t, 4*time.Second, deadline.Sub(began))
			first, second := producers.HoldCall(inner, "a turn"), producers.HoldCall(inner, "a turn")
			require.NoError(t, workFor(ctx, time.Minute))
			first()
			_, known = inner.Deadline()
			require.False(t, known)
			require.NoError(t, workFor(ctx, time.Minute))
			second()
			deadline, _ = inner.Deadline()
			require.Equal(t, 2*time.Minute+4*time.Second, deadline.Sub(began))
			require.ErrorIs(t, workFor(inner, time.Hour), within)
			require.Equal(t, 2*time.Minute+4*time.Second, time.Since(began))
			require.ErrorIs(t, workFor(outer, time.Hour), over)
			require.Equal(t, 2*time.Minute+10*time.Second, time.Since(began))
			return nil
		})
		_, _, err := producers.Rollout(t.Context(), newTicket(0), env)
		require.NoError(t, err)
	})
}

// Finding 16a.3: calls of one turn that waited for each other had their episode's time stand still, though one of them worked.
func TestCallsOfAnEpisodeThatWaitForEachOtherAreItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes, limit = 8 * time.Second, 20 * time.Second
		env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
			calls := make([]producers.ToolCall, 4)
			for i := range calls {
				calls[i] = producers.ToolCall{Name: "look", Arguments: "x"}
			}
			_, err := e.Calls(ctx, calls)
			return err
		}, guardedTool(t, &slowTool{kept: kept{name: "look"}, takes: takes}))
		ticket := newTicket(0)
		ticket.Limits.Timeout = limit
		began := time.Now()
		got, _, err := producers.Rollout(t.Context(), ticket, env)
		require.NoError(t, err)
		require.Equal(t, schemas.StopTimeout, got.Stop)
		require.Equal(t, limit, time.Since(began))
		require.Equal(t, limit, got.FinishedAt.Sub(got.StartedAt))
	})
}
