package servers_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fakeserver"
)

// Finding A13 of the servers' review: a server's own metrics are told by the name of the server, and calls of its other users count where calls
// are routed.
func TestAServersOwnLoadIsSeen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		busy := good()
		busy.Foreign = 40
		w := newWorld(t, kind, nil, busy, good())
		w.run()
		w.swapSoon(0)
		metrics := w.metrics.ForServers()
		until(t, "both are measured", func() bool {
			return testutil.ToFloat64(metrics.Fit) == 2 && testutil.ToFloat64(metrics.Queue.WithLabelValues(w.fakes[0].URL(), "running")) >= 40 &&
				testutil.CollectAndCount(metrics.CacheUse) == 2
		})
		before := w.fakes[0].Calls(generatePath[kind])
		for i := range 6 {
			w.whole(ask(fmt.Sprint("e", i), 4))
		}
		require.Equal(t, before, w.fakes[0].Calls(generatePath[kind]), "the other server is less busy")
		w.Set([]string{w.fakes[1].URL()})
		require.Equal(t, 1, testutil.CollectAndCount(metrics.CacheUse), "a server that is gone has no metrics")
	})
}
