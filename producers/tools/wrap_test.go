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

type keeper struct {
	*Search
	ended []string
}

func (k *keeper) EndEpisode(episode string) { k.ended = append(k.ended, episode) }

func TestWrappedToolsLetGoOfEpisodes(t *testing.T) {
	k := &keeper{Search: newSearch(t, DefaultSearchConfig(), corpus)}
	tool, ok := Within(Within(k, time.Second), time.Second).(producers.EpisodeTool)
	require.True(t, ok)
	tool.EndEpisode("e")
	require.Equal(t, []string{"e"}, k.ended)
	Within(k.Search, time.Second).(producers.EpisodeTool).EndEpisode("e") // keeps nothing: nothing to do
}
