package producers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
)

// pooled is a tool whose episodes take a place among those of a pool with their first call, until Close.
type pooled struct {
	kept
	pool chan struct{}
	mu   sync.Mutex
	has  map[string]bool
}

func newPooled(name string, pool chan struct{}) *pooled {
	return &pooled{kept: kept{name: name}, pool: pool, has: map[string]bool{}}
}

func (p *pooled) TakePlace(ctx context.Context, call producers.Call, _ time.Duration) (own bool, err error) {
	p.mu.Lock()
	has := p.has[call.Episode]
	p.mu.Unlock()
	if has {
		return true, nil
	}
	defer producers.HoldTime(ctx, "a place")()
	select {
	case p.pool <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %w", producers.ErrNoRoom, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.has[call.Episode] = true
	return true, nil
}

func (p *pooled) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	_, err := p.TakePlace(ctx, call, 0)
	return producers.Observation{Text: "hmm"}, err
}

func (p *pooled) Close(_ context.Context, episode string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has[episode] {
		delete(p.has, episode)
		<-p.pool
	}
	return nil
}

// callTimeout bounds the calls of a pooled tool.
const callTimeout = 10 * time.Second

// placesEnvironment is an environment with these tools, each with its own time limit, whose agent plays.
func placesEnvironment(t *testing.T, play func(ctx context.Context, e *producers.Episode) error, all ...producers.Tool) producers.Environment {
	t.Helper()
	env := newEnvironment(t, policyFunc(one))
	env.Tools = nil
	for _, tool := range all {
		env.Tools = append(env.Tools, tools.Within(tool, callTimeout))
	}
	env.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 1} })
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		if err := e.Begin([]int32{1}); err != nil {
			return err
		}
		if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
			return err
		}
		if err := play(ctx, e); err != nil {
			return err
		}
		e.Finish("x", schemas.StopAnswer)
		return nil
	})
	return env
}

// workFor works until ctx ends.
func workFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The note that the thirteenth reader's mends left, 13.6's next door: the first call of an episode waited for its sandbox in the episode's time and in
// the tool's own. What was left of the episode was cut off and trained on, or the call failed.
func TestTheWaitOfACallForItsPlaceIsNoPartOfAnEpisodesTime(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	for name, c := range map[string]struct {
		works, takes time.Duration
		want         schemas.StopReason
	}{
		"each in its time": {limit * 7 / 10, limit * 7 / 10, schemas.StopAnswer},
		"none in its time": {2 * limit, limit, schemas.StopTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tool := newPooled("look", make(chan struct{}, 1))
				env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
					if _, err := e.Call(ctx, "look", "x"); err != nil {
						return err
					}
					return workFor(ctx, c.works)
				}, tool)
				const episodes = 4
				began, ended := time.Now(), make(chan error, episodes)
				for i := range episodes {
					go func() {
						ticket := newTicket(i)
						ticket.Limits.Timeout = limit
						got, _, err := producers.Rollout(t.Context(), ticket, env)
						switch {
						case err != nil:
						case got.Stop != c.want:
							err = errors.New(string(got.Stop))
						case got.FinishedAt.Sub(got.StartedAt) != c.takes || got.Turns[0].Calls[0].Duration != 0:
							err = fmt.Errorf("took %s, its call %s", got.FinishedAt.Sub(got.StartedAt), got.Turns[0].Calls[0].Duration)
						}
						ended <- err
					}()
				}
				for range episodes {
					require.NoError(t, <-ended)
				}
				require.Equal(t, episodes*c.takes, time.Since(began))
			})
		})
	}
}

// Episodes that each have a place and wait for another would wait for ever, were their time to stand still: their calls fail in their own
// time, and their tickets have failed. So in one turn, in one turn after another and in contexts that go on at the same time.
func TestAnEpisodeThatHasAPlaceWaitsForAnotherInItsOwnTime(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(ctx context.Context, e *producers.Episode) error{
		"one turn": func(ctx context.Context, e *producers.Episode) error {
			_, err := e.Calls(ctx, []producers.ToolCall{{Name: "look", Arguments: "x"}, {Name: "feel", Arguments: "x"}})
			return err
		},
		"one after another": func(ctx context.Context, e *producers.Episode) error {
			for _, name := range []string{"look", "feel"} {
				if _, err := e.Call(ctx, name, "x"); err != nil {
					return err
				}
			}
			return nil
		},
		"two contexts": func(ctx context.Context, e *producers.Episode) error {
			ended := make(chan error, 2)
			for _, name := range []string{"look", "feel"} {
				c, err := e.Open(name, []int32{1})
				if err != nil {
					return err
				}
				if _, _, err := c.Generate(ctx, producers.GenerateOptions{}); err != nil {
					return err
				}
				go func() {
					_, err := c.Call(ctx, name, "x")
					ended <- err
				}()
			}
			return errors.Join(<-ended, <-ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const until = 30 * time.Second
				pool := make(chan struct{}, 2)
				pool <- struct{}{} // of another episode, which waits for a place of this episode's
				pool <- struct{}{}
				time.AfterFunc(until, func() { <-pool })
				env := placesEnvironment(t, play, newPooled("look", pool), newPooled("feel", pool))
				ticket := newTicket(1)
				ticket.Limits.Timeout = until - time.Second
				began := time.Now()
				_, _, err := producers.Rollout(t.Context(), ticket, env)
				require.ErrorIs(t, err, producers.ErrUnavailable)
				require.NotErrorIs(t, err, producers.ErrNoRoom, "the ticket would be played again without end")
				require.Equal(t, until+callTimeout, time.Since(began))
				require.Len(t, pool, 1, "its place is free")
			})
		})
	}
}

