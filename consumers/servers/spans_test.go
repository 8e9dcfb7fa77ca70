package servers_test

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
)

// edited is a kind whose answers to the calls of episodes a test changes.
type edited struct {
	servers.Kind
	generate func(ctx context.Context, q *servers.Query, seen func(), real servers.Speaker) (*servers.Answer, error)
}

func (k edited) Speak(r *servers.Remote) servers.Speaker { return editor{k.Kind.Speak(r), k} }

type editor struct {
	servers.Speaker
	kind edited
}

func (e editor) Generate(ctx context.Context, q *servers.Query, seen func()) (*servers.Answer, error) {
	if q.Episode == "" {
		return e.Speaker.Generate(ctx, q, seen) // the keeper's
	}
	return e.kind.generate(ctx, q, seen, e.Speaker)
}

// edit replaces a world's Pool by a Pool whose calls go through generate. Its warnings go to warnings.
func (w *world) edit(warnings io.Writer, generate func(ctx context.Context, q *servers.Query, seen func(), real servers.Speaker) (*servers.Answer, error)) {
	log := slog.New(slog.NewTextHandler(warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.Pool = servers.New(w.cfg, edited{kinds[w.kind], generate}, servers.Options{Metrics: w.metrics, Log: log})
}

// swapMidway makes a call, and swaps to version 1 when the call's first token has come.
func (w *world) swapMidway(come <-chan struct{}) {
	w.t.Helper()
	done, failed := make(chan *sampled, 1), make(chan error, 1)
	req := ask("a", 40)
	go func() {
		got, err := w.generate(req)
		done <- got
		failed <- err
	}()
	<-come
	w.swap(1)
	got := <-done
	require.NoError(w.t, <-failed)
	w.check(req, got)
}

// Invariant: an answer without spans that ended in a later epoch, to which calls went on, is tried again.
func TestInvariantAnAnswerWithoutSpansOverASwapIsTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, mode := range []consumers.SwapMode{consumers.SwapKeep, consumers.SwapRecompute} {
			t.Run(string(mode), func(t *testing.T) {
				t.Parallel()
				o := good()
				o.Release, o.Pace = newest[kind], 10*time.Millisecond
				w := newWorld(t, kind, func(c *consumers.Config) { c.Swap = mode }, o)
				come := make(chan struct{})
				var once sync.Once
				w.edit(logWriter{t}, func(ctx context.Context, q *servers.Query, seen func(), real servers.Speaker) (*servers.Answer, error) {
					a, err := real.Generate(ctx, q, func() {
						once.Do(func() { close(come) })
						seen()
					})
					if a != nil {
						a.Spans, a.Label = nil, ""
					}
					return a, err
				})
				w.run()
				w.swap(0)
				w.swapMidway(come)
				w.whole(ask("b", 4))
			})
		}
	})
}

// A route that is missing once, as behind a proxy that is loaded anew, moves no call to the other route, whose answers name no weights.
func TestARouteThatIsMissingOnceIsAskedAgain(t *testing.T) {
	t.Parallel()
	o := good()
	o.Release, o.Pace = newest[fakeserver.VLLM], 10*time.Millisecond
	// With a new cache the oracle has the log-probabilities of both versions.
	w := newWorld(t, fakeserver.VLLM, func(c *consumers.Config) { c.Swap = consumers.SwapRecompute }, o)
	come := make(chan struct{})
	var once sync.Once
	w.edit(logWriter{t}, func(ctx context.Context, q *servers.Query, seen func(), real servers.Speaker) (*servers.Answer, error) {
		return real.Generate(ctx, q, func() {
			if q.Episode == "a" {
				once.Do(func() { close(come) })
			}
			seen()
		})
	})
	w.run()
	w.swap(0)
	hit := w.fakes[0].Inject("404 "+generatePath[fakeserver.VLLM], 1)
	w.whole(ask("b", 1))
	<-hit
	w.swapMidway(come)
	require.Zero(t, w.fakes[0].Calls("/v1/completions"))
}

// A server that has lost its route of tokens is probed again, and then asked at the route of text: its calls are cut at a swap.
func TestARouteThatIsGoneIsFoundByTheNextProbe(t *testing.T) {
	t.Parallel()
	o := good()
	o.Release = newest[fakeserver.VLLM]
	w := newWorld(t, fakeserver.VLLM, nil, o)
	log := w.logged()
	w.run()
	w.swap(0)
	w.fakes[0].Inject("404 "+generatePath[fakeserver.VLLM], 1_000_000)
	w.whole(ask("a", 4))
	require.NotEmpty(t, log.with("the server had a route of tokens when it was probed"))
	require.Positive(t, w.fakes[0].Calls("/v1/completions"))
	until(t, "it serves", func() bool { return testutil.ToFloat64(w.metrics.ForServers().Fit) == 1 })
	w.swap(1)
	require.Equal(t, []int32{1, 1, 1}, w.whole(ask("b", 3)).versions)
}
