package streams

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// fixture is a broker with a run on it.
type fixture struct {
	t      *testing.T      // nil in a benchmark
	ctx    context.Context //nolint:containedctx // it is the test's own
	broker *Broker
	config ConnectConfig
	run    *Run

	brokerConfig BrokerConfig // with the port it got
}

func newFixture(tb testing.TB, tcp bool) *fixture {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	tb.Cleanup(cancel)
	config := DefaultBrokerConfig()
	config.StoreDir = tb.TempDir()
	config.Listen = ""
	if tcp {
		config.Listen = "127.0.0.1:-1"
	}
	broker, err := StartBroker(ctx, config, slog.New(slog.DiscardHandler))
	require.NoError(tb, err)
	tb.Cleanup(broker.Shutdown)
	t, _ := tb.(*testing.T)
	f := &fixture{t: t, ctx: ctx, broker: broker, config: ConnectConfig{Broker: broker}}
	if tcp {
		f.config = ConnectConfig{URL: broker.URL()}
		config.Listen = strings.TrimPrefix(broker.URL(), "nats://")
	}
	f.brokerConfig = config
	topology := DefaultTopology()
	topology.WeightsKeep = 2
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

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// restart stops the broker and starts it again on the same store and port.
func (f *fixture) restart(t *testing.T) {
	t.Helper()
	f.broker.Shutdown()
	broker, err := StartBroker(f.ctx, f.brokerConfig, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	f.broker = broker
	t.Cleanup(broker.Shutdown)
}
