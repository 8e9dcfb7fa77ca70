package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
)

// A terminal of 80 columns shows the whole of what a status says; what is not a terminal gets each row on one line.
func TestTheStatusFitsATerminal(t *testing.T) {
	t.Parallel()
	at := time.Now()
	var told runfolder.History
	told.Add(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: at, Step: 6, Metrics: map[string]float64{"reward/mean": 0.152}})
	o := newStanding("small", true, &runfolder.Standing{Status: told.Status(at), History: told, Control: &schemas.Control{}})
	o.RefusedByProducer = []runfolder.ProducerRefusals{{Producer: "flooder", Messages: 3, Reasons: map[schemas.Reason]int{schemas.ReasonDuplicate: 3}}}
	var narrow, plain strings.Builder
	o.printStanding(&narrow, 80)
	o.printStanding(&plain, 0)
	for line := range strings.Lines(narrow.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
	for word := range strings.FieldsSeq(o.LastStep.eventText()) {
		require.Contains(t, narrow.String(), word)
	}
	require.Contains(t, plain.String(), "│ "+o.LastStep.eventText()+" │")
	require.Contains(t, plain.String(), "flooder 3 (duplicate 3)")
}

// Requests after an episode's end are no failed episodes: they have a row with a heading of its own.
func TestTheStatusHeadsRequestsAfterTheEndByThemselves(t *testing.T) {
	t.Parallel()
	o := newStanding("small", true, &runfolder.Standing{})
	o.Failures = []report.Failure{{Task: "crates", Failed: 2, Last: "answered 503"}, {Task: "crates", Late: 7, Last: "POST /v1/messages"}}
	var out strings.Builder
	o.printStanding(&out, 0)
	require.Regexp(t, "│ episodes fail +│ task crates: no episode succeeds: 2 of 2 failed", out.String())
	require.Regexp(t, "│ requests after the end +│ task crates: the agent goes on asking after its episode ended: 7 requests", out.String())
	require.Equal(t, 1, strings.Count(out.String(), "episodes fail"))
}

// Events are told with their numbers.
func TestAnEventIsToldWithItsNumbers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	require.Equal(t, "03:04:05 step_done          trainer    step 8: reward 0.750, staleness 1.50 mean, 3 max, 256 trajectories, dropped 512, refused 2, idle 0.25",
		report.EventLine(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: at, Step: 8, PolicyVersion: 8, Metrics: map[string]float64{
			"reward/mean": 0.75, "staleness/mean": 1.5, "staleness/max": 3, "batch/trajectories": 256,
			"rejected/zero_variance": 500, "rejected/incomplete": 12, "rejected/stale": 2, "time/idle_ratio": 0.25,
		}}))
	require.Equal(t, "03:04:05 evaluated          trainer    version 8: exact match 0.988 over 160 held-out questions",
		report.EventLine(&schemas.Event{Type: schemas.EventEvaluated, Role: "trainer", At: at, PolicyVersion: 8, Metrics: map[string]float64{
			"eval/exact_match": 0.988, "eval/questions": 160,
		}}))
	require.Equal(t, `03:04:05 odd                trainer    version 0 \x1b[2J`,
		report.EventLine(&schemas.Event{Type: "odd", Role: "trainer", At: at, Message: "\x1b[2J"}))
}

// An agent that loops is named by the status, whether or not it asks for anything, with its task and with what to do.
func TestTheStatusNamesAnAgentThatLoops(t *testing.T) {
	t.Parallel()
	at := time.Now()
	var told runfolder.History
	told.Add(&schemas.Event{Type: schemas.EventStepDone, Role: "trainer", At: at.Add(-time.Minute), Step: 6, Metrics: map[string]float64{"time/step": 1}})
	overdue := schemas.Failing{Task: "things", Overdue: 2, Last: "g8/1 has run for 30 s: agent mine has asked for nothing. An endless loop?"}
	limited := schemas.Failing{Task: "things", Limited: 64, Ended: 64, Last: "agent mine was stopped by turns. It may ask on and on: bound its loop, or raise trainer.limits.max_turns"}
	told.Add(overdue.Event("r", "p", at))
	told.Add(limited.Event("r", "p", at))
	o := newStanding("small", true, &runfolder.Standing{Status: told.Status(at), History: told, Control: &schemas.Control{}})
	var out strings.Builder
	o.printStanding(&out, 0)
	require.Regexp(t, "│ state +│ waiting: no step since 1m0s ago: task things: 2 episodes do not end; the oldest: g8/1 has run for 30 s: agent mine", out.String())
	require.Regexp(t, "│ episodes do not end +│ task things: 2 episodes do not end", out.String())
	require.Regexp(t, "│ a limit ends episodes +│ task things: a limit ends nearly every episode: 64 of the newest 64 trajectories: agent mine was stopped by turns", out.String())
	require.Contains(t, out.String(), "bound its loop, or raise trainer.limits.max_turns")
}

func TestABiasedRunIsSeenInItsStatus(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 2, 3, 4, 5, 0, time.UTC)
	status := func(distance float64) string {
		step := &schemas.Event{
			Run: "small", Type: schemas.EventStepDone, At: at, Role: "trainer", Step: 3,
			Metrics: map[string]float64{"bias/duration": distance, "bias/duration_p": 1e-5, "bias/compared": 500},
		}
		var b strings.Builder
		told := runfolder.History{LastStep: step, LastHeard: at}
		newStanding("small", true, &runfolder.Standing{Status: told.Status(at), History: told, Control: &schemas.Control{}}).printStanding(&b, 0)
		return b.String()
	}
	require.Contains(t, status(0.2), "of the newest 500 trajectories, those trained on differ from all in duration (distance 0.20, p 1e-05)")
	require.NotContains(t, status(0.05), "biased")
}
