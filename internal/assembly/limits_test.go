package assembly

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// onePolicy samples one token a call.
type onePolicy struct{}

func (onePolicy) Generate(context.Context, *schemas.GenerateRequest) (*generate.Result, error) {
	return &generate.Result{Tokens: []int32{7}, Logprobs: []float32{-1}, Versions: []int32{0}, Stop: schemas.GenerateStopToken}, nil
}

// scripted is an agent that is one function.
type scripted func(ctx context.Context, e *producers.Episode) error

func (s scripted) Run(ctx context.Context, e *producers.Episode) error { return s(ctx, e) }

// A run that sets no limit of a trajectory issues tickets without one. The limits of the trainer, and
// those of a task over them, are on the tickets and end episodes; a section of tools bounds what its
// observations keep.
func TestLimitsAndCutsReachTheEpisodes(t *testing.T) {
	t.Parallel()
	doors := builtin.Doors()
	open := func(flags map[string]string) (*Course, *Task) {
		flags["run.dir"] = t.TempDir()
		cfg, _, err := Resolve(doors, config.Sources{Flags: flags})
		require.NoError(t, err)
		c, err := OpenTasks(t.Context(), doors, cfg, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.spaces.Close()) })
		return c, c.Tasks[0]
	}
	// roll asks the first question that would be trained on, with the limits that its tickets have.
	roll := func(c *Course, ts *Task, run scripted) *schemas.Trajectory {
		prompts, err := c.Prompts(1)
		require.NoError(t, err)
		asked := prompts.Prompt(0)
		env := c.taskEnvironment(ts, onePolicy{})
		env.Agent = run
		trajectory, _, err := producers.Rollout(t.Context(), &schemas.Ticket{
			Run: "r", ID: "g0-0-0", Group: "g0-0", GroupSize: 1, Task: ts.Name, Prompt: asked.Prompt, Sampling: schemas.Sampling{Temperature: 1},
			Limits: asked.Limits,
		}, env)
		require.NoError(t, err)
		return trajectory
	}
	anew := func(ctx context.Context, e *producers.Episode) error { // begins segment after segment
		for {
			if err := e.Begin([]int32{1, 2, 3}); err != nil {
				return err
			}
			if _, _, err := e.Generate(ctx, producers.GenerateOptions{}); err != nil {
				return err
			}
		}
	}
	_, ts := open(map[string]string{})
	require.Zero(t, ts.limits.MaxSegments)
	require.Zero(t, ts.limits.MaxTotalTokens)

	c, ts := open(map[string]string{"trainer.limits.max_total_tokens": "30"})
	got := roll(c, ts, anew)
	require.Equal(t, schemas.StopTokens, got.Stop)
	require.Len(t, got.Segments, 7, "of 4 tokens each")

	c, ts = open(map[string]string{"tasks.library.limits.max_segments": "3"})
	got = roll(c, ts, anew)
	require.Equal(t, schemas.StopSegments, got.Stop)
	require.Len(t, got.Segments, 3)

	c, ts = open(map[string]string{"trainer.limits.max_total_tokens": "60", "tasks.library.limits.max_total_tokens": "26"})
	got = roll(c, ts, anew)
	require.Equal(t, schemas.StopTokens, got.Stop)
	require.Len(t, got.Segments, 6, "of 4 tokens each: the seventh does not fit")
	require.LessOrEqual(t, got.Tokens(), 26)

	var said string
	search := func(ctx context.Context, e *producers.Episode) error {
		if err := anewOnce(ctx, e); err != nil {
			return err
		}
		o, err := e.Call(ctx, "search", "ledger sweden")
		said = o.Text
		e.Finish("x", schemas.StopAnswer)
		return err
	}
	c, ts = open(map[string]string{"tasks.library.tools": "search"})
	roll(c, ts, search)
	whole := said
	require.Greater(t, len(strings.Fields(whole)), 4)
	c, ts = open(map[string]string{"tasks.library.tools": "search", "tools.search.cut.max_tokens": "2", "tools.search.cut.keep": "left"})
	roll(c, ts, search)
	require.Regexp(t, `^\S+ \S+ \[\d+ tokens cut\]`, said)
	require.True(t, strings.HasPrefix(whole, strings.Join(strings.Fields(said)[:2], " ")), "%q of %q", said, whole)

	for flag, want := range map[string]string{
		"tasks.library.limits.max_segments=65":     "tasks.library.limits.max_segments (from --tasks.library.limits.max_segments): 65: must not exceed trainer.limits.max_segments, 64",
		"tasks.library.limits.max_total_tokens=-1": "max_total_tokens (from --tasks.library.limits.max_total_tokens): -1: must not be negative",
		"trainer.limits.max_total_tokens=-1":       "trainer.limits.max_total_tokens (from --trainer.limits.max_total_tokens): -1",
		"tools.search.cut.keep=some":               "tools.search.cut.keep (from --tools.search.cut.keep): ",
		"tools.search.cut.max_tokens=-1":           "tools.search.cut.max_tokens (from --tools.search.cut.max_tokens): ",
	} {
		key, value, _ := strings.Cut(flag, "=")
		_, _, err := Resolve(doors, config.Sources{Flags: map[string]string{"tasks.library.tools": "search", key: value}})
		require.ErrorContains(t, err, want)
	}
	cfg, _, err := Resolve(doors, config.Sources{Flags: map[string]string{"trainer.limits.max_total_tokens": "5"}})
	require.NoError(t, err)
	_, err = OpenTasks(t.Context(), doors, cfg, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "max_total_tokens of the task or the trainer, 5, or shorten it")
}

// anewOnce begins the episode and samples once.
func anewOnce(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin([]int32{1, 2, 3}); err != nil {
		return err
	}
	_, _, err := e.Generate(ctx, producers.GenerateOptions{})
	return err
}
