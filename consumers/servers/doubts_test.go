package servers_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

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
				const bad, taken = 8, "5 calls in a row have failed: the answer has no token with a log-probability"
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
