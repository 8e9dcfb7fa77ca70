package generatetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate/generatetest"
)

// A call that is broken off anywhere and goes on behind its tokens is given the tokens of the whole call, and what is sampled again is
// counted.
func TestACallThatGoesOnIsGivenTheTokensOfTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &generatetest.Engine{First: 5, Kinds: 20, Version: 3}
		r := &schemas.GenerateRequest{
			Episode: "g0-0", Tokens: rapid.SliceOfN(rapid.Int32Range(0, 30), 1, 8).Draw(t, "tokens"), Seed: rapid.Uint64().Draw(t, "seed"),
			MaxTokens: rapid.IntRange(2, 12).Draw(t, "most"), StopTokens: schemas.Int32s{5},
		}
		whole, err := e.Generate(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		n := len(whole.Tokens)
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		rest := *r
		rest.Tokens, rest.MaxTokens = slices.Concat(r.Tokens, whole.Tokens[:at]), r.MaxTokens-at
		var got []int32
		stop := schemas.GenerateStop("")
		if err := e.ServeCall(context.Background(), &rest, func(c *schemas.GenerateChunk) error {
			got = append(got, c.Tokens...)
			stop = c.Stop
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, whole.Tokens[at:]) || stop != whole.Stop {
			t.Fatalf("%v, %s behind %d tokens of %v, %s", got, stop, at, whole.Tokens, whole.Stop)
		}
		if all, again := e.Sampled(); all != 2*n-at || again != n-at {
			t.Fatalf("%d sampled, %d again, of %d behind %d", all, again, n, at)
		}
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	e := &generatetest.Engine{First: 5, Kinds: 20, Pace: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g, err := e.Generate(ctx, &schemas.GenerateRequest{Tokens: schemas.Int32s{1}, MaxTokens: 4})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, g.Tokens)
	e.Forget()
	all, _ := e.Sampled()
	require.Zero(t, all)
}
