package trainer

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// failing is a world in which the first episodes fail: their samples are given up.
type failing struct {
	*world
	first int
	why   string
}

type failingFeed struct {
	*worldFeed
	left *int
	why  string
}

func (f *failing) Feed(ctx context.Context, from *streams.Position, known streams.Mark, n int) (Feed, error) {
	inner, err := f.world.Feed(ctx, from, known, n)
	if err != nil {
		return nil, err
	}
	return &failingFeed{inner.(*worldFeed), &f.first, f.why}, nil
}

func (f *failingFeed) Next(ctx context.Context) (*streams.Delivery, error) {
	d, err := f.worldFeed.Next(ctx)
	if err != nil || d.Trajectory == nil || *f.left == 0 {
		return d, err
	}
	*f.left--
	t := d.Trajectory
	d.Trajectory, d.Closed = nil, &schemas.GroupClosed{
		Run: t.Run, Group: t.Group, Cancelled: []int{t.Sample}, Why: f.why, Producer: "p1", ClosedAt: t.FinishedAt,
	}
	return d, nil
}

// N1: trainer.stop_when_stuck counts the episodes that fail.
func TestARunWhoseEpisodesFailStopsWhenAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first int
		stop  bool
		stuck bool
		told  int
		why   string
	}{
		"all":               {1 << 20, true, true, 1, "agent mine: \x1b[31manswered 503"},
		"the first":         {19, true, false, 0, "agent mine: answered 503"},
		"the first, for so": {90, false, false, 3, "agent mine: " + strings.Repeat("answered 503 ", 1<<16)},
		"stale":             {90, true, false, 0, schemas.WhyStale},
		"cancelled":         {90, true, false, 0, schemas.WhyCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t.TempDir())
			cfg.StopWhenStuck, cfg.Steps = c.stop, 2
			var log bytes.Buffer
			told := 0
			err := Run(t.Context(), cfg, Deps{
				Engine: enginetest.NewBigram(vocab), Stream: &failing{newWorld(vocab), c.first, c.why}, Prompts: prompts{vocab},
				Log: slog.New(slog.NewTextHandler(&log, nil)),
				Observer: func(e schemas.Event) {
					if e.Type == schemas.EventDropped && e.Message != "" {
						told++
						require.Regexp(t, "by producer p1: agent mine: .*answered 503", e.Message)
						require.NotContains(t, e.Message, "\x1b")
						require.Less(t, len(e.Message), 1000)
					}
				},
			})
			if c.stuck {
				require.ErrorIs(t, err, ErrStuck)
				require.ErrorContains(t, err, "no episode succeeds: each of the newest 20 samples was given up")
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.told, told)
			require.Equal(t, c.told, bytes.Count(log.Bytes(), []byte("no episode succeeds")))
		})
	}
}

// repeated is a world in which the marker of a sample that was given up comes again and again, as from a producer whose acknowledgement of
// the ticket was lost.
type repeated struct {
	*world
	times int
}

type repeatedFeed struct {
	*worldFeed
	times *int
}

func (f *repeated) Feed(ctx context.Context, from *streams.Position, known streams.Mark, n int) (Feed, error) {
	inner, err := f.world.Feed(ctx, from, known, n)
	if err != nil {
		return nil, err
	}
	return &repeatedFeed{inner.(*worldFeed), &f.times}, nil
}

func (f *repeatedFeed) Next(ctx context.Context) (*streams.Delivery, error) {
	d, err := f.worldFeed.Next(ctx)
	if err != nil || d.Trajectory == nil {
		return d, err
	}
	t := d.Trajectory
	for closed := (&schemas.GroupClosed{Run: t.Run, Group: t.Group, Cancelled: []int{t.Sample}, Why: "agent mine: away", Producer: "p1"}); *f.times > 0; *f.times-- {
		d.Trajectory, d.Closed = nil, closed
		f.w.mu.Lock()
		f.w.messages = append(f.w.messages, schemas.Delivery{Sequence: uint64(len(f.w.messages) + 1), Closed: closed})
		f.w.mu.Unlock()
	}
	return d, nil
}

// A sample that is given up again and again counted as many samples, and stopped a run that was well.
func TestASampleThatIsGivenUpAgainCountsOnce(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.StopWhenStuck, cfg.Steps = true, 2
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: &repeated{newWorld(vocab), 2 * stuckSamples}, Prompts: prompts{vocab},
	}))
}
