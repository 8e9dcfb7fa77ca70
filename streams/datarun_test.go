package streams

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/ports"
)

// viaTransports runs a test over the in-process connection and over TCP.
func viaTransports(t *testing.T, test func(*fixture)) {
	t.Helper()
	for _, tcp := range []bool{false, true} {
		name := "in process"
		if tcp {
			name = "tcp"
		}
		t.Run(name, func(t *testing.T) { test(newFixture(t, tcp)) })
	}
}

// StartForTests starts a broker in this process that listens on an address, "" for none, and keeps its streams in a folder. The
// tests of this package get it from those of streams_test: package broker imports this one.
var StartForTests func(tb testing.TB, listen, store string) TestBroker

// TestBroker is a broker as the tests of this package use it.
type TestBroker interface {
	Embedded
	URL() string
	Shutdown()
}

// fixture is a broker with a run on it.
type fixture struct {
	t      *testing.T      // nil in a benchmark
	ctx    context.Context //nolint:containedctx // it is the test's own
	broker TestBroker
	config ConnectConfig
	run    *Run

	listen, store string
}

func newFixture(tb testing.TB, tcp bool) *fixture {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	tb.Cleanup(cancel)
	t, _ := tb.(*testing.T)
	f := &fixture{t: t, ctx: ctx, store: tb.TempDir()}
	if tcp {
		port, err := ports.Reserve()
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, port.Release()) })
		f.listen = port.Address
	}
	f.broker = StartForTests(tb, f.listen, f.store)
	f.config = ConnectConfig{Broker: f.broker}
	if tcp {
		f.config = ConnectConfig{URL: f.broker.URL()}
	}
	topology := DefaultTopology()
	topology.WeightsKeep = 2
	var err error
	f.run, err = f.connect(tb).Open(ctx, "run-1", topology)
	require.NoError(tb, err)
	return f
}

// connect makes a connection that ends with the test.
func (f *fixture) connect(tb testing.TB) *Conn {
	tb.Helper()
	c, err := Connect(f.ctx, f.config, slog.New(slog.DiscardHandler))
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// attach is another process's handle on the run.
func (f *fixture) attach(tb testing.TB) *Run {
	tb.Helper()
	r, err := f.connect(tb).Attach(f.ctx, "run-1")
	require.NoError(tb, err)
	return r
}

// restart stops the broker and starts it again on the same store and port.
func (f *fixture) restart(t *testing.T) {
	t.Helper()
	f.broker.Shutdown()
	f.broker = StartForTests(t, f.listen, f.store)
}
