package streamtest

import (
	"context"
	"log/slog"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Start starts an embedded broker on a free loopback port that ends with the test.
func Start(tb testing.TB) *broker.Broker {
	tb.Helper()
	return StartIn(tb, Config(tb))
}

// room is what a test's broker may set aside for its streams. It is a number of its own: three quarters of the free space, the default, is
// less than the runs of a suite set aside on a disk that is nearly full, though they never store as much.
const room = 64 << 30

// Config is the configuration that Start uses: a store in the test's directory, a free port, no syncing, room whatever the disk has.
func Config(tb testing.TB) broker.Config {
	tb.Helper()
	c := broker.DefaultConfig()
	c.StoreDir = tb.TempDir()
	c.Listen = "127.0.0.1:0"
	c.SyncAlways = false
	c.MaxStoreBytes = room
	return c
}

// StartIn starts an embedded broker with a configuration.
func StartIn(tb testing.TB, config broker.Config) *broker.Broker {
	tb.Helper()
	b, err := broker.Start(tb.Context(), config, Log(tb))
	require.NoError(tb, err)
	tb.Cleanup(b.Shutdown)
	return b
}

// Conn is a connection to a broker of its own.
func Conn(tb testing.TB) *streams.Conn {
	tb.Helper()
	return Connect(tb, streams.ConnectConfig{Broker: Start(tb)})
}

// Connect connects, for as long as the test runs.
func Connect(tb testing.TB, config streams.ConnectConfig) *streams.Conn {
	tb.Helper()
	if config.Name == "" {
		config.Name = tb.Name()
	}
	c, err := streams.Connect(tb.Context(), config, Log(tb))
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// Open opens a run named "test" with limits that suit a test.
func Open(tb testing.TB, c *streams.Conn) *streams.Run {
	tb.Helper()
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 256<<20, 32<<20 // the broker sets aside as much
	r, err := c.Open(tb.Context(), "test", topology)
	require.NoError(tb, err)
	return r
}

// Log writes to the test's log, and nothing once the test is over.
func Log(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(&testWriter{tb: tb}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ tb testing.TB }

func (w *testWriter) Write(p []byte) (int, error) {
	if context.Cause(w.tb.Context()) == nil {
		w.tb.Logf("%s", p)
	}
	return len(p), nil
}

// Address is where a broker listens, as host and port.
func Address(tb testing.TB, b *broker.Broker) string {
	tb.Helper()
	at, err := url.Parse(b.URL())
	require.NoError(tb, err)
	return at.Host
}
