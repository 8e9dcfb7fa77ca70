package servers_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/consumers/servers"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// A server whose answers have no token that a call gains is taken out, as a server whose calls fail: also where an answer ends at a stop token
// without a log-probability, as of an SGLang whose logits are no numbers.
func TestAnAnswerWithoutANewTokenIsAFailure(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for name, answer := range map[string]servers.Answer{
			"a stop token":     {Tokens: []int32{7}, Finish: servers.FinishStop},
			"some other token": {Tokens: []int32{8, 9}, Finish: servers.FinishLength},
			"no token":         {Finish: servers.FinishAborted, Message: "aborted"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				const bad, taken = 8, " calls in a row have failed: the answer has no token with a log-probability"
				w := newWorld(t, kind, nil, good())
				log := &lines{}
				var calls atomic.Int64
				w.edit(log, func(ctx context.Context, q *servers.Query, seen func(), real servers.Speaker) (*servers.Answer, error) {
					if calls.Add(1) > bad || len(log.with(taken)) > 0 {
						return real.Generate(ctx, q, seen)
					}
					a := answer
					a.Label = q.Salt
					for range a.Tokens {
						a.Logprobs = append(a.Logprobs, float32(math.NaN()))
					}
					return &a, nil
				})
				w.run()
				w.swap(0)
				req := ask("a", 6)
				req.StopTokens = schemas.Int32s{7}
				got, err := w.generate(req)
				require.NoError(t, err)
				require.NotEqual(t, schemas.GenerateError, got.last.Stop, "%+v", got.last)
				require.NotEmpty(t, log.with(taken))
			})
		}
	})
}

// fit waits until so many servers are fit.
func (w *world) fit(n float64) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("%g servers are fit", n), func() bool { return testutil.ToFloat64(w.metrics.ForServers().Fit) == n })
}

// A server that refuses every call, as behind a proxy that was set wrong, draws no calls: each goes on at the other server, and the server is
// taken out.
func TestAServerThatRefusesEveryCallIsTakenOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, count := range []int{1, 2} {
			t.Run(fmt.Sprintf("of %d", count), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind, nil, []fakeserver.Options{good(), good()}[:count]...)
				log := w.logged()
				w.run()
				w.swap(0)
				w.fit(float64(count))
				w.fakes[0].Inject("400 "+generatePath[kind], 1_000_000)
				for i := range 20 {
					if count == 2 {
						w.whole(ask(fmt.Sprint("e", i), 4))
					} else if len(log.with("unfit")) == 0 {
						got, err := w.generate(ask(fmt.Sprint("e", i), 4))
						require.NoError(t, err)
						require.Equal(t, schemas.GenerateError, got.last.Stop)
					}
				}
				until(t, "it is taken out", func() bool { return len(log.with("calls in a row have failed")) > 0 }) // five or more: calls go on meanwhile
				require.Contains(t, log.with("unfit")[0], w.fakes[0].URL())
			})
		}
	})
}

// A call that every server refuses is at fault: no server is taken out for it.
func TestARequestThatEveryServerRefusesIsAtFault(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		for _, count := range []int{1, 2, 3} {
			t.Run(fmt.Sprint(count), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind, nil, []fakeserver.Options{good(), good(), good()}[:count]...)
				log := &lines{}
				var calls atomic.Int64
				w.edit(log, func(context.Context, *servers.Query, func(), servers.Speaker) (*servers.Answer, error) {
					calls.Add(1)
					return nil, &servers.StatusError{Path: generatePath[kind], Status: 400, Text: "temperature is above 2"}
				})
				w.run()
				w.swap(0)
				w.fit(float64(count))
				for i := range 20 {
					got, err := w.generate(ask(fmt.Sprint("e", i), 4))
					require.NoError(t, err)
					require.Equal(t, schemas.GenerateError, got.last.Stop)
					require.False(t, got.last.Retry)
					require.Contains(t, got.last.Error, "temperature is above 2")
				}
				require.Equal(t, int64(20*min(count, 2)), calls.Load())
				checks := w.fakes[0].Calls("/health")
				until(t, "it was checked", func() bool { return w.fakes[0].Calls("/health") > checks+2 })
				require.Empty(t, log.with("unfit"))
			})
		}
	})
}
