package producers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// Who watches an episode is told of each turn, call and observation once, in their order, and of calls before they are made; what
// an agent puts into the context is told unless it is what calls brought.
func TestAnEpisodeIsWatched(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	said := func() string {
		mu.Lock()
		defer mu.Unlock()
		return seen[len(seen)-1]
	}
	env := newEnvironment(t, policyFunc(one))
	env.Watch = func(m producers.Move) {
		mu.Lock()
		defer mu.Unlock()
		text := fmt.Sprintf("%s %s %d %s %d %t", m.Kind, m.Agent, m.Segment, m.Tool, m.Call, m.Failed)
		if m.Tool != "" {
			text += " " + m.Text
		}
		seen = append(seen, text)
	}
	env.Tools = []producers.Tool{calling{"echo", func(_ context.Context, c producers.Call) (producers.Observation, error) {
		if last := said(); c.Index == 0 && last != "tool  0 echo 0 false a" {
			return producers.Observation{}, errors.New("the call was not told: " + last)
		}
		if c.Arguments == "bad" {
			return producers.Observation{}, errors.New("no")
		}
		return producers.Observation{Text: "said " + c.Arguments + "\x1b[31m"}, nil
	}}}
	env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
		err := e.Begin([]int32{1, 2})
		turn := func() {
			_, _, faults := e.Generate(ctx, producers.GenerateOptions{})
			err = errors.Join(err, faults)
		}
		turn()
		_, callErr := e.Call(ctx, "echo", "a")
		err = errors.Join(err, callErr, e.Observe([]int32{3})) // what the call brought
		turn()
		err = errors.Join(err, e.Observe([]int32{4})) // a word of the agent's own
		turn()
		_, callErr = e.Call(ctx, "echo", "bad")
		err = errors.Join(err, callErr, e.Begin([]int32{1}))
		turn()
		other, openErr := e.Open("solver", []int32{1})
		if openErr != nil {
			return openErr
		}
		_, _, generateErr := other.Generate(ctx, producers.GenerateOptions{})
		e.Finish("x", schemas.StopAnswer)
		return errors.Join(err, generateErr)
	})
	_, _, err := producers.Rollout(context.Background(), newTicket(0), env)
	require.NoError(t, err)
	require.Equal(t, []string{
		"prompt  0  0 false", "policy  0  0 false", "tool  0 echo 0 false a", "observation  0 echo 0 false said a",
		"policy  0  0 false", "observation  0  0 false", "policy  0  0 false",
		"tool  0 echo 1 false bad", "observation  0 echo 1 true error: no",
		"context  1  0 false", "policy  1  0 false", "context solver 2  0 false", "policy solver 2  0 false",
	}, seen)
}
