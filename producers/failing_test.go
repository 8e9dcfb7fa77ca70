package producers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// failingReports runs a producer over tickets, one at a time, and returns what it reports of failures.
func failingReports(t *testing.T, tickets int, fails func(ticket int) error) []schemas.Failing {
	t.Helper()
	env, cfg := newEnvironment(t, fresh(t)), config()
	env.AgentName = "mine"
	calls := 0
	inner := env.Agent
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		calls++
		if err := fails(calls - 1); err != nil {
			return err
		}
		return inner.Run(ctx, e)
	})
	var issued []*schemas.Ticket
	for i := range tickets {
		issued = append(issued, newTicket(i))
	}
	cfg.MaxDeliver, cfg.Concurrency = 1, 1
	s := newStream(issued...)
	var mu sync.Mutex
	var reports []schemas.Failing
	p := startWith(t, cfg, producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}, Failing: func(f schemas.Failing) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, f)
	}})
	<-s.idle
	p.stop()
	mu.Lock()
	defer mu.Unlock()
	return reports
}

// N1: a task whose episodes all fail is reported within five of them, then at each doubling, with the failure's own words.
func TestATaskThatFailsIsReported(t *testing.T) {
	away := errors.New("answered 503 Service Unavailable: no chat template")
	reports := failingReports(t, 24, func(int) error { return away })
	var failed []int
	for _, r := range reports {
		failed = append(failed, r.Failed)
		require.Equal(t, "t", r.Task)
		require.False(t, r.Over)
		require.Zero(t, r.Succeeded)
		require.Equal(t, "agent mine: "+away.Error(), r.Last)
		require.Equal(t, map[string]int{"agent": r.Failed}, r.ByCause)
	}
	require.Equal(t, []int{5, 10, 20}, failed)
}

// N1: episodes that succeed again end the report.
func TestATaskThatSucceedsAgainIsReported(t *testing.T) {
	reports := failingReports(t, 90, func(ticket int) error {
		if ticket < 6 {
			return errors.New("away")
		}
		return nil
	})
	require.Len(t, reports, 2)
	require.False(t, reports[0].Over)
	last := reports[1]
	require.True(t, last.Over)
	require.Equal(t, 6, last.Failed)
	require.Equal(t, 54, last.Succeeded, "6 of the newest 60 are a tenth")
}

// A failure now and then is no report: fewer than a quarter of the newest attempts.
func TestAFailureNowAndThenIsNotReported(t *testing.T) {
	require.Empty(t, failingReports(t, 80, func(ticket int) error {
		if ticket%6 == 5 {
			return errors.New("away")
		}
		return nil
	}))
}

// The words of a failure are bounded.
func TestTheWordsOfAFailureAreBounded(t *testing.T) {
	reports := failingReports(t, 5, func(int) error { return errors.New(strings.Repeat("é", 10_000)) })
	require.Len(t, reports, 1)
	require.LessOrEqual(t, len(reports[0].Last), producers.MaxFailureWords)
	require.True(t, strings.HasSuffix(reports[0].Last, "é"))
}

// Failures that are too few for a report are in the log all the same, at each doubling.
func TestSteadyFailuresAreLogged(t *testing.T) {
	var log bytes.Buffer
	env, cfg := newEnvironment(t, fresh(t)), config()
	calls := 0
	inner := env.Agent
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		if calls++; calls%5 == 0 {
			return errors.New("away")
		}
		return inner.Run(ctx, e)
	})
	var issued []*schemas.Ticket
	for i := range 95 {
		issued = append(issued, newTicket(i))
	}
	cfg.MaxDeliver, cfg.Concurrency = 1, 1
	s := newStream(issued...)
	p := startWith(t, cfg, producers.Deps{
		Stream: s, Environments: map[string]producers.Environment{"t": env}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	<-s.idle
	p.stop()
	require.Equal(t, 5+1, strings.Count(log.String(), "level=ERROR"), "of 19 the first five, and the tenth")
}

// sentStream is a stream of a single ticket whose leases tell how often it was sent.
type sentStream struct {
	*stream
	sent int
}

func (s *sentStream) Take(ctx context.Context) (producers.Lease, error) {
	l, err := s.stream.Take(ctx)
	if err != nil {
		return nil, err
	}
	s.sent++
	return sentLease{l.(*lease), s.sent}, nil
}

type sentLease struct {
	*lease
	sent int
}

func (l sentLease) Deliveries() int { return l.sent }

// Finding 12b.3: where the gateway could not listen, every ticket failed until its sample was closed, as fast as tickets came. Finding R4 of a
// review: such a producer took each ticket again about once a second.
func TestAnAgentThatCanBeginNoEpisodeClosesNoSample(t *testing.T) {
	env, cfg := newEnvironment(t, fresh(t)), config()
	calls := 0
	inner := env.Agent
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		if calls++; calls <= 12 {
			return fmt.Errorf("%w: %w: address already in use", producers.ErrUnavailable, producers.ErrNotBegun)
		}
		return inner.Run(ctx, e)
	})
	cfg.MaxDeliver, cfg.Concurrency = 1, 1
	s := newStream(newTicket(1))
	var reports []schemas.Failing
	failing := func(f schemas.Failing) { reports = append(reports, f) }
	p := startWith(t, cfg, producers.Deps{Stream: &sentStream{stream: s}, Environments: map[string]producers.Environment{"t": env}, Failing: failing})
	<-s.idle
	p.stop()
	require.Empty(t, s.closed)
	require.Equal(t, []string{newTicket(1).ID}, ids(s.published))
	require.Equal(t, 12, s.released, "it has not failed")
	require.Len(t, s.returned, 12)
	for i, rest := range s.returned {
		require.Equal(t, min(cfg.RetryDelay<<i, cfg.MaxRetryDelay), rest, "it rests longer each time")
	}
	require.NotEmpty(t, reports)
	require.Equal(t, 5, reports[0].Failed)
	require.Contains(t, reports[0].Last, "address already in use")
}
