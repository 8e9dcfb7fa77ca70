package generate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) { streamtest.Main(m) }

// viaTransports runs a test over the in-process connection and over TCP.
func viaTransports(t *testing.T, test func(*fixture)) {
	t.Helper()
	t.Run("in process", func(t *testing.T) { test(newFixture(t, false)) })
	t.Run("tcp", func(t *testing.T) { test(newFixture(t, true)) })
}

// fixture is a broker with the run "test" on it.
type fixture struct {
	t            *testing.T      // nil in a benchmark
	ctx          context.Context //nolint:containedctx // it is the test's own
	broker       *broker.Broker
	brokerConfig broker.Config
	config       streams.ConnectConfig
	run          *streams.Run
}

func newFixture(tb testing.TB, tcp bool) *fixture {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	tb.Cleanup(cancel)
	t, _ := tb.(*testing.T)
	f := &fixture{t: t, ctx: ctx, brokerConfig: streamtest.Config(tb)}
	f.brokerConfig.Listen = ""
	if tcp {
		f.brokerConfig.Listen = streamtest.FreeAddress(tb)
	}
	f.start(tb)
	f.config.Broker = f.broker
	if tcp {
		f.config = streams.ConnectConfig{URL: f.broker.URL()}
	}
	f.run = streamtest.Open(tb, streamtest.Connect(tb, f.config))
	return f
}

func (f *fixture) start(tb testing.TB) {
	tb.Helper()
	f.broker = streamtest.StartIn(tb, f.brokerConfig)
}

// attach is another process's handle on the run.
func (f *fixture) attach(tb testing.TB) *streams.Run {
	tb.Helper()
	r, err := streamtest.Connect(tb, f.config).Attach(f.ctx, "test")
	require.NoError(tb, err)
	return r
}

// restart stops the broker and starts it again on the same store and port.
func (f *fixture) restart(tb testing.TB) {
	tb.Helper()
	f.broker.Shutdown()
	f.start(tb)
}
