package servers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/fakeserver"
)

// checks counts verified loads by their result.
func (w *world) checks(result string) float64 {
	return testutil.ToFloat64(w.metrics.ForServers().WeightChecks.WithLabelValues(result))
}

// Finding A10 of the servers' review: a server that reports a load as done and keeps some tensors of the version before is seen by its
// checksums, takes no calls, and serves again when a load has reached all tensors. A server without checksums is seen where it loaded nothing.
func TestAServerOnOldTensorsIsTakenOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, c := range []struct {
			release fakeserver.Release
			fault   string
		}{
			{newest[kind], "partial"}, {newest[kind], "stale"}, {oldest[kind], "stale"},
		} {
			t.Run(fmt.Sprintf("%s, %s", c.release, c.fault), func(t *testing.T) {
				t.Parallel()
				o := good()
				o.Release = c.release
				w := newWorld(t, kind, func(c *consumers.Config) { c.Server.VerifyEvery = 2 }, o)
				w.run()
				w.swapSoon(0)
				w.swapSoon(1) // verified: the first load that replaces a known version
				w.swapSoon(2)
				require.InDelta(t, 1, w.checks("right"), 0)
				hit := w.fakes[0].Inject(c.fault, 3)
				_, err := w.Swap(t.Context(), w.snapshot(3))
				require.ErrorContains(t, err, "it runs on old tensors")
				if c.fault == "partial" {
					require.ErrorContains(t, err, "layers.1.mlp.")
				}
				require.GreaterOrEqual(t, w.checks("stale"), 1.0)
				w.swapSoon(3)
				w.whole(ask("a", 6))
				<-hit
				require.InDelta(t, 3, w.checks("stale"), 0)
				require.InDelta(t, 2, w.checks("right"), 0)
			})
		}
	})
}

// A server that was seen on old tensors is not admitted by a look that fails: it serves when a load was seen to be right.
func TestALookThatFailsDoesNotClearAServer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		o := good()
		o.Release = newest[kind]
		path := map[fakeserver.Kind]string{fakeserver.VLLM: "/weight_checker", fakeserver.SGLang: "/weights_checker"}[kind]
		doubtful := o
		doubtful.Faults = map[string]int{"503 " + path: 3} // the look after the second load
		w := newWorld(t, kind, nil, doubtful, o)
		w.run()
		w.swapSoon(0)
		until(t, "both serve", func() bool { return testutil.ToFloat64(w.metrics.ForServers().Fit) == 2 })
		w.fakes[0].Inject("stale", 2)
		w.swapSoon(1)
		until(t, "the third load is seen to be right", func() bool { return w.checks("right") == 2 })
		require.InDelta(t, 1, w.checks("stale"), 0)
		require.InDelta(t, 1, w.checks("unknown"), 0)
	})
}

// A version that changed nothing is right, and loads between two verified ones are not looked at.
func TestWhichLoadsAreVerified(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		o := good()
		o.Release = newest[kind]
		path := map[fakeserver.Kind]string{fakeserver.VLLM: "/weight_checker", fakeserver.SGLang: "/weights_checker"}[kind]
		w := newWorld(t, kind, func(c *consumers.Config) { c.Server.VerifyEvery = 3 }, o)
		w.run()
		for v := range int64(6) {
			w.swapSoon(v)
		}
		require.Equal(t, 4, w.fakes[0].Calls(path), "before and after the first and the fourth load of five that replaced a version")
		require.InDelta(t, 2, w.checks("right"), 0)
		same := w.snapshot(5)
		same.Version = 6
		until(t, "version 6", func() bool { _, err := w.Swap(t.Context(), same); return err == nil })
		w.swapSoon(7)
		require.InDelta(t, 0, w.checks("stale"), 0)

		none := newWorldOver(t, w, func(c *consumers.Config) { c.Server.VerifyEvery = 0 }, w.fakes[0].URL())
		before := w.fakes[0].Calls(path)
		none.run()
		none.swapSoon(0)
		none.swapSoon(1)
		require.Equal(t, before, w.fakes[0].Calls(path))
	})
}

// Finding B8 of the servers' review: a load that fails half way ends SGLang's scheduler, whose rollback reads the new path. Its calls go on
// elsewhere.
func TestALoadThatEndsAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fakeserver.SGLang, nil, good(), good())
	w.run()
	w.swapSoon(0)
	until(t, "both serve", func() bool { return testutil.ToFloat64(w.metrics.ForServers().Fit) == 2 })
	w.fakes[0].Inject("broken", 1)
	w.swapSoon(1)
	until(t, "the server is down", func() bool { return w.fakes[0].Dead() && testutil.ToFloat64(w.metrics.ForServers().Fit) == 1 })
	for i := range 4 {
		w.whole(ask(fmt.Sprint("e", i), 6))
	}
}

// Finding B5 of the servers' review: SGLang aborts in rounds of a second, and a pause takes as long.
func TestAPauseThatTakesARound(t *testing.T) {
	t.Parallel()
	o := good()
	o.AbortRound = time.Second
	w := newWorld(t, fakeserver.SGLang, nil, o)
	w.run()
	w.swapSoon(0)
	swapped, err := w.Swap(t.Context(), w.snapshot(1))
	require.NoError(t, err)
	require.GreaterOrEqual(t, swapped.Pause, time.Second)
	w.whole(ask("a", 6))
}
