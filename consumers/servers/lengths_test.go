package servers_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// lines keeps the log's lines of level warning.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(b))
	return len(b), nil
}

func (l *lines) with(words string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		if strings.Contains(line, words) {
			found = append(found, line)
		}
	}
	return found
}

// logged has a world's Pool write warnings where a test can read them.
func (w *world) logged() *lines {
	l := &lines{}
	log := slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.Pool = servers.New(w.cfg, kinds[w.kind], servers.Options{Metrics: w.metrics, Log: log})
	return l
}

// A server with room for fewer tokens than its context: the bound is learnt from the first answer that ends there, logged once with its
// numbers, told as a metric, and forgotten when the server was started again.
func TestAServerWithLittleRoomIsNamed(t *testing.T) {
	t.Parallel()
	const context, kept, room = 64, 6, 44
	o := good()
	o.Room = room
	w := newWorld(t, fakeserver.SGLang, nil, o)
	log := w.logged()
	w.run()
	w.swapSoon(0)
	most := func() float64 {
		return testutil.ToFloat64(w.metrics.ForServers().MaxTokens.WithLabelValues(w.fakes[0].URL()))
	}
	require.InDelta(t, context-kept, most(), 0)
	for range 3 {
		got, err := w.generate(ask("a", 61))
		require.NoError(t, err)
		require.Equal(t, schemas.GenerateLength, got.last.Stop, "%+v", got.last)
		require.Less(t, len(got.tokens), room)
	}
	require.InDelta(t, room-2-kept, most(), 0)
	warned := log.with("room for fewer tokens than its context")
	require.Len(t, warned, 1)
	for _, part := range []string{w.fakes[0].URL(), "tokens=42", "context=64", "--mem-fraction-static"} {
		require.Contains(t, warned[0], part)
	}

	w.fakes[0].SetRoom(0)
	require.NoError(t, w.fakes[0].Replace(w.folder(1000)))
	until(t, "the bound is the context's again", func() bool { return most() == context-kept })
	until(t, "it serves again", func() bool { return testutil.ToFloat64(w.metrics.ForServers().Fit) == 1 })
	got, err := w.generate(ask("b", 61))
	require.NoError(t, err)
	require.Greater(t, len(got.tokens), room)
}

// A server whose answers end far below its context is another server than was meant: it is taken out with its numbers, its calls go on
// elsewhere, and it serves when it was seen to take a longer sequence.
func TestAServerThatEndsFarBelowItsContextIsTakenOut(t *testing.T) {
	t.Parallel()
	narrow := good()
	narrow.Room, narrow.Foreign = 24, 0
	wide := good()
	wide.Foreign = 40 // the other server is less busy
	w := newWorld(t, fakeserver.SGLang, nil, narrow, wide)
	log := w.logged()
	w.run()
	w.swapSoon(0)
	fit := func(n float64) func() bool {
		return func() bool { return testutil.ToFloat64(w.metrics.ForServers().Fit) == n }
	}
	until(t, "both serve", fit(2))
	until(t, "the other is busy", func() bool {
		return testutil.ToFloat64(w.metrics.ForServers().Queue.WithLabelValues(w.fakes[1].URL(), "running")) >= 40
	})
	w.whole(ask("a", 50))
	until(t, "it is taken out", fit(1))
	until(t, "it is refused for its length", func() bool { return len(log.with("it takes no sequence of 23")) > 0 })
	taken := log.with("an inference server is unfit")
	require.NotEmpty(t, taken)
	require.Contains(t, taken[0], w.fakes[0].URL())
	require.Contains(t, taken[0], "at 22 tokens, of 64")
	w.whole(ask("b", 50))

	w.fakes[0].SetRoom(0)
	until(t, "both serve again", fit(2))
}

// A server that never answers at /metrics holds up no check.
func TestMetricsThatHangHoldUpNoCheck(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		w.run()
		w.swapSoon(0)
		hung := w.fakes[0].Inject("hang /metrics", 1)
		<-hung
		before := w.fakes[0].Calls("/health")
		until(t, "it is checked", func() bool { return w.fakes[0].Calls("/health") >= before+10 })
	})
}
