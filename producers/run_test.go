package producers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

func config() producers.Config {
	cfg := producers.DefaultConfig()
	cfg.Name, cfg.Concurrency = "p", 4
	return cfg
}

func TestEveryTicketGivesItsTrajectory(t *testing.T) {
	var tickets []*schemas.Ticket
	var want []string
	for i := range 10 {
		tickets = append(tickets, newTicket(i))
		want = append(want, newTicket(i).ID)
	}
	s := newStream(tickets...)
	p := start(t, config(), s, newEnvironment(t, &scripted{tok: newTokenizer(t), lines: rightLines}))
	<-s.idle
	p.stop()
	require.Equal(t, want, ids(s.published))
	require.ElementsMatch(t, want, s.done)
	for _, trajectory := range s.published {
		require.Equal(t, "p", trajectory.Producer)
		require.NoError(t, trajectory.Validate())
	}
}

// Whatever fails on the way, a ticket ends with its trajectory or with its sample closed, and an infrastructure
// fault is tried again a bounded number of times.
func TestFailuresReturnTheTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		right := &scripted{tok: newTokenizer(t), lines: rightLines}
		policy := policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
			if calls.Add(1) <= 2 {
				return nil, errors.New("no engine")
			}
			return right.Generate(ctx, r)
		})
		s := newStream(newTicket(0))
		p := start(t, config(), s, newEnvironment(t, policy))
		<-s.idle
		p.stop()
		require.Equal(t, []string{"g0-0-0"}, ids(s.published))
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, s.returned)
		require.Empty(t, s.closed)
	})
}

func TestTheLastFailureClosesTheSample(t *testing.T) {
	policy := policyFunc(func(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
		return nil, errors.New("no engine")
	})
	ticket := newTicket(3)
	ticket.Sample, ticket.GroupSize = 2, 4
	s := newStream(ticket)
	p := start(t, config(), s, newEnvironment(t, policy))
	<-s.idle
	p.stop()
	require.Empty(t, s.published)
	require.Len(t, s.returned, 2)
	require.Len(t, s.closed, 1)
	require.Equal(t, "g3-0", s.closed[0].Group)
	require.Equal(t, []int{2}, s.closed[0].Cancelled)
	require.Contains(t, s.closed[0].Why, "no engine")
	require.Equal(t, []string{ticket.ID}, s.done)
}

// A trajectory that could not be stored is made again; one whose ticket could not be ended is stored again under
// the same id.
func TestNothingIsLostBetweenPublishAndDone(t *testing.T) {
	s := newStream(newTicket(0), newTicket(1))
	s.failPublish, s.failDone = 1, 1
	cfg := config()
	cfg.Concurrency = 1
	p := start(t, cfg, s, newEnvironment(t, fresh(t)))
	<-s.idle
	p.stop()
	require.Equal(t, []string{"g0-0-0", "g1-0-0", "g1-0-0"}, ids(s.published))
	require.ElementsMatch(t, []string{"g0-0-0", "g1-0-0"}, s.done)
}

// fresh is a policy that answers at once, as often as it is asked.
func fresh(t *testing.T) policyFunc {
	t.Helper()
	tok := newTokenizer(t)
	return func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		return (&scripted{tok: tok, lines: []string{"<answer> helsinki </answer>"}}).Generate(ctx, r)
	}
}

// blocked is a policy that says one line and then blocks until its context ends.
func blocked(t *testing.T, reached chan<- struct{}) policyFunc {
	t.Helper()
	first := &scripted{tok: newTokenizer(t), lines: []string{"<search> sweden </search>"}, versions: []int32{5}}
	return func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		if g, err := first.Generate(ctx, r); err == nil {
			return g, nil
		}
		reached <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
}

func TestControlCutsOffWhatNobodyCanUse(t *testing.T) {
	for _, tc := range []struct {
		name    string
		control schemas.Control
		why     string
	}{
		{"a token is too old", schemas.Control{MinVersion: 6}, "older"},
		{"its group is cancelled", schemas.Control{Cancelled: []string{"g0-0"}}, "cancelled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reached := make(chan struct{}, 1)
			s := newStream(newTicket(0))
			p := start(t, config(), s, newEnvironment(t, blocked(t, reached)))
			<-reached
			s.control <- &schemas.Control{MinVersion: 5, Cancelled: []string{"g7-0"}} // does not concern it
			s.control <- &tc.control
			<-s.idle
			p.stop()
			require.Empty(t, s.published)
			require.Len(t, s.closed, 1)
			require.Equal(t, []int{0}, s.closed[0].Cancelled)
			require.Contains(t, s.closed[0].Why, tc.why)
			require.Equal(t, []string{"g0-0-0"}, s.done)
		})
	}
}

func TestATicketOfACancelledGroupIsClosedUnserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.left = 1
		asked := false
		p := start(t, config(), s, newEnvironment(t, policyFunc(func(ctx context.Context, _ *schemas.GenerateRequest) (*generate.Result, error) {
			asked = ctx.Err() == nil
			return nil, errors.New("asked")
		})))
		s.control <- &schemas.Control{Cancelled: []string{"g0-0"}}
		synctest.Wait()
		s.offer(newTicket(0), 1)
		<-s.idle
		p.stop()
		require.False(t, asked)
		require.Len(t, s.closed, 1)
	})
}

