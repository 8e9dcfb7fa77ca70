package servers_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// The alarm of finding B1 of the servers' review: a server that ends too few answers at their stops is reported by its name, and a right
// server is not.
func TestAServerWhoseEndsAreBiasedIsReported(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, shy := range []bool{false, true} {
			t.Run(fmt.Sprint("shy ", shy), func(t *testing.T) {
				t.Parallel()
				o := good()
				o.ShyEnds, o.Release = shy, newest[kind]
				w := newWorld(t, kind, func(c *consumers.Config) { c.Server.EndsEvery = 1 }, o)
				log := &lockedBuffer{}
				w.Pool = servers.New(w.cfg, kinds[kind], servers.Options{Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(log, nil))})
				w.run()
				w.swapSoon(0)
				for i := range 500 {
					req := ask(fmt.Sprint("e", i), 12)
					req.StopTokens, req.Last = schemas.Int32s{3, 5}, true
					_, err := w.generate(req)
					require.NoError(t, err)
				}
				name := w.fakes[0].URL()
				deviation := testutil.ToFloat64(w.metrics.ForServers().EndsDeviation.WithLabelValues(name))
				require.Positive(t, testutil.ToFloat64(w.metrics.ForServers().EndsExpected.WithLabelValues(name)))
				if shy {
					require.Less(t, deviation, -5.0)
					require.Contains(t, log.String(), "answers of an inference server end at their stops more or less often")
					require.Contains(t, log.String(), name)
				} else {
					require.InDelta(t, 0, deviation, 4.5)
					require.NotContains(t, log.String(), "answers of an inference server end")
				}
				w.Set(nil)
				require.Zero(t, testutil.CollectAndCount(w.metrics.ForServers().Ends), "a server that is gone has no metrics")
				require.Zero(t, testutil.CollectAndCount(w.metrics.ForServers().EndsExpected))
			})
		}
	})
}