// An episode that is cut off while it waits has the cause, and keeps no place.
func TestAnEpisodeIsCutOffWhileItWaitsForAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := make(chan struct{}, 1)
		pool <- struct{}{}
		env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
			_, err := e.Call(ctx, "look", "x")
			return err
		}, newPooled("look", pool))
		ticket := newTicket(1)
		ticket.Limits.Timeout = time.Minute
		cause := errors.New("the lease lapsed")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(cause) })
		began := time.Now()
		_, _, err := producers.Rollout(ctx, ticket, env)
		require.ErrorIs(t, err, cause)
		require.Equal(t, time.Hour, time.Since(began))
		<-pool
		require.Empty(t, pool)
	})
}

// A reward's wait for a place is no part of the episode's time.
func TestTheWaitOfARewardForItsPlaceIsNoPartOfAnEpisodesTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := placesEnvironment(t, func(_ context.Context, e *producers.Episode) error {
			e.NotePlace()() // of a program that has ended (16a.4)
			return nil
		})
		env.Reward = waitingReward{}
		got, _, err := producers.Rollout(t.Context(), newTicket(1), env)
		require.NoError(t, err)
		require.Equal(t, time.Second, got.FinishedAt.Sub(got.StartedAt))
	})
}

// waitingReward waits for an hour for a place, and scores within a second.
type waitingReward struct{}

func (waitingReward) Score(ctx context.Context, _ *schemas.Ticket, _ *producers.Transcript) (producers.Score, error) {
	goOn := producers.HoldTime(ctx, "a place")
	err := workFor(ctx, time.Hour)
	goOn()
	return producers.Score{}, errors.Join(err, workFor(ctx, time.Second))
}

// roomless is a tool, and a reward, for which nobody has room the first times.
type roomless struct {
	kept
	left    int
	take    error // of TakePlace; nil is none
	call    bool  // the call fails
	taken   bool  // TakePlace gives a place
	scoring bool
}

func (r *roomless) fail() error {
	if r.left--; r.left >= 0 {
		return fmt.Errorf("%w: all 64 are in use", producers.ErrNoRoom)
	}
	return nil
}

func (r *roomless) TakePlace(context.Context, producers.Call, time.Duration) (own bool, err error) {
	if r.call || r.scoring {
		return r.taken, r.take
	}
	return false, r.fail()
}

func (r *roomless) Call(context.Context, producers.Call) (producers.Observation, error) {
	if r.call {
		return producers.Observation{}, r.fail()
	}
	return producers.Observation{Text: "hmm"}, nil
}

func (r *roomless) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	if r.scoring {
		return producers.Score{}, r.fail()
	}
	return producers.Score{}, nil
}

// Finding 13.6's next door: an episode for whose call, or reward, nobody had room counted as a failure of its ticket, and its sample was closed. One
// that had a place, and waited for another, still counts.
func TestATicketForWhoseCallNobodyHasRoomHasNotFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of    *roomless
		fails bool
	}{
		"a place":                          {&roomless{}, false},
		"a call without a place":           {&roomless{call: true}, false},
		"a call after another fault":       {&roomless{call: true, take: errors.New("no pool")}, false},
		"a call of an episode with places": {&roomless{call: true, taken: true}, true},
		"a reward":                         {&roomless{scoring: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.of.left, c.of.name = 12, "look"
				env := placesEnvironment(t, func(ctx context.Context, e *producers.Episode) error {
					_, err := e.Call(ctx, "look", "x")
					return err
				}, c.of)
				env.Reward = c.of
				cfg := config()
				cfg.MaxDeliver, cfg.Concurrency = 1, 1
				s := newStream(newTicket(1))
				p := startWith(t, cfg, producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}})
				<-s.idle
				p.stop()
				if c.fails {
					require.Len(t, s.closed, 1)
					require.Empty(t, s.published)
					return
				}
				require.Empty(t, s.closed)
				require.Len(t, s.published, 1)
				require.Equal(t, 12, s.released)
			})
		})
	}
}

// crowded is a tool with a session that nobody can bring back, for whose first call nobody has room at first.
type crowded struct {
	*counted
	refused int
}

func (c *crowded) TakePlace(context.Context, producers.Call, time.Duration) (own bool, err error) {
	if c.refused++; c.refused == 1 {
		return false, fmt.Errorf("%w: all 64 are in use", producers.ErrNoRoom)
	}
	return true, nil
}

// With a journal an episode for whose call nobody had room goes on where it was: the call was not made, and no token is sampled again.
func TestAnEpisodeForWhoseCallNobodyHasRoomGoesOnFromItsJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ticket := journalTicket(secondSeed)
		policy := newSeeded(250 * time.Millisecond)
		tool := &crowded{newCounted("look", producers.EffectsLost, time.Second), 1}
		env := journalEnvironment(t, policy, 8, tool)
		want := undisturbed(t, ticket, env)
		policy.Forget()
		tool.refused = 0
		led := newLedger(newStream())
		led.left, led.closedForGood = 1, true // what goes back comes below
		deps := producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}}
		led.offer(ticket, 1)
		p := startWith(t, journalConfig("p1", producers.JournalOn), deps)
		<-time.After(time.Minute)
		p.stop()
		require.Equal(t, 1, led.released)
		led.offer(ticket, 2)
		p = startWith(t, journalConfig("p2", producers.JournalOn), deps)
		<-led.idle
		p.stop()
		require.Empty(t, led.closed)
		require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(led.published[0], want)))
		require.Equal(t, want.ActionTokens(), countSampled(policy), "each token was sampled once")
	})
}
