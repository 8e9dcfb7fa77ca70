package trainer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// judged is a world whose rollouts are rewarded otherwise, with the policy's certainty of its tokens.
type judged struct {
	*world
	reward  func(cursor uint64, sample int) map[string]float64
	logprob float32
}

type judgedFeed struct {
	*worldFeed
	j *judged
}

func (j *judged) Feed(ctx context.Context, from *streams.Position, known streams.Mark, n int) (Feed, error) {
	f, err := j.world.Feed(ctx, from, known, n)
	if err != nil {
		return nil, err
	}
	return &judgedFeed{f.(*worldFeed), j}, nil
}

func (f *judgedFeed) Next(ctx context.Context) (*streams.Delivery, error) {
	d, err := f.worldFeed.Next(ctx)
	if err != nil || d.Trajectory == nil {
		return d, err
	}
	t := *d.Trajectory
	t.Rewards, t.Reward = f.j.reward(t.Cursor, t.Sample), 0
	for _, name := range slices.Sorted(maps.Keys(t.Rewards)) {
		t.Reward += t.Rewards[name]
	}
	s := t.Segments[0]
	s.Logprobs = slices.Clone(s.Logprobs)
	for i, on := range s.ActionMask {
		if on != 0 {
			s.Logprobs[i] = f.j.logprob
		}
	}
	t.Segments = []schemas.Segment{s}
	d.Trajectory = &t
	return d, nil
}

// Newcomer's friction 2: a run in which nothing can be learnt looked as if it hung, for ever.
func TestARunThatCanLearnNothingSaysWhyAndStopsWhenAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reward  func(uint64, int) map[string]float64
		logprob float32
		want    []string
		not     string
	}{
		"never": {
			func(uint64, int) map[string]float64 { return map[string]float64{"answered": 0.1, "exact_match": 0} }, -1,
			[]string{"The policy never succeeds", "got reward 0.1 (never: exact_match)", "easier questions", "demonstrations"},
			"certain of each token",
		},
		"always": {
			func(uint64, int) map[string]float64 { return map[string]float64{"exact_match": 1} }, -1,
			[]string{"The policy always succeeds", "got reward 1", "harder questions"},
			"certain of each token",
		},
		"each its own": {
			func(cursor uint64, _ int) map[string]float64 {
				return map[string]float64{"exact_match": float64(cursor % 2)}
			}, -1e-3,
			[]string{
				"answers each question the same way every time: some get reward 0 in all samples, some 1",
				"certain of each token (0.001 nats)", "raise trainer.sampling.temperature",
			},
			"succeeds",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			cfg.MaxDroppedGroups, cfg.StopWhenStuck = 20, true
			w := &judged{newWorld(vocab), c.reward, c.logprob}
			var log bytes.Buffer
			var told []schemas.Event
			err := Run(t.Context(), cfg, Deps{
				Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Observer: func(e schemas.Event) {
					if e.Type == schemas.EventDropped {
						told = append(told, e)
					}
				},
			})
			require.ErrorIs(t, err, ErrStuck)
			for _, want := range append(c.want, "trainer.selection.drop_zero_variance=false", "each of 20 questions") {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), c.not)
			require.Contains(t, log.String(), c.want[0])
			var dropped []float64
			for _, e := range told {
				dropped = append(dropped, e.Metrics[metrics.GatherDropped.Name])
				require.Zero(t, e.Metrics[metrics.GatherKept.Name])
				require.NoError(t, e.Validate())
			}
			require.Equal(t, []float64{1, 2, 4, 8, 16, 20}, dropped)
			require.Contains(t, told[len(told)-1].Message, c.want[0])

			// A new process knows nothing of what the one before has dropped: it looks for itself.
			err = Run(t.Context(), cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}})
			require.ErrorContains(t, err, c.want[0])
		})
	}
}

// An agent that asks on and on is named where all its rollouts are dropped, too.
func TestALimitThatEndsTheDroppedRolloutsIsNamed(t *testing.T) {
	t.Parallel()
	d := &droppedRollouts{}
	for i := range 20 {
		stop := schemas.StopTurns
		if i < 2 {
			stop = schemas.StopAnswer
		}
		d.addRollout(&schemas.Trajectory{Stop: stop})
	}
	require.Contains(t, d.diagnose(0), "The policy never succeeds: each of 20 rollouts got reward 0. 18 of them were stopped by turns: "+
		"the agent may ask on and on, or trainer.limits.max_turns is too low. Ask easier questions")
	d.addRollout(&schemas.Trajectory{Stop: schemas.StopFormat})
	require.NotContains(t, d.diagnose(0), "stopped by")
}

// Newcomer's friction N10: where there is no cold start, none can be shortened.
func TestACertainPolicyWithoutAColdStartIsNotToldToShortenIt(t *testing.T) {
	t.Parallel()
	d := droppedRollouts{rollouts: 4, sampled: 10, logprob: -0.01}
	require.Contains(t, d.diagnose(20), "lower trainer.cold_start.steps")
	require.NotContains(t, d.diagnose(0), "cold_start")
	require.Contains(t, d.diagnose(0), "raise trainer.sampling.temperature")
}

// Newcomer's friction 2: the log repeated itself several times a second.
func TestARunThatCanLearnNothingYetSaysSoAtEachDoubling(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.MaxDroppedGroups, cfg.Steps = 10, 2
	w := &judged{world: newWorld(vocab), logprob: -1}
	w.reward = func(cursor uint64, sample int) map[string]float64 {
		return map[string]float64{"right": float64(sample%2) * float64(cursor/300)} // from question 300 on there is something to learn
	}
	var log bytes.Buffer
	var told []string
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventDropped && e.Message != "" {
				told = append(told, fmt.Sprint(e.Metrics[metrics.GatherDropped.Name]))
			}
		},
	}))
	require.Equal(t, []string{"10", "20", "40", "80", "160"}, told)
	require.Equal(t, len(told), bytes.Count(log.Bytes(), []byte("level=WARN")))
}
