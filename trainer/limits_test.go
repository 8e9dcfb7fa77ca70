package trainer

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// limited runs to the end with settings, calls after each step, and returns every ticket by id and the events that refuse.
func limited(t *testing.T, cfg Config, w *world, settings map[string]string, after func(e schemas.Event)) (map[string][]*schemas.Ticket, []string) {
	t.Helper()
	mixed, err := Mix(
		Task{Name: "count", Prompts: questions{prompts{vocab}}, Limits: schemas.Limits{MaxTurns: 2, MaxTokens: 12, Timeout: time.Minute}},
		Task{Name: "other", Prompts: questions{prompts{vocab}}, Turns: TurnSchedule{0: 1, 3: 3}},
	)
	require.NoError(t, err)
	book, refused := &ticketBook{world: w, tickets: map[string][]*schemas.Ticket{}}, []string{}
	for err = errCrash; errors.Is(err, errCrash); {
		err = Run(t.Context(), cfg, Deps{
			Engine: dying{enginetest.NewBigram(vocab), w.crash}, Stream: book, Prompts: mixed, Settings: settings, Log: streamtest.Log(t),
			Observer: func(e schemas.Event) {
				switch e.Type {
				case schemas.EventStepDone:
					after(e)
				case EventRefused:
					refused = append(refused, e.Message)
				}
			},
		})
	}
	require.NoError(t, err)
	return book.tickets, refused
}

// changesOf are what the records say of limits, by step.
func changesOf(t *testing.T, cfg Config) map[int64][]checkpoint.RecordChange {
	t.Helper()
	records, err := checkpoint.ReadRecords(cfg.Checkpoint.Dir)
	require.NoError(t, err)
	out := map[int64][]checkpoint.RecordChange{}
	for _, r := range records {
		for _, change := range r.Changed {
			if change.Key != "run.seed" {
				out[r.Step] = append(out[r.Step], change)
			}
		}
	}
	return out
}

// An operator's limits are those of every ticket of a later version, however often the trainer is killed; a ticket keeps its limits when
// it is issued again.
func TestLimitsThatAnOperatorSetsAreThoseOfLaterTickets(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Eta, cfg.Depth = 8, 2, 2
	w := newWorld(vocab)
	calls := 0
	w.crash = func(string) error {
		if calls++; calls%170 == 0 && calls < 1600 {
			return errCrash
		}
		return nil
	}
	set := []schemas.Limit{
		{Key: schemas.LimitMaxSegments, Value: 3},
		{Task: "count", Key: schemas.LimitMaxTurns, Value: 7},
		{Task: "count", Key: schemas.LimitTimeout, Value: int64(90 * time.Second)},
		{Task: "other", Key: schemas.LimitMaxTokens, Value: 11},
		{Task: "other", Key: schemas.LimitMaxTotalTokens, Value: 13},
	}
	settings := map[string]string{"run.seed": "1", "trainer.limits.max_tokens": "96"}
	tickets, refused := limited(t, cfg, w, settings, func(e schemas.Event) {
		if e.Step == 2 {
			operate(t, w, func(c *schemas.Control) { c.Limits = set })
		}
	})
	require.Empty(t, refused)
	require.Equal(t, set, w.control.Limits, "what holds stays in control")
	changes := changesOf(t, cfg)
	require.Len(t, changes, 1)
	var adopted int64
	for adopted = range changes {
		require.Equal(t, []checkpoint.RecordChange{
			{Key: "control.limits.count.max_turns", Before: "configured", After: "7"},
			{Key: "control.limits.count.timeout", Before: "configured", After: "1m30s"},
			{Key: "control.limits.max_segments", Before: "configured", After: "3"},
			{Key: "control.limits.other.max_tokens", Before: "configured", After: "11"},
			{Key: "control.limits.other.max_total_tokens", Before: "configured", After: "13"},
		}, changes[adopted])
	}
	require.GreaterOrEqual(t, adopted, int64(3))
	otherwise := cfg.Limits.Rollout()
	before, later, again := 0, map[string]int{}, 0
	for id, issues := range tickets {
		again += len(issues) - 1
		for _, ticket := range issues {
			want := schemas.Limits{MaxTurns: 2, MaxTokens: 12, Timeout: time.Minute}
			if ticket.Task == "other" {
				want = otherwise
				want.MaxTurns = TurnSchedule{0: 1, 3: 3}.At(ticket.PolicyVersion, -1)
			}
			switch {
			case ticket.PolicyVersion < adopted:
				before++
			case ticket.Task == "count":
				want.MaxSegments, want.MaxTurns, want.Timeout = 3, 7, 90*time.Second
				later["count"]++
			default:
				want.MaxSegments, want.MaxTokens, want.MaxTotalTokens = 3, 11, 13
				later["other"]++
			}
			require.Equal(t, want, ticket.Limits, "%s of version %d", id, ticket.PolicyVersion)
		}
	}
	require.Positive(t, before)
	require.Positive(t, later["count"])
	require.Positive(t, later["other"])
	require.Positive(t, again, "tickets were issued again")

	cfg.Steps = 10
	tickets, _ = limited(t, cfg, w, settings, func(schemas.Event) {})
	for id, issues := range tickets {
		require.Equal(t, 3, issues[0].Limits.MaxSegments, "%s: it outlives a restart", id)
	}
	cfg.Steps = 16
	settings["trainer.limits.max_tokens"] = "95"
	tickets, _ = limited(t, cfg, w, settings, func(schemas.Event) {})
	configured := 0
	for id, issues := range tickets {
		if issues[0].PolicyVersion > 10 {
			configured++
			require.Zero(t, issues[0].Limits.MaxSegments, "%s: until the configuration of limits changes", id)
		}
	}
	require.Positive(t, configured)
	require.Empty(t, w.control.Limits)
	require.Len(t, changesOf(t, cfg)[11], 6, "the key of the configuration, and five limits that hold no more")
}

func TestLimitsThatTheRunCannotKeepAreRefusedByName(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Steps, cfg.Limits.MaxSegments = 5, 4
	w := newWorld(vocab)
	_, refused := limited(t, cfg, w, nil, func(e schemas.Event) {
		if e.Step == 2 {
			operate(t, w, func(c *schemas.Control) {
				c.Limits = []schemas.Limit{
					{Key: schemas.LimitMaxTokens, Value: 1 << 40}, {Key: schemas.LimitMaxTurns, Value: 1}, {Task: "count", Key: schemas.LimitMaxSegments, Value: 5}, {Task: "math", Key: schemas.LimitMaxTurns, Value: 1},
				}
			})
		}
	})
	require.Len(t, refused, 1, "told once")
	require.Contains(t, refused[0], "limits.max_tokens: 1099511627776: must not exceed the longest sequence of the policy")
	require.Contains(t, refused[0], "limits.count.max_segments: 5: must not exceed trainer.limits.max_segments, 4")
	require.Contains(t, refused[0], `limits.math.max_turns: the run has no task "math": want count, other`)
	require.Equal(t, []schemas.Limit{{Key: schemas.LimitMaxTurns, Value: 1}}, w.control.Limits, "what the run can keep holds")
	require.Equal(t, map[int64][]checkpoint.RecordChange{3: {{Key: "control.limits.max_turns", Before: "configured", After: "1"}}}, changesOf(t, cfg))
}
