package servers_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
)

// A list that is empty, as while it is written, takes no server out; the list that is there then is taken.
func TestAListThatIsBeingWrittenTakesNoServerOut(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "list")
	write := func(text string) { require.NoError(t, os.WriteFile(list, []byte(text), 0o600)) }
	from := newWorld(t, fakeserver.VLLM, nil, good(), good())
	write(from.fakes[0].URL() + "\n")
	w := newWorld(t, fakeserver.VLLM, func(c *consumers.Config) { c.Server.List = list })
	log := &lockedBuffer{}
	w.Pool = servers.New(w.cfg, kinds[w.kind], servers.Options{Metrics: w.metrics, Log: slog.New(slog.NewTextHandler(log, nil))})
	w.run()
	w.swapSoon(0)
	write("")
	fit := func() float64 { return testutil.ToFloat64(w.metrics.ForServers().Fit) }
	until(t, "the empty list is read", func() bool { return strings.Contains(log.String(), "cannot be used") })
	require.InDelta(t, 1, fit(), 0)
	w.whole(ask("a", 4))
	write(from.fakes[1].URL() + "\n")
	until(t, "the next list is taken", func() bool { return from.fakes[1].Calls("/health") > 0 && fit() == 1 })
	w.whole(ask("b", 4))
	require.Positive(t, from.fakes[1].Calls(generatePath[fakeserver.VLLM]))
}
