package workspacetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// OutwaitLimit is the time limit of the episode of Outwait that waits, and should be that of the tool's calls.
const OutwaitLimit = 10 * time.Second

// Outwait plays two episodes that call a tool among spaces with a single place. The second waits for the place of the first for longer
// than its own time limit, and must have both its observation, want, and its answer.
func Outwait(t *testing.T, m *workspace.Manager, tool producers.Tool, arguments, want string) {
	t.Helper()
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, pool.Config().Most)
	OutwaitPlace(t, tool, arguments, want, func() bool { return pool.Stats().Waiting == 1 })
}

// OutwaitPlace is Outwait of a tool with a single place that is free; waits reports whether a call waits for that.
func OutwaitPlace(t *testing.T, tool producers.Tool, arguments, want string, waits func() bool) {
	t.Helper()
	has, release := make(chan struct{}), make(chan struct{})
	type played struct {
		trajectory *schemas.Trajectory
		said       string
		err        error
	}
	play := func(id string, limit time.Duration, then func()) chan played {
		ended := make(chan played, 1)
		go func() {
			var p played
			p.trajectory, p.err = Play(t, id, limit, tool, arguments, func(said string) {
				p.said = said
				then()
			})
			ended <- p
		}()
		return ended
	}
	first := play("first", 0, func() {
		close(has)
		<-release
	})
	select {
	case <-has:
	case p := <-first:
		require.FailNow(t, "the first episode has no place", "%v", p.err)
	}
	second := play("second", OutwaitLimit, func() {})
	require.Eventually(t, waits, time.Minute, time.Millisecond)
	select {
	case p := <-second:
		require.FailNow(t, "the second episode waited no longer", "%v: %v", p.err, p.trajectory)
	case <-time.After(OutwaitLimit + time.Second):
	}
	close(release)
	for _, ended := range []chan played{first, second} {
		p := <-ended
		require.NoError(t, p.err)
		require.Equal(t, schemas.StopAnswer, p.trajectory.Stop)
		require.Equal(t, want, p.said)
	}
}

// Play plays an episode with a time limit, 0 for none, that calls a tool, calls then with its observation, and answers.
func Play(
	t *testing.T, id string, limit time.Duration, tool producers.Tool, arguments string, then func(said string),
) (*schemas.Trajectory, error) {
	t.Helper()
	trajectory, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
		Run: "r", ID: id, Group: "g", GroupSize: 2, Task: "t", Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 96, Timeout: limit},
	}, producers.Environment{
		Policy: Word{}, Tokenizer: Word{}, Reward: Word{}, Tools: []producers.Tool{tool},
		Agent: caller(func(ctx context.Context, e *producers.Episode) error {
			o, err := e.Call(ctx, tool.Spec().Name, arguments)
			if err == nil {
				then(o.Text)
			}
			return err
		}),
	})
	return trajectory, err
}

// TakesItsPlace requires that a call waits for the place of its episode's sandbox among spaces with a single place, before anything starts
// there, and that a call with the arguments refused takes none. A call with the arguments good says want.
func TakesItsPlace(t *testing.T, m *workspace.Manager, tool producers.SessionTool, refused, good, want string) {
	t.Helper()
	pool, err := m.Ready(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, pool.Config().Most)
	require.Eventually(t, func() bool { return pool.Stats().Running == 0 }, time.Minute, time.Millisecond)
	before := pool.Stats().Started
	for _, episode := range []string{"a", "b"} {
		require.NoError(t, tool.Open(t.Context(), producers.Session{Episode: episode}))
	}
	take := func(episode, arguments string) (bool, error) {
		return producers.TakePlaceOf(t.Context(), tool, producers.Call{Episode: episode, Arguments: arguments}, time.Millisecond)
	}
	own, err := take("a", refused)
	require.NoError(t, err)
	require.False(t, own)
	require.Zero(t, pool.Stats().Running)
	for range 2 {
		own, err = take("a", good)
		require.NoError(t, err)
		require.True(t, own)
		require.Equal(t, 1, pool.Stats().Running)
		require.Equal(t, before, pool.Stats().Started)
	}
	own, err = take("b", good)
	require.ErrorIs(t, err, producers.ErrNoRoom)
	require.False(t, own)
	require.NoError(t, tool.Close(t.Context(), "a"))
	_, err = take("b", good)
	require.NoError(t, err)
	o, err := tool.Call(t.Context(), producers.Call{Episode: "b", Arguments: good})
	require.NoError(t, err)
	require.Equal(t, want, o.Text)
	require.NoError(t, tool.Close(t.Context(), "b"))
	_, err = take("b", good)
	require.ErrorContains(t, err, "has no open session")
	require.NotErrorIs(t, err, producers.ErrNoRoom)
}

// Word is a policy, a tokenizer and a reward that know a single word.
type Word struct{}

// Generate samples the word.
func (Word) Generate(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
	return &generate.Result{Tokens: []int32{0}, Logprobs: []float32{-1}, Versions: []int32{0}, Stop: schemas.GenerateStopToken}, nil
}

// Encode is the word, whatever the text.
func (Word) Encode(string) []int32 { return []int32{0} }

// Decode is the word's text.
func (Word) Decode([]int32) string { return "word" }

// ID is the word's number.
func (Word) ID(string) (int32, bool) { return 0, true }

// Size is 1: there is a single word.
func (Word) Size() int { return 1 }

// Score is nothing.
func (Word) Score(context.Context, *schemas.Ticket, *producers.Transcript) (producers.Score, error) {
	return producers.Score{}, nil
}

// caller is an agent that calls after a word of the policy, and answers.
type caller func(ctx context.Context, e *producers.Episode) error

// Run plays an episode.
func (c caller) Run(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin([]int32{0}); err != nil {
		return err
	}
	if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
		return err
	}
	if err := c(ctx, e); err != nil {
		return err
	}
	e.Finish("x", schemas.StopAnswer)
	return nil
}
