package streams_test

import (
	"testing"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) {
	streams.StartForTests = func(tb testing.TB, listen, store string) streams.TestBroker {
		tb.Helper()
		config := streamtest.Config(tb)
		config.Listen, config.StoreDir, config.SyncAlways = listen, store, true
		return streamtest.StartIn(tb, config)
	}
	streamtest.Main(m)
}
