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
	waiting, goesOn := event(schemas.EventWaiting, nil), event(schemas.EventWaiting, nil)
	waiting.Message = "the run waits for weir archive"
	failed := schemas.Failing{Task: "crates", Failed: 20, ByCause: map[string]int{"agent": 20}, Last: "agent mine: answered 503"}
	failing := failed.Event("r", "p1", at)
	asks := schemas.Failing{Task: "crates", Late: 7, Last: "POST /v1/messages"}
	afterEnd := asks.Event("r", "p1", at)
	late := event(schemas.EventStepDone, map[string]float64{"time/step": 1})
	inference := &schemas.Event{Type: schemas.EventWorkerJoined, Role: "inference", At: at}
	again := map[string]float64{schemas.MetricAgain: 30}
	signed := event(schemas.EventWorkerJoined, again)
	producing := &schemas.Event{Type: schemas.EventWorkerHere, Role: "producer", Worker: "p", At: signed.At, Metrics: again}
	producing100 := &schemas.Event{Type: schemas.EventWorkerHere, Role: "producer", Worker: "p", At: signed.At.Add(100 * time.Second), Metrics: again}
	sampling := &schemas.Event{Type: schemas.EventWorkerHere, Role: "inference", Worker: "i", At: signed.At, Metrics: again}
	here110 := &schemas.Event{Type: schemas.EventWorkerHere, Role: "trainer", At: signed.At.Add(110 * time.Second), Metrics: again}
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
		// Reader 11, finding 1: of a broker whose disk was full "the trainer waits for trajectories, or was killed" was told.
		{
			"nobody is heard of",
			[]*schemas.Event{signed, published, producing},
			time.Minute, "waiting",
			"no step since 1m0s ago, and no word of any worker since 54s ago: all were killed, or the broker does not store what they send, " +
				"as when its disk is full: its log and its /readyz say why",
		},
		{
			"the trainer alone is heard of no more",
			[]*schemas.Event{signed, published, producing, producing100},
			2 * time.Minute, "waiting",
			"no step since 2m0s ago: the trainer was killed, or has lost the broker",
		},
		// Finding 12b.6: of a run whose only inference consumer was killed, and whose trainer told of itself, it was said that it was killed.
		{
			"no inference consumer is left",
			[]*schemas.Event{signed, published, sampling, producing100, here110},
			20 * time.Second, "waiting",
			"no step since 2m16s ago: the trainer waits for trajectories, and no inference consumer has told of itself since 2m10s ago: " +
				"start one, or see its log",
		},
		{
			"all are there",
			[]*schemas.Event{signed, published, producing100, here110},
			20 * time.Second, "waiting",
			"no step since 2m16s ago: the trainer waits for trajectories",
		},
		// Reader 10, finding 5: the run that waited for its archive "waits for trajectories, or was killed".
		{
			"the archive is away",
			[]*schemas.Event{joined, published, step, waiting},
			20 * time.Second, "waiting",
			"no step since 21s ago: the run waits for weir archive",
		},
		{"the archive came back", []*schemas.Event{joined, published, step, waiting, goesOn}, 20 * time.Second, "running", "last heard of 22s ago"},
		{"the archive came back, and a step", []*schemas.Event{joined, published, waiting, step}, 20 * time.Second, "running", "last heard of 20s ago"},
		{"begun again without its archive", []*schemas.Event{joined, published, waiting, joined, published}, time.Second, "running", "last heard of 1s ago"},
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

// Finding 2 of the ninth reader: a second trainer that was started beside a run's, was refused and left, made the run's status "left", or
// "starting", until the next step, while the run went on.
func TestATrainerThatIsRefusedDoesNotChangeTheState(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(kind schemas.EventType, worker string, after time.Duration) *schemas.Event {
		return &schemas.Event{
			Type: kind, Role: "trainer", Worker: worker, At: at.Add(after), Step: 7, PolicyVersion: 7, Metrics: map[string]float64{schemas.MetricAgain: 30, "time/step": 600},
		}
	}
	const joined, here, left = schemas.EventWorkerJoined, schemas.EventWorkerHere, schemas.EventWorkerLeft
	const cold, published, step, done = schemas.EventColdStart, schemas.EventVersionPublished, schemas.EventStepDone, schemas.EventRunDone
	for _, c := range []struct {
		name   string
		events []*schemas.Event
		state  State
	}{
		{"refused", []*schemas.Event{event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(left, "b", 3)}, StateRunning},
		{"refused, of an older build", []*schemas.Event{event(joined, "a", 0), event(step, "", 1), event(joined, "b", 2), event(left, "b", 3)}, StateRunning},
		{"refused in a cold start", []*schemas.Event{event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(cold, "b", 3), event(left, "b", 4)}, StateRunning},
		{"a step meanwhile", []*schemas.Event{event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(step, "a", 3), event(left, "b", 4)}, StateRunning},
		{"two refused", []*schemas.Event{
			event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(joined, "c", 3), event(left, "c", 4), event(left, "b", 5),
		}, StateRunning},
		{"two refused, the first first", []*schemas.Event{
			event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(joined, "c", 3), event(left, "b", 4), event(left, "c", 6),
		}, StateRunning},
		{"the run is over", []*schemas.Event{
			event(joined, "a", 0), event(step, "a", 1), event(done, "a", 2), event(left, "a", 3), event(joined, "b", 4), event(left, "b", 5),
		}, StateFinished},
		{"replaced", []*schemas.Event{event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(published, "b", 3), event(left, "b", 4)}, StateLeft},
		{"the older leaves", []*schemas.Event{event(joined, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(published, "b", 3), event(left, "a", 4)}, StateRunning},
		{"killed long ago", []*schemas.Event{
			event(joined, "a", 0), event(step, "a", 1), event(here, "a", 30*time.Second), event(joined, "b", time.Hour), event(left, "b", time.Hour+1),
		}, StateLeft},
		{"there by its signs alone", []*schemas.Event{event(here, "a", 0), event(step, "a", 1), event(joined, "b", 2), event(left, "b", 3)}, StateRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			told := NewEvents(at)
			for _, e := range c.events {
				told.Add(e, e.At)
			}
			require.Equal(t, c.state, told.History.Status(at.Add(time.Second)).State)
			require.Equal(t, c.state == StateFinished, told.Streams(at).Done)
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
