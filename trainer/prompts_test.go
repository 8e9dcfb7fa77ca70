package trainer

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// counted are the prompts of one task.
type counted struct{ prompts }

func (c counted) Prompt(cursor uint64) schemas.Prompt { return c.prompts.Prompt(cursor).Prompt }

// issues keeps the tickets that a trainer issues.
type issues struct {
	*world
	mu      sync.Mutex
	tickets map[string]*schemas.Ticket
}

func (i *issues) Issue(ctx context.Context, tickets ...*schemas.Ticket) error {
	i.mu.Lock()
	for _, t := range tickets {
		i.tickets[t.ID] = t
	}
	i.mu.Unlock()
	return i.world.Issue(ctx, tickets...)
}

// A run of two tasks trains on both in proportion. Each ticket names its task and has that task's limits, and each step says
// what each task came to.
func TestARunMixesTasks(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	own := schemas.Limits{MaxTurns: 1, MaxTokens: 50, Timeout: time.Hour}
	mixed, err := Mix(
		Task{Name: "count", Weight: 2, Prompts: counted{prompts{vocab}}},
		Task{Name: "again", Prompts: counted{prompts{vocab}}, Limits: own},
	)
	require.NoError(t, err)
	stream := &issues{world: newWorld(vocab), tickets: map[string]*schemas.Ticket{}}
	var steps []schemas.Event
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: stream, Prompts: mixed,
		Observer: func(e schemas.Event) {
			if e.Type == schemas.EventStepDone {
				steps = append(steps, e)
			}
		},
	}))
	for id, ticket := range stream.tickets {
		want, limits := mixed.Prompt(ticket.Cursor), cfg.Limits.Rollout()
		if want.Task == "again" {
			limits = own
		}
		require.Equal(t, want.Task, ticket.Task, id)
		require.Equal(t, want.Prompt, ticket.Prompt, id)
		require.Equal(t, limits, ticket.Limits, id)
	}
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	require.Len(t, records, int(cfg.Steps)+1)
	require.Len(t, steps, int(cfg.Steps))
	for i, r := range records[1:] {
		trained := map[string]int{}
		for _, g := range r.Groups {
			cursor, _, ok := batch.ParseGroupID(g.Group)
			require.True(t, ok)
			trained[mixed.Prompt(cursor).Task]++
		}
		require.Equal(t, map[string]int{"count": 2, "again": 1}, trained)
		m := steps[i].Metrics
		require.InDelta(t, m["reward/mean"], (2*m["reward/task/count"]+m["reward/task/again"])/3, 1e-12)
		require.InDelta(t, m["reward/task/again"], m["reward/source/again/count"], 0)
		require.InDelta(t, m["reward/task/count"], m["reward/source/count/count"], 0)
	}
}

// A checkpoint's open groups of a task that the run no longer has are dropped, each by name, and their cursors are issued again
// for the tasks that it has.
func TestATaskThatIsTakenOutOfARun(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Eta, cfg.Depth = 2, 2
	both, err := Mix(Task{Name: "count", Prompts: counted{prompts{vocab}}}, Task{Name: "old", Prompts: counted{prompts{vocab}}})
	require.NoError(t, err)
	w := newWorld(vocab)
	w.steal = func(*schemas.Ticket) bool { return w.latest >= 3 }
	stopped, stop := context.WithCancel(t.Context())
	w.hoard = func(*schemas.Ticket) bool {
		if w.latest < 3 {
			return false
		}
		stop()
		return true
	}
	require.ErrorIs(t, Run(stopped, cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: both}), context.Canceled)

	w.hoard, w.steal, w.hoarded = nil, nil, 0
	var log strings.Builder
	require.NoError(t, Run(t.Context(), cfg, Deps{
		Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}))
	require.Contains(t, log.String(), "the group is dropped")
	require.Contains(t, log.String(), "task=old tasks=[count]")
	dropped := 0
	for _, r := range audit(t, cfg, w) {
		for _, d := range r.Dropped {
			if d.Reason == schemas.ReasonUnknownTask {
				require.True(t, d.Reissue)
				dropped++
			}
		}
	}
	require.Positive(t, dropped)
}