// Defect P20: nobody hears of a ticket whose lease is lost, and the producer goes on with the next one, though it may hold no
// more leases than it runs episodes.
func TestALostLeaseIsAbandonedSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan struct{}, 1)
		quick, stuck := fresh(t), blocked(t, reached)
		s := newStream()
		s.left, s.slots = 1, make(chan struct{}, 1)
		l := s.offer(newTicket(0), 1)
		s.offer(newTicket(1), 1)
		cfg := config()
		cfg.Concurrency = 1
		p := start(t, cfg, s, newEnvironment(t, policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
			if r.Episode == "g0-0-0" {
				return stuck(ctx, r)
			}
			return quick(ctx, r)
		})))
		<-reached
		l.lose()
		<-s.idle
		p.stop()
		require.Equal(t, []string{"g1-0-0"}, ids(s.published))
		require.Empty(t, s.closed)
		require.Equal(t, []string{"g1-0-0"}, s.done)
		require.Empty(t, s.returned)
	})
}

// Told to stop, a producer finishes what ends within the grace and returns the rest.
func TestDraining(t *testing.T) {
	for _, how := range []string{"context", "control"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := make(chan struct{}, 2)
				quick, stuck := fresh(t), blocked(t, reached)
				release := make(chan struct{})
				policy := policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
					if r.Episode == "g1-0-0" {
						return stuck(ctx, r)
					}
					reached <- struct{}{}
					<-release
					return quick(ctx, r)
				})
				s := newStream(newTicket(0), newTicket(1))
				p := start(t, config(), s, newEnvironment(t, policy))
				<-reached
				<-reached
				if how == "context" {
					p.cancel()
				} else {
					s.control <- &schemas.Control{Draining: true}
				}
				synctest.Wait()
				s.offer(newTicket(2), 1) // must stay where it is
				close(release)
				require.NoError(t, <-p.ended)
				p.cancel()
				require.Equal(t, []string{"g0-0-0"}, ids(s.published))
				require.Equal(t, []time.Duration{0}, s.returned)
				require.Equal(t, 1, s.released, "it has not failed")
				require.Equal(t, []string{"g0-0-0"}, s.done)
				require.Len(t, s.tickets, 2)
			})
		})
	}
}

func TestPausedTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.left = 1
		p := start(t, config(), s, newEnvironment(t, fresh(t)))
		synctest.Wait()
		s.control <- &schemas.Control{Paused: true}
		synctest.Wait()
		s.offer(newTicket(0), 1)
		synctest.Wait()
		require.Len(t, s.tickets, 1)
		s.control <- &schemas.Control{}
		<-s.idle
		p.stop()
		require.Equal(t, []string{"g0-0-0"}, ids(s.published))
	})
}

func TestNothingSampledClosesTheSample(t *testing.T) {
	ticket := newTicket(0)
	ticket.Limits.MaxTokens = 3 // the prompt alone is longer
	s := newStream(ticket)
	p := start(t, config(), s, newEnvironment(t, fresh(t)))
	<-s.idle
	p.stop()
	require.Empty(t, s.published)
	require.Empty(t, s.returned)
	require.Len(t, s.closed, 1)
}

// Defects S14 and P15: engines that are away, or full, for longer than the time limit are not the sample's fault: its ticket is
// tried again as often as it takes.
func TestATimeoutBeforeTheFirstTokenReturnsTheTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := fresh(t)
		began := time.Now()
		policy := policyFunc(func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
			if time.Since(began) < 10*time.Minute {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return answer(ctx, r)
		})
		ticket := newTicket(0)
		ticket.Limits.Timeout = time.Minute
		s := newStream(ticket)
		p := start(t, config(), s, newEnvironment(t, policy))
		<-s.idle
		p.stop()
		require.Greater(t, len(s.returned), config().MaxDeliver)
		require.Len(t, s.returned, s.released)
		require.Empty(t, s.closed)
		require.Equal(t, []string{"g0-0-0"}, ids(s.published))
	})
}

// A slot that cannot take tickets any more ends the producer, and what still runs goes back.
func TestATakeThatFailsEndsTheProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan struct{}, 1)
		s := newStream(newTicket(0))
		p := start(t, config(), s, newEnvironment(t, blocked(t, reached)))
		<-reached
		s.closedForGood = true
		close(s.tickets)
		err := <-p.ended
		p.cancel()
		require.ErrorContains(t, err, "take a ticket: the source is closed")
		require.Equal(t, []time.Duration{0}, s.returned)
	})
}

func TestRunRefusesAWrongConfiguration(t *testing.T) {
	err := producers.Run(context.Background(), producers.Config{MaxRetryDelay: -1, Grace: -1}, producers.Deps{})
	for _, want := range []string{
		"name", "concurrency: 0", "max_deliver: 0", "max_retry_delay", "grace", "settle", "producer needs Stream", "producer needs Environments",
	} {
		require.ErrorContains(t, err, want)
	}
	half := newEnvironment(t, fresh(t))
	half.Agent, half.Reward = nil, nil
	err = producers.Run(context.Background(), config(), producers.Deps{
		Stream: newStream(), Environments: map[string]producers.Environment{"": newEnvironment(t, fresh(t)), "quiz": half, "whole": newEnvironment(t, fresh(t))},
	})
	require.EqualError(t, err, "producer: task \"\": an environment needs the name of its task\n"+
		"task \"quiz\": environment: Agent is nil\nenvironment: Reward is nil")
}
