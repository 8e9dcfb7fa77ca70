package tools

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// The latencies have the median and the 99th percentile asked for, and the same call has the same one.
func TestLatencyDistribution(t *testing.T) {
	cfg := LatencyConfig{Median: 100 * time.Millisecond, P99: 2 * time.Second}
	var drawn []time.Duration
	for seed := range uint64(5000) {
		for index := range 4 {
			drawn = append(drawn, cfg.Draw(seed, index))
			require.Equal(t, drawn[len(drawn)-1], cfg.Draw(seed, index))
		}
	}
	slices.Sort(drawn)
	require.InEpsilon(t, 100, drawn[len(drawn)/2].Milliseconds(), 0.04)
	require.InEpsilon(t, 2000, drawn[len(drawn)*99/100].Milliseconds(), 0.10)
	require.Zero(t, LatencyConfig{}.Draw(1, 1))
	require.ErrorContains(t, LatencyConfig{Median: 2, P99: 1}.Validate(), "p99: 1ns")
	require.ErrorContains(t, LatencyConfig{Median: -1}.Validate(), "median: -1ns")
	require.NoError(t, LatencyConfig{}.Validate())
}

// So many calls take the slow time, and the others their own; the share alone decides which.
func TestLatencyOfTwoModes(t *testing.T) {
	cfg := LatencyConfig{Median: 50 * time.Millisecond, P99: 50 * time.Millisecond, SlowShare: 0.1, Slow: 1200 * time.Millisecond}
	slow := 0
	for seed := range uint64(5000) {
		for index := range 4 {
			took := cfg.Draw(seed, index)
			require.Equal(t, took, cfg.Draw(seed, index))
			if took == cfg.Slow {
				slow++
				continue
			}
			require.Equal(t, cfg.Median, took)
		}
	}
	require.InDelta(t, 2000, slow, 130) // three standard deviations
	require.Equal(t, time.Second, LatencyConfig{SlowShare: 1, Slow: time.Second}.Draw(1, 1))
	require.Zero(t, LatencyConfig{Slow: time.Second}.Draw(1, 1))
	require.ErrorContains(t, LatencyConfig{SlowShare: 1.5}.Validate(), "slow_share: 1.5")
	require.ErrorContains(t, LatencyConfig{Slow: -1}.Validate(), "slow: -1ns")
}

func TestSlowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := LatencyConfig{Median: time.Second, P99: 3 * time.Second}
		slow, err := Slow(newSearch(t, DefaultSearchConfig(), corpus), cfg)
		require.NoError(t, err)
		start := time.Now()
		_, err = slow.Call(t.Context(), producers.Call{Arguments: "sweden", Seed: 5, Index: 2})
		require.NoError(t, err)
		require.Equal(t, cfg.Draw(5, 2), time.Since(start))

		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		_, err = slow.Call(ctx, producers.Call{Arguments: "sweden"})
		require.ErrorIs(t, err, why)
	})
}

func TestWithinTellsTheAgentOfATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, err := Slow(newSearch(t, DefaultSearchConfig(), corpus), LatencyConfig{Median: time.Hour, P99: time.Hour})
		require.NoError(t, err)
		_, err = Within(slow, time.Second).Call(t.Context(), producers.Call{Arguments: "sweden"})
		require.EqualError(t, err, "timed out after 1s")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = Within(slow, time.Second).Call(ctx, producers.Call{Arguments: "sweden"})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// keeper keeps sessions, each of which has a workspace.
type keeper struct {
	*Search
	open, closed []string
}

func (k *keeper) Open(_ context.Context, s producers.Session) error {
	k.open = append(k.open, s.Episode)
	return nil
}

func (k *keeper) Close(_ context.Context, episode string) error {
	k.closed = append(k.closed, episode)
	return nil
}

func (k *keeper) Workspace(episode string) (producers.Workspace, bool) {
	return nil, slices.Contains(k.open, episode)
}

func TestWrappedToolsHaveTheSessionsOfTheToolWithin(t *testing.T) {
	k := &keeper{Search: newSearch(t, DefaultSearchConfig(), corpus)}
	tool, ok := Within(Within(k, time.Second), time.Second).(producers.Workspaced)
	require.True(t, ok)
	_, there := tool.Workspace("e")
	require.False(t, there)
	require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: "e"}))
	_, there = tool.Workspace("e")
	require.True(t, there)
	require.NoError(t, tool.Close(t.Context(), "e"))
	require.Equal(t, []string{"e"}, k.open)
	require.Equal(t, []string{"e"}, k.closed)

	bare := Within(k.Search, time.Second).(producers.Workspaced) // keeps nothing: nothing to do
	require.NoError(t, bare.Open(t.Context(), producers.Session{Episode: "e"}))
	require.NoError(t, bare.Close(t.Context(), "e"))
	_, there = bare.Workspace("e")
	require.False(t, there)
}

// far is a tool whose sessions are elsewhere.
type far struct{ *keeper }

func (far) Place() string { return "at a worker" }

