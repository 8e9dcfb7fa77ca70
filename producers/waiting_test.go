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
	"github.com/weir-rl/weir/schemas"
)

// openingTool is a tool whose sessions open as open says.
type openingTool struct {
	kept
	open func(ctx context.Context) error
}

func (o *openingTool) Open(ctx context.Context, _ producers.Session) error { return o.open(ctx) }

// waitFor waits, or returns why ctx ended before.
func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Finding 13.2: the time in which an episode waited for a session of a full tool worker was the episode's: what was left of it was cut off, and
// trained on.
func TestTheTimeOfAnEpisodeBeginsWhenItsSessionsAreOpen(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Minute
	opens := func(after time.Duration, failed error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := waitFor(ctx, after); err != nil {
				return errors.Join(failed, err)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		open  func(context.Context) error
		works time.Duration
		stop  schemas.StopReason
		fails []error // errors.Is each
		not   error
		takes time.Duration
	}{
		"at once":                     {open: opens(0, nil), works: 20 * time.Second, stop: schemas.StopAnswer, takes: 20 * time.Second},
		"late":                        {open: opens(110*time.Second, nil), works: 20 * time.Second, stop: schemas.StopAnswer, takes: 130 * time.Second},
		"late, and the agent as well": {open: opens(110*time.Second, nil), works: time.Hour, stop: schemas.StopTimeout, takes: 110*time.Second + limit},
		"never":                       {open: opens(time.Hour, nil), fails: []error{producers.ErrUnavailable, context.DeadlineExceeded}, not: producers.ErrNotBegun, takes: limit},
		"nobody has room":             {open: opens(time.Hour, producers.ErrNoRoom), fails: []error{producers.ErrNotBegun, producers.ErrUnavailable}, takes: limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				env := newEnvironment(t, policyFunc(one))
				life := make(chan context.Context, 1)
				env.Tools = []producers.Tool{&openingTool{kept{name: "search"}, func(ctx context.Context) error {
					life <- ctx
					return c.open(ctx)
				}}}
				var began time.Time
				env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
					require.Equal(t, limit, e.TimeLeft())
					require.NoError(t, (<-life).Err(), "a session may live by the context that it was opened with")
					began = time.Now()
					if err := e.Begin([]int32{1}); err != nil {
						return err
					}
					if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
						return err
					}
					if err := waitFor(ctx, c.works); err != nil {
						return err
					}
					e.Finish("x", schemas.StopAnswer)
					return nil
				})
				ticket, asked := newTicket(1), time.Now()
				ticket.Limits.Timeout = limit
				got, _, err := producers.Rollout(t.Context(), ticket, env)
				require.Equal(t, c.takes, time.Since(asked))
				for _, want := range c.fails {
					require.ErrorIs(t, err, want)
				}
				if c.fails != nil {
					require.False(t, c.not != nil && errors.Is(err, c.not), err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.stop, got.Stop)
				require.True(t, began.Equal(got.StartedAt), "the wait is no part of the episode")
			})
		})
	}
}

// Finding 13.2: where no tool worker had room, tickets failed until their samples were closed, and the run was reported as failing.
func TestATicketForWhoseSessionNobodyHasRoomHasNotFailed(t *testing.T) {
	env, cfg := newEnvironment(t, fresh(t)), config()
	calls := 0
	env.Tools = append(env.Tools, &openingTool{kept{name: "look"}, func(context.Context) error {
		if calls++; calls <= 12 {
			return fmt.Errorf("%w: the episode's time limit", producers.ErrNoRoom)
		}
		return nil
	}})
	cfg.MaxDeliver, cfg.Concurrency = 1, 1
	s := newStream(newTicket(1))
	var reports []schemas.Failing
	failing := func(f schemas.Failing) { reports = append(reports, f) }
	p := startWith(t, cfg, producers.Deps{Stream: &sentStream{stream: s}, Environments: map[string]producers.Environment{"t": env}, Failing: failing})
	<-s.idle
	p.stop()
	require.Empty(t, s.closed)
	require.Equal(t, []string{newTicket(1).ID}, ids(s.published))
	require.Equal(t, 12, s.released)
	require.Empty(t, reports)
}
