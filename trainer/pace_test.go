package trainer

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// olderRollouts has every rollout sampled by the version of its ticket, however much later it comes.
func olderRollouts(w *world) {
	versions := map[string]int32{}
	w.hoard = func(t *schemas.Ticket) bool {
		versions[t.ID] = int32(t.PolicyVersion)
		return false
	}
	w.change = func(_ uint64, t *schemas.Trajectory) {
		for s := range t.Segments {
			for i, v := range t.Segments[s].Versions {
				if v != schemas.NoVersion {
					t.Segments[s].Versions[i] = versions[t.ID]
				}
			}
		}
	}
}

// A run whose newest tickets are rolled out first refuses old trajectories, unless its steps wait for them.
func TestAStepWaitsForEpisodesThatWouldBecomeTooOld(t *testing.T) {
	t.Parallel()
	for mode, refuses := range map[string]bool{"refuse": true, "wait": false, "pace": false} {
		for _, eta := range []int{1, 2, 4} {
			t.Run(fmt.Sprint(mode, eta), func(t *testing.T) {
				t.Parallel()
				cfg := testConfig(t.TempDir())
				cfg.Staleness, cfg.Steps, cfg.Eta, cfg.Depth, cfg.MaxAttempts = mode, 12, eta, eta, 0
				w := newWorld(vocab)
				w.backwards = true
				olderRollouts(w)
				stale := 0.0
				for _, v := range stepNumbers(t, cfg, w) {
					stale += v[metrics.Rejected.Of(string(schemas.ReasonStale))]
					_, waits := v[metrics.TimeAwaited.Name]
					require.Equal(t, mode != "refuse", waits)
				}
				require.Equal(t, refuses, stale > 0, "%v were refused", stale)
				for _, ticket := range w.tickets {
					require.Equal(t, max(0, ticket.PolicyVersion-int64(eta)) == ticket.MinVersion, mode == "refuse" || ticket.PolicyVersion == 0)
				}
				audit(t, cfg, w)
			})
		}
	}
}

// A dead producer holds a step up no longer than its lease: then its ticket is another's. A ticket that nobody rolls out holds it up for the
// episode's time limit besides, and the run goes on.
func TestADeadProducerHoldsAStepUpNoLongerThanItsLease(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		cfg := testConfig(t.TempDir())
		cfg.Staleness, cfg.Steps, cfg.Eta, cfg.Depth, cfg.GroupTimeout = "wait", 5, 1, 1, time.Second
		cfg.Limits.Timeout = time.Duration(10+random.IntN(50)) * time.Second
		lease := time.Duration(5+random.IntN(35)) * time.Second
		nobody := seed%2 == 0 // takes the ticket again
		dies := 2 + random.Uint64N(4)
		w := newWorld(vocab)
		w.idle = true
		olderRollouts(w)
		sampled := w.hoard
		held, dead := map[*schemas.Ticket]time.Time{}, map[string]bool{}
		now := time.Unix(5000, 0)
		w.hoard = func(ticket *schemas.Ticket) bool {
			sampled(ticket)
			if ticket.Seed%dies != 0 || dead[ticket.ID] || nobody && len(dead) > 0 {
				return false
			}
			dead[ticket.ID] = true
			held[ticket] = now
			return true
		}
		var steps []map[string]float64
		err := Run(t.Context(), cfg, Deps{
			Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Lease: lease,
			Now: func() time.Time { // the clock moves when the loop reads it; a lapsed lease gives the ticket back
				now = now.Add(100 * time.Millisecond)
				for ticket, since := range held {
					if !nobody && now.Sub(since) >= lease {
						delete(held, ticket)
						w.hoarded--
						w.tickets = append(w.tickets, ticket)
					}
				}
				return now
			},
			Observer: func(e schemas.Event) {
				if e.Type == schemas.EventStepDone {
					steps = append(steps, maps.Clone(e.Metrics))
				}
			},
		})
		require.NoError(t, err)
		require.Len(t, steps, int(cfg.Steps))
		unawaited := 0.0
		for _, v := range steps {
			unawaited += metrics.EndedUnawaited.In(v)
			const reads = 5 // seconds in which the clock is read between
			most := lease.Seconds() + reads
			if nobody {
				most += cfg.Limits.Timeout.Seconds()
			}
			require.LessOrEqual(t, metrics.TimeAwaited.In(v), most)
		}
		if !nobody {
			require.Zero(t, unawaited)
			require.NotContains(t, w.rejected, schemas.ReasonStale)
		}
	}
}

// Tickets of prompts whose episodes were long go first; a prompt that has not been seen counts as its source.
func TestTheLongestEpisodesBeginFirst(t *testing.T) {
	t.Parallel()
	var d durations
	ended := func(prompt, source string, seconds int) {
		at := time.Unix(1000, 0)
		d.addRollout(&schemas.Trajectory{Task: "t", PromptID: prompt, Source: source, StartedAt: at, FinishedAt: at.Add(time.Duration(seconds) * time.Second)})
	}
	ended("slow", "a", 50)
	ended("fast", "a", 2)
	ended("other", "b", 30)
	ticket := func(id, prompt, source string) *schemas.Ticket {
		return &schemas.Ticket{ID: id, Task: "t", Prompt: schemas.Prompt{ID: prompt, Source: source}}
	}
	tickets := []*schemas.Ticket{
		ticket("1", "fast", "a"), ticket("2", "new", "none"), ticket("3", "new", "b"), ticket("4", "slow", "a"), ticket("5", "slow", "a"),
	}
	d.sortLongestFirst(tickets)
	var order string
	for _, x := range tickets {
		order += x.ID
	}
	require.Equal(t, "45312", order)
}

// A policy that has learnt nearly all prompts still steps, by short batches.
func TestAStepThatWaitsTakesShortBatches(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{stalenessRefuse, stalenessWait, stalenessPace} {
		for _, deterministic := range []bool{false, true} {
			cfg := testConfig(t.TempDir())
			cfg.Staleness, cfg.Steps, cfg.Eta, cfg.Depth, cfg.MaxDroppedGroups, cfg.Deterministic = mode, 12, 0, 0, 8, deterministic
			w := &judged{world: newWorld(vocab), logprob: -1, reward: func(cursor uint64, sample int) map[string]float64 {
				if cursor%16 == 0 && sample == 0 {
					return map[string]float64{"a": 1}
				}
				return map[string]float64{"a": 0}
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			steps := 0
			err := Run(ctx, cfg, Deps{Engine: enginetest.NewBigram(vocab), Stream: w, Prompts: prompts{vocab}, Observer: func(e schemas.Event) {
				if e.Type == schemas.EventStepDone {
					steps++
				}
			}})
			cancel()
			require.NoError(t, err)
			require.EqualValues(t, cfg.Steps, steps, "%s, deterministic %v", mode, deterministic)
		}
	}
}
