package producers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// parts runs an episode whose agent opens one context for a part and does the rest there.
func parts(t *testing.T, p producers.Part, do func(context.Context, *producers.Context) error) (*schemas.Trajectory, error) {
	t.Helper()
	env := newEnvironment(t, policyFunc(one))
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		c, err := e.OpenPart(p, []int32{1, 2})
		if err != nil {
			return err
		}
		if _, _, err := c.Generate(ctx, producers.GenerateOptions{}); err != nil {
			return err
		}
		return do(ctx, c)
	})
	trajectory, _, err := producers.Rollout(t.Context(), newTicket(0), env)
	return trajectory, err
}

// What a part may call is what it was given: tools of the episode by name, and its own.
func TestAPartCallsItsOwnTools(t *testing.T) {
	asks := calling{"ask", func(_ context.Context, c producers.Call) (producers.Observation, error) {
		return producers.Observation{Text: "heard\x1b[31m " + c.Arguments}, nil
	}}
	for _, c := range []struct {
		part      producers.Part
		search    string // what comes of a search
		ownTool   string // and of the part's own tool
		succeeded int
	}{
		{producers.Part{Agent: "a"}, "sweden has", `error: there is no tool named "ask"`, 1},
		{producers.Part{Agent: "a", Own: []producers.Tool{asks}}, "sweden has", "heard this", 2},
		{producers.Part{Agent: "a", Tools: []string{}, Own: []producers.Tool{asks}}, `error: there is no tool named "search"`, "heard this", 1},
		{producers.Part{Agent: "a", Tools: []string{"search"}}, "sweden has", `error: there is no tool named "ask"`, 1},
		{producers.Part{Agent: "a", Tools: []string{"ask"}}, `error: there is no tool named "search"`, `error: there is no tool named "ask"`, 0},
	} {
		trajectory, err := parts(t, c.part, func(ctx context.Context, in *producers.Context) error {
			said, err := in.Calls(ctx, []producers.ToolCall{{Name: "search", Arguments: "sweden"}, {Name: "ask", Arguments: "this"}})
			require.NoError(t, err)
			require.Contains(t, said[0].Text, c.search)
			require.Contains(t, said[1].Text, c.ownTool, "sanitized")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "a", trajectory.Segments[0].Agent)
		succeeded := 0
		for _, call := range trajectory.Turns[0].Calls {
			if !call.Failed {
				succeeded++
			}
		}
		require.Len(t, trajectory.Turns[0].Calls, 2)
		require.Equal(t, c.succeeded, succeeded)
	}
}

// The bounds of a part hold within those of the episode, and end the part alone.
func TestThePartsOwnBounds(t *testing.T) {
	trajectory, err := parts(t, producers.Part{Agent: "a", MaxCalls: 1, MaxTokens: 5}, func(ctx context.Context, c *producers.Context) error {
		require.Equal(t, 2, c.Room())
		said, err := c.Calls(ctx, []producers.ToolCall{{Name: "search", Arguments: "sweden"}, {Name: "search", Arguments: "finland"}})
		require.NoError(t, err)
		require.Equal(t, "error: not called: the limit is 1 calls", said[1].Text)
		stopped := &producers.StoppedError{}
		_, err = c.Call(ctx, "search", "sweden")
		require.ErrorAs(t, err, &stopped)
		require.Equal(t, schemas.StopTurns, stopped.Reason)
		require.ErrorAs(t, c.Observe([]int32{1, 2, 3}), &stopped)
		require.Equal(t, schemas.StopTokens, stopped.Reason)
		require.ErrorAs(t, c.Begin([]int32{1, 2, 3, 4, 5, 6}), &stopped)
		require.NoError(t, c.Begin([]int32{1, 2, 3, 4, 5}))
		return nil
	})
	require.NoError(t, err)
	require.Len(t, trajectory.Turns[0].Calls, 1)
}

// An error of a tool of the agent's own is the machinery's, and a panic closes the sample: neither is told to the policy.
func TestAFailureOfAnOwnToolIsTheMachinerys(t *testing.T) {
	gone := errors.New("the engine is gone")
	for name, fails := range map[string]func() error{"an error": func() error { return gone }, "a panic": func() error { panic("a bug") }} {
		own := calling{"ask", func(context.Context, producers.Call) (producers.Observation, error) {
			return producers.Observation{}, fails()
		}}
		_, err := parts(t, producers.Part{Own: []producers.Tool{own}}, func(ctx context.Context, c *producers.Context) error {
			_, err := c.Call(ctx, "ask", "")
			return err
		})
		if name == "an error" {
			require.ErrorIs(t, err, gone)
			require.ErrorContains(t, err, "tool ask: ")
		} else {
			require.ErrorContains(t, err, "a bug")
			panicked := &producers.PanicError{}
			require.ErrorAs(t, err, &panicked)
		}
	}
}
