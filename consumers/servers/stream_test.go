package servers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// stream is generate for a reader that follows along; pieces counts what came.
func (w *world) stream(req *schemas.GenerateRequest) (got *sampled, pieces int) {
	w.t.Helper()
	got = &sampled{}
	require.NoError(w.t, w.Stream(w.t.Context(), req, func(c *schemas.GenerateChunk) error {
		require.Len(w.t, c.Logprobs, len(c.Tokens))
		require.Len(w.t, c.Versions, len(c.Tokens))
		if len(c.Tokens) > 0 {
			pieces++
		}
		got.tokens, got.logprobs = append(got.tokens, c.Tokens...), append(got.logprobs, c.Logprobs...)
		got.versions, got.last = append(got.versions, c.Versions...), *c
		return nil
	}))
	return got, pieces
}

// A reader sees tokens before the answer is whole, each once and with its own log-probability, whatever becomes of the server meanwhile.
func TestAReaderFollowsTokenByToken(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		slow := good()
		slow.Pace = 5 * time.Millisecond
		w := newWorld(t, kind, nil, slow, slow)
		w.run()
		w.swapSoon(0)
		until(t, "an answer in several pieces", func() bool {
			req := ask("reader", 12)
			got, pieces := w.stream(req)
			w.check(req, got)
			return pieces > 3
		})
		for _, fault := range []string{"cut", "reset", "queue", "sentinel"} {
			for _, f := range w.fakes {
				f.Inject(fault, 1)
			}
			for range 3 {
				req := ask("reader", 12)
				got, _ := w.stream(req)
				w.check(req, got)
			}
		}
		// The stop token ends what the reader sees.
		req := ask("stops", 20)
		whole, _ := w.stream(req)
		req.StopTokens = []int32{whole.tokens[4]}
		for range 5 {
			got, _ := w.stream(req)
			for i, token := range got.tokens {
				require.Equal(t, token == req.StopTokens[0], i == len(got.tokens)-1 && got.last.Stop == schemas.GenerateStopToken)
			}
		}
		// A reader that has gone ends the call.
		gone := errors.New("gone")
		require.ErrorIs(t, w.Stream(t.Context(), ask("gone", 12), func(*schemas.GenerateChunk) error { return gone }), gone)
	})
}

// Docs/guarantees.md, "time before a turn": what a server has sampled of an answer goes out while the rest is sampled, vouched for, so that a
// turn which outlasts its caller's time is not lost.
func TestWhatWasSampledGoesOutBeforeTheAnswerIsWhole(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, release := range []fakeserver.Release{oldest[kind], newest[kind]} {
			t.Run(string(release), func(t *testing.T) {
				t.Parallel()
				slow := good()
				slow.Pace, slow.Release = 10*time.Millisecond, release
				w := newWorld(t, kind, nil, slow)
				w.run()
				w.swapSoon(0)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, got := ask("a", 50), &sampled{}
				err := w.Generate(ctx, req, func(c *schemas.GenerateChunk) error {
					got.tokens, got.logprobs = append(got.tokens, c.Tokens...), append(got.logprobs, c.Logprobs...)
					got.versions, got.last = append(got.versions, c.Versions...), *c
					cancel() // the caller's time is over
					return nil
				})
				require.ErrorIs(t, err, context.Canceled)
				require.NotEmpty(t, got.tokens)
				require.Less(t, len(got.tokens), 50)
				got.last.Stop, req.MaxTokens = schemas.GenerateLength, len(got.tokens)
				w.check(req, got)
				w.whole(ask("a", 30))
			})
		}
	})
}
