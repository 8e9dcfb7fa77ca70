package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// Newcomer's friction 14 and operating defect F8: a state is said of a run only if its streams say so.
func TestTheStateOfARunIsWhatItsEventsTell(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(kind schemas.EventType, metrics map[string]float64) *schemas.Event {
		at = at.Add(time.Second)
		return &schemas.Event{Type: kind, Role: "trainer", At: at, Step: 7, PolicyVersion: 7, Metrics: metrics}
	}
	joined, left := event(schemas.EventWorkerJoined, nil), event(schemas.EventWorkerLeft, nil)
	cold := event(schemas.EventColdStart, map[string]float64{"cold_start/step": 20, "cold_start/steps": 1200, "cold_start/loss": 0.5})
	published, done := event(schemas.EventVersionPublished, nil), event(schemas.EventRunDone, nil)
	step := event(schemas.EventStepDone, map[string]float64{"time/step": 60, "reward/mean": 0.5})
	inference := &schemas.Event{Type: schemas.EventWorkerJoined, Role: "inference", At: at}
	for _, c := range []struct {
		name   string
		events []*schemas.Event
		after  time.Duration
		state  string
		detail string
	}{
		{"nothing", nil, 0, "no trainer has begun", ""},
		{"only others", []*schemas.Event{inference}, 0, "no trainer has begun", ""},
		{"joined", []*schemas.Event{joined}, 5 * time.Second, "starting", "last heard of 5s ago"},
		{"cold start", []*schemas.Event{joined, cold}, 2 * time.Second, "starting", "cold start, step 20 of 1200, loss 0.500, 2s ago"},
		{"published", []*schemas.Event{joined, cold, published}, 2 * time.Second, "running", "last heard of 2s ago"},
		{
			"quiet from the start",
			[]*schemas.Event{joined, published},
			time.Minute, "waiting",
			"no step since 1m0s ago: the trainer waits for trajectories, or was killed",
		},
		{"a step that takes long", []*schemas.Event{joined, published, step}, 2 * time.Minute, "running", "last heard of 2m0s ago"},
		{
			"quiet for several steps",
			[]*schemas.Event{joined, published, step},
			4 * time.Minute, "waiting",
			"no step since 4m0s ago: the trainer waits for trajectories, or was killed",
		},
		{"left", []*schemas.Event{joined, published, step, left}, time.Minute, "no trainer", "it left 1m0s ago"},
		{"finished and left", []*schemas.Event{joined, step, done, left}, time.Minute, "finished", "1m0s ago"},
		{"begun again", []*schemas.Event{joined, step, done, left, joined}, time.Second, "starting", "last heard of 1s ago"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var told story
			now := at
			for _, e := range c.events {
				told.add(e)
				if e.Role == "trainer" {
					now = e.At
				}
			}
			var out standing
			out.tell(&told, now.Add(c.after))
			require.Equal(t, c.state, out.State)
			require.Equal(t, c.detail, out.Detail)
		})
	}
}

// A terminal of 80 columns shows the whole of what a status says; what is not a terminal gets each row on one line.
func TestTheStatusFitsATerminal(t *testing.T) {
	t.Parallel()
	at := time.Now()
	var told story
	told.add(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: at, Step: 6, Metrics: map[string]float64{"reward/mean": 0.152}})
	o := standing{Run: "small", begun: true}
	o.tell(&told, at)
	var narrow, plain strings.Builder
	o.print(&narrow, 80)
	o.print(&plain, 0)
	for line := range strings.Lines(narrow.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
	for word := range strings.FieldsSeq(o.LastStep.text()) {
		require.Contains(t, narrow.String(), word)
	}
	require.Contains(t, plain.String(), "│ "+o.LastStep.text()+" │")
}

// Events are told with their numbers.
func TestAnEventIsToldWithItsNumbers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	require.Equal(t, "03:04:05 step_done          trainer    step 8: reward 0.750, staleness 1.50 mean, 3 max, 256 trajectories, dropped 512, refused 2, idle 0.25",
		eventLine(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: at, Step: 8, PolicyVersion: 8, Metrics: map[string]float64{
			"reward/mean": 0.75, "staleness/mean": 1.5, "staleness/max": 3, "batch/trajectories": 256,
			"rejected/zero_variance": 500, "rejected/incomplete": 12, "rejected/stale": 2, "time/idle_ratio": 0.25,
		}}))
	require.Equal(t, "03:04:05 evaluated          trainer    version 8: exact match 0.988 over 160 held-out questions",
		eventLine(&schemas.Event{Type: schemas.EventEvaluated, Role: "trainer", At: at, PolicyVersion: 8, Metrics: map[string]float64{
			"eval/exact_match": 0.988, "eval/questions": 160,
		}}))
	require.Equal(t, `03:04:05 odd                trainer    version 0 \x1b[2J`,
		eventLine(&schemas.Event{Type: "odd", Role: "trainer", At: at, Message: "\x1b[2J"}))
}
