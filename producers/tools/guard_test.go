package tools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// service is a tool that fails as it is told.
type service struct {
	calls  atomic.Int64
	answer func(n int64) error
}

func (s *service) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "service"} }

func (s *service) Call(context.Context, producers.Call) (producers.Observation, error) {
	return producers.Observation{}, s.answer(s.calls.Add(1))
}

var errAway = fmt.Errorf("%w: away", producers.ErrUnavailable)

func guard(t *testing.T, change func(*GuardConfig), tool producers.Tool) producers.Tool {
	t.Helper()
	cfg := DefaultGuardConfig()
	change(&cfg)
	g, err := NewGuard(cfg)
	require.NoError(t, err)
	guarded, err := g.Wrap(tool)
	require.NoError(t, err)
	return guarded
}

func TestRetryIsForTheMachinerysFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		three := func(c *GuardConfig) { c.Retry.Attempts = 3 }
		for _, c := range []struct {
			name   string
			answer func(n int64) error
			calls  int64
			err    error
		}{
			{"back at the third", func(n int64) error { return map[bool]error{true: errAway}[n < 3] }, 3, nil},
			{"away", func(int64) error { return errAway }, 3, producers.ErrUnavailable},
			{"the agent's fault", func(int64) error { return context.Canceled }, 1, context.Canceled},
		} {
			s := &service{answer: c.answer}
			_, err := guard(t, three, s).Call(t.Context(), producers.Call{})
			require.ErrorIs(t, err, c.err, c.name)
			require.Equal(t, c.calls, s.calls.Load(), c.name)
		}
	})
	g, err := NewGuard(GuardConfig{Retry: RetryConfig{Attempts: 2}, Breaker: BreakerConfig{Pause: 1}})
	require.NoError(t, err)
	_, err = g.Wrap(&keeper{Search: newSearch(t, DefaultSearchConfig(), corpus)})
	require.ErrorContains(t, err, "retry.attempts: 2: tool search keeps what earlier calls did")
}

func TestCallsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var most, now atomic.Int64
		s := &service{answer: func(int64) error {
			most.Store(max(most.Load(), now.Add(1)))
			<-release
			now.Add(-1)
			return nil
		}}
		tool := guard(t, func(c *GuardConfig) { c.MaxConcurrent = 2 }, s)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := tool.Call(t.Context(), producers.Call{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := tool.Call(ctx, producers.Call{})
		require.ErrorIs(t, err, producers.ErrUnavailable, "no room within its time is the machinery's failure")
		require.ErrorContains(t, err, "max_concurrent, 2")
		close(release)
		all.Wait()
		require.Equal(t, int64(2), most.Load())
		require.Equal(t, int64(5), s.calls.Load())
	})
}

func TestBreakerLeavesAToolAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := true
		s := &service{answer: func(int64) error {
			if away {
				return errAway
			}
			return nil
		}}
		tool := guard(t, func(c *GuardConfig) { c.Breaker = BreakerConfig{Failures: 3, Pause: time.Minute} }, s)
		within := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := tool.Call(ctx, producers.Call{})
			return err
		}
		for range 3 {
			require.ErrorIs(t, within(time.Hour), errAway)
		}
		start := time.Now()
		err := within(30 * time.Second)
		require.ErrorIs(t, err, producers.ErrUnavailable)
		require.ErrorContains(t, err, "3 calls in a row were unavailable")
		require.Zero(t, time.Since(start), "there is nothing to wait for within its time")
		require.Equal(t, int64(3), s.calls.Load())

		// One of many tries after the pause; it fails, and the others wait for another.
		var all sync.WaitGroup
		results := make([]error, 4)
		for i := range results {
			all.Go(func() { results[i] = within(90 * time.Second) })
		}
		all.Wait()
		require.Equal(t, int64(4), s.calls.Load(), "one of them tried")
		for _, err := range results {
			require.ErrorIs(t, err, producers.ErrUnavailable)
		}

		away = false
		for i := range results {
			all.Go(func() { results[i] = within(time.Hour) })
		}
		all.Wait()
		for _, err := range results {
			require.NoError(t, err, "the first found it back")
		}
		require.Equal(t, int64(8), s.calls.Load())
		start = time.Now()
		require.NoError(t, within(time.Hour))
		require.Zero(t, time.Since(start))
	})
}

// What agents do wrong opens no breaker.
func TestRefusalsOpenNoBreaker(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(int64) error { return errors.New("division by zero") }}
	tool := guard(t, func(c *GuardConfig) { c.Breaker.Failures = 1 }, s)
	for range 5 {
		_, err := tool.Call(t.Context(), producers.Call{})
		require.EqualError(t, err, "division by zero")
	}
	require.Equal(t, int64(5), s.calls.Load())
}

func TestGuardConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := NewGuard(GuardConfig{MaxConcurrent: -1, Breaker: BreakerConfig{Failures: -1}, Retry: RetryConfig{Backoff: -1}})
	for _, key := range []string{"max_concurrent", "retry.attempts", "retry.backoff", "breaker.failures", "breaker.pause"} {
		require.ErrorContains(t, err, key+":")
	}
}
