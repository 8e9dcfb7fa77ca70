package producers_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// shortEngine is a policy whose engine takes sequences of so many tokens: of a context that has them it says length, and gives no token.
func shortEngine(policy policyFunc, most int) policyFunc {
	return func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
		if len(r.Tokens) >= most {
			return &generate.Result{Stop: schemas.GenerateLength, Engine: "engine"}, nil
		}
		cut := *r
		cut.MaxTokens = min(r.MaxTokens, most-len(r.Tokens))
		return policy(ctx, &cut)
	}
}

// Finding Q3 of the core's second review: an episode that an engine's own bound cuts off has ended by its tokens, as one at the
// ticket's limit, with what was sampled until then; whatever the bound, there is no error.
func TestAnEnginesBoundEndsTheEpisodeByItsTokens(t *testing.T) {
	t.Parallel()
	script := &scripted{tok: newTokenizer(t), lines: rightLines}
	whole, _, err := producers.Rollout(t.Context(), newTicket(1), newEnvironment(t, policyFunc(script.Generate)))
	require.NoError(t, err)
	require.Equal(t, schemas.StopAnswer, whole.Stop)
	first := whole.Turns[0].Start + 1 // room for a token
	stops := map[schemas.StopReason]int{}
	for most := first; most <= len(whole.Segments[0].Tokens); most++ {
		script.at = nil
		got, _, err := producers.Rollout(t.Context(), newTicket(1), newEnvironment(t, shortEngine(script.Generate, most)))
		require.NoError(t, err, "bound %d", most)
		stops[got.Stop]++
		require.NotEmpty(t, got.Turns, "bound %d", most)
		at := got.Turns[0].Start
		require.Equal(t, uint8(1), got.Segments[0].ActionMask[at], "bound %d", most)
	}
	require.Positive(t, stops[schemas.StopTokens])
	require.Zero(t, stops[schemas.StopTimeout])

	// No room for a single token is nothing to train on, as at the ticket's limit.
	_, _, err = producers.Rollout(t.Context(), newTicket(1), newEnvironment(t, shortEngine(script.Generate, first-1)))
	require.True(t, producers.NothingSampled(err), "%v", err)
}
