package streambench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

func dialer(tb testing.TB, broker *broker.Broker) Dial {
	tb.Helper()
	return func(ctx context.Context) (*streams.Conn, error) {
		return streams.Connect(ctx, streams.ConnectConfig{URL: broker.URL()}, nil)
	}
}

// A small run measures everything, and leaves the broker, another run on it included, as it found it.
func TestRunMeasuresAndLeavesNothingBehind(t *testing.T) {
	conn := streamtest.Connect(t, streams.ConnectConfig{URL: streamtest.Start(t).URL()})
	other := streamtest.Open(t, conn)
	require.NoError(t, other.Publish(t.Context(), streamtest.Trajectory(1, 0, 10, 3)))
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	before := streamNames(t, js)

	config := Config{Size: 8000, Batch: 6, Producers: 2, Rounds: 2, Batches: 3, Calls: 20}
	dial := func(ctx context.Context) (*streams.Conn, error) {
		return streams.Connect(ctx, streams.ConnectConfig{URL: conn.NATS().ConnectedUrl()}, nil)
	}
	report, err := Run(t.Context(), config, dial)
	require.NoError(t, err)
	require.Equal(t, before, streamNames(t, js))
	counts, err := other.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, counts.Trajectories)

	require.InDelta(t, config.Size, report.Bytes, 1000)
	require.Len(t, report.Ways, 3)
	require.Equal(t, harness.Spread{Median: 1, Min: 1, Max: 1}, report.Ways[0].RateRatio)
	for _, way := range report.Ways {
		for _, figure := range []harness.Spread{way.Rate, way.RateRatio} {
			requireSound(t, figure)
		}
	}
	for _, figure := range []harness.Spread{
		report.Codec.EncodeReused, report.Codec.DecodeReused, report.Codec.DecodeFresh,
		report.Tickets.Issue, report.Tickets.Done, report.Generate.Alone, report.Generate.Together,
	} {
		requireSound(t, figure)
	}
	var out strings.Builder
	report.Print(&out)
	require.Contains(t, out.String(), wayBare)
}

// A run that fails half way is removed too.
func TestRunRemovesARunThatFailed(t *testing.T) {
	conn := streamtest.Connect(t, streams.ConnectConfig{URL: streamtest.Start(t).URL()})
	js, err := jetstream.New(conn.NATS())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	dialled := 0
	_, err = Run(ctx, Config{Size: 8000, Batch: 2, Producers: 2, Rounds: 1, Batches: 1, Calls: 1}, func(ctx context.Context) (*streams.Conn, error) {
		if dialled++; dialled == 3 {
			cancel()
		}
		return streams.Connect(ctx, streams.ConnectConfig{URL: conn.NATS().ConnectedUrl()}, nil)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, streamNames(t, js))
}

func TestConfigNamesItsFaults(t *testing.T) {
	t.Parallel()
	require.NoError(t, Default().Validate())
	err := Config{Size: 1, Batch: 2, Producers: 3, Rounds: 1, Batches: 1, Calls: 1}.Validate()
	require.ErrorContains(t, err, "size: 1: must be between 4096")
	require.ErrorContains(t, err, "producers: 3: must be at most batch, which is 2")
}

func requireSound(t *testing.T, s harness.Spread) {
	t.Helper()
	require.Positive(t, s.Min)
	require.LessOrEqual(t, s.Min, s.Median)
	require.LessOrEqual(t, s.Median, s.Max)
}

func streamNames(t *testing.T, js jetstream.JetStream) (all []string) {
	t.Helper()
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		all = append(all, name)
	}
	require.NoError(t, names.Err())
	return all
}

// BenchmarkWay moves batches by each way alone, for profiles; the command compares them.
func BenchmarkWay(b *testing.B) {
	broker := streamtest.Start(b)
	config := Default()
	dial := dialer(b, broker)
	conn, err := dial(b.Context())
	require.NoError(b, err)
	b.Cleanup(conn.Close)
	run, err := conn.Open(b.Context(), "test", benchTopology(config))
	require.NoError(b, err)
	ways, closeAll, err := openWays(b.Context(), config, dial, run, harness.Trajectory("test", config.Size))
	require.NoError(b, err)
	b.Cleanup(closeAll)
	rounds := 0
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			b.ReportAllocs()
			used := harness.CPUTime()
			for b.Loop() {
				rounds++
				require.NoError(b, moveRound(b.Context(), config, w, fmt.Sprint("r", rounds)))
			}
			each := float64(b.N * config.Batch * config.Batches)
			b.ReportMetric(float64((harness.CPUTime()-used).Microseconds())/each, "cpu-us/trajectory")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/each, "us/trajectory")
		})
	}
}
