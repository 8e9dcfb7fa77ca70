package runfolder

import (
	"testing"
	"time"

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
	failed := schemas.Failing{Task: "crates", Failed: 20, ByCause: map[string]int{"agent": 20}, Last: "agent mine: answered 503"}
	failing := failed.Event("r", "p1", at)
	asks := schemas.Failing{Task: "crates", Late: 7, Last: "POST /v1/messages"}
	afterEnd := asks.Event("r", "p1", at)
	late := event(schemas.EventStepDone, map[string]float64{"time/step": 1})
	inference := &schemas.Event{Type: schemas.EventWorkerJoined, Role: "inference", At: at}
	for _, c := range []struct {
		name   string
		events []*schemas.Event
		after  time.Duration
		state  State
		detail string
	}{
		{"nothing", nil, 0, "empty", "no trainer has begun"},
		{"only others", []*schemas.Event{inference}, 0, "empty", "no trainer has begun"},
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
		// N1: a run whose episodes fail waits, and says for what, until a step is done.
		{
			"episodes fail",
			[]*schemas.Event{joined, published, failing},
			2 * time.Second, "waiting",
			"no step since 2s ago: task crates: no episode succeeds: 20 of 20 failed; the last: agent mine: answered 503",
		},
		{"an agent asks after its end", []*schemas.Event{joined, published, afterEnd}, 2 * time.Second, "running", "last heard of 2s ago"},
		{"episodes failed before the step", []*schemas.Event{joined, published, failing, late}, 2 * time.Second, "running", "last heard of 2s ago"},
		{"left", []*schemas.Event{joined, published, step, left}, time.Minute, "left", "the trainer left 1m0s ago"},
		{"finished and left", []*schemas.Event{joined, step, done, left}, time.Minute, "finished", "1m0s ago"},
		{"begun again", []*schemas.Event{joined, step, done, left, joined}, time.Second, "starting", "last heard of 1s ago"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var told History
			now := at
			for _, e := range c.events {
				told.Add(e)
				if e.Role == "trainer" {
					now = e.At
				}
			}
			out := told.Status(now.Add(c.after))
			require.Equal(t, c.state, out.State)
			require.Equal(t, c.detail, out.Detail)
		})
	}
}

// A time long ago is rounded to what a reader wants.
func TestATimeLongAgoIsRounded(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for since, want := range map[time.Duration]string{
		-time.Minute: "0s ago", 90 * time.Second: "1m30s ago", time.Hour: "1h0m ago", 11*time.Hour + 56*time.Minute + 52*time.Second: "11h57m ago",
	} {
		require.Equal(t, want, Ago(at, at.Add(since)))
	}
}