// Reader 10, finding 3: what an episode waits for was not named where the tool was wrapped.
func TestWrappedToolsAreWhereTheToolWithinIs(t *testing.T) {
	k := &keeper{Search: newSearch(t, DefaultSearchConfig(), corpus)}
	slow, err := Slow(far{k}, LatencyConfig{Median: time.Millisecond, P99: time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, "at a worker", Within(slow, time.Second).(producers.Apart).Place())
	require.Empty(t, Within(k, time.Second).(producers.Apart).Place())
}

// taker is a tool that takes places.
type taker struct {
	*keeper
	described
}

func (taker) Spec() producers.ToolSpec { return described{`{"type": "object"}`}.Spec() }
func (t taker) Call(ctx context.Context, call producers.Call) (producers.Observation, error) {
	return t.described.Call(ctx, call)
}

func (taker) TakePlace(_ context.Context, call producers.Call, patience time.Duration) (bool, error) {
	if patience == time.Hour {
		return false, producers.ErrNoRoom
	}
	return call.Episode == "e", nil
}

// A wrapped tool takes its places as the tool within does: no wrapper's time limit, latency or bound on calls holds it up. A call whose
// arguments are refused takes none.
func TestWrappedToolsTakeThePlacesOfTheToolWithin(t *testing.T) {
	t.Parallel()
	cfg := DefaultGuardConfig()
	cfg.MaxConcurrent = 1
	guard, err := NewGuard(cfg)
	require.NoError(t, err)
	guard.slots <- struct{}{} // another call goes on
	tool, err := guard.Wrap(taker{keeper: &keeper{Search: newSearch(t, DefaultSearchConfig(), corpus)}})
	require.NoError(t, err)
	tool = Cut(Checked(tool), producers.Cut{Tokens: 7, Keep: producers.KeepLeft})
	tool, err = Slow(tool, LatencyConfig{Median: time.Hour, P99: time.Hour})
	require.NoError(t, err)
	tool = Within(tool, time.Nanosecond)
	for _, c := range []struct {
		call     producers.Call
		patience time.Duration
		own      bool
		fails    error
	}{
		{producers.Call{Episode: "e", Arguments: "{}"}, time.Second, true, nil},
		{producers.Call{Episode: "other", Arguments: "{}"}, time.Second, false, nil},
		{producers.Call{Episode: "e", Arguments: "{}"}, time.Hour, false, producers.ErrNoRoom},
		{producers.Call{Episode: "e", Arguments: "what"}, time.Hour, false, nil},
	} {
		own, err := producers.TakePlaceOf(t.Context(), tool, c.call, c.patience)
		require.ErrorIs(t, err, c.fails)
		require.Equal(t, c.own, own)
	}
	require.IsType(t, taker{}, Bare(tool))
}

// long is a tool with a bound of its own.
type long struct{ *Search }

func (long) Cut() producers.Cut { return producers.Cut{Tokens: 7, Keep: producers.KeepLeft} }

// A tool keeps the bound on its observations through all that wraps it, unless the configuration sets another.
func TestWrappedToolsHaveTheBoundOfTheToolWithin(t *testing.T) {
	plain := newSearch(t, DefaultSearchConfig(), corpus)
	bound := func(tool producers.Tool) producers.Cut { return Within(tool, time.Second).(producers.Bounded).Cut() }
	set := producers.Cut{Tokens: 3, Keep: producers.KeepRight}
	require.Equal(t, producers.DefaultCut(), bound(plain))
	require.Equal(t, 7, bound(long{plain}).Tokens)
	require.Equal(t, 7, bound(Cut(long{plain}, producers.DefaultCut())).Tokens)
	require.Equal(t, set, bound(Cut(long{plain}, set)))
	require.Equal(t, set, bound(Cut(plain, set)))
	require.Same(t, plain, Bare(Within(Cut(Within(plain, time.Second), set), time.Second)))
}

// deaf is a tool that ignores its context.
type deaf struct {
	*Search
	hold chan struct{}
}

func (d deaf) Call(context.Context, producers.Call) (producers.Observation, error) {
	<-d.hold
	return producers.Observation{}, nil
}

func TestACallThatIgnoresItsTimeLimitIsLeftBehindAndSoManyOfThemRefuseTheTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deaf{newSearch(t, DefaultSearchConfig(), corpus), make(chan struct{})}
		tool := Within(d, time.Minute)
		for range maxAbandoned {
			_, err := tool.Call(t.Context(), producers.Call{})
			require.EqualError(t, err, "timed out after 1m0s", "the turn is lost, and the agent is told")
			require.NotErrorIs(t, err, producers.ErrUnavailable)
		}
		_, err := tool.Call(t.Context(), producers.Call{})
		require.ErrorIs(t, err, producers.ErrUnavailable)
		require.ErrorContains(t, err, "32 calls still run though their time is over")
		close(d.hold)
		synctest.Wait()
		_, err = tool.Call(t.Context(), producers.Call{})
		require.NoError(t, err, "they have ended")
	})
}
