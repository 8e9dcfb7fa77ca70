package view

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/trainer/metrics"
)

// N1: a task whose episodes fail is an alarm, with what to do about the cause of most failures.
func TestFailuresAreAlarms(t *testing.T) {
	require.Empty(t, failureAlarms(nil))
	got := failureAlarms([]report.Failure{
		{Task: "crates", Failed: 412, ByCause: map[string]int{"agent": 400, "tool": 12}, Last: "agent mine: answered 503"},
		{Task: "boxes", Failed: 10, Succeeded: 30, ByCause: map[string]int{"odd": 10}, Last: "x"},
	})
	require.Len(t, got, 2)
	require.Equal(t, levelAlarm, got[0].Level)
	require.Equal(t, "no episode succeeds", got[0].Title)
	require.Contains(t, got[0].What, "answered 503")
	require.Equal(t, remedies["agent"], got[0].Do)
	require.Equal(t, levelWarn, got[1].Level)
	require.Equal(t, "episodes fail", got[1].Title)
	require.NotEmpty(t, got[1].Do)
}

// Row 1: an agent that goes on asking after the end of its episode is an alarm with the count and the last request.
func TestAnAgentThatGoesOnAfterItsEndIsAnAlarm(t *testing.T) {
	got := failureAlarms([]report.Failure{{Task: "crates", Late: 37, Last: "POST /v1/chat/completions"}})
	require.Len(t, got, 1)
	require.Equal(t, "the agent goes on asking after its episode ended", got[0].Title)
	require.Contains(t, got[0].What, "37 requests; the last: POST /v1/chat/completions")
	require.NotEmpty(t, got[0].Do)
}

// N4: an agent that never ends by itself is named: a limit ends nearly every episode.
func TestALimitThatEndsEveryEpisodeIsAnAlarm(t *testing.T) {
	step := func(share float64) report.Record {
		return report.Record{Metrics: map[string]float64{metrics.BatchStopped.Of("turns"): share, metrics.BatchStopped.Of("answer"): 1 - share}}
	}
	got, limited := findLimited([]report.Record{step(0), step(1), step(1), step(0.9), step(1)})
	require.True(t, limited)
	require.Equal(t, "98 % of the trajectories of the last 4 steps were stopped by turns", got.What)
	require.Contains(t, got.Do, "trainer.limits.max_turns")
	_, limited = findLimited([]report.Record{step(1), step(0.5), step(1), step(0.5)})
	require.False(t, limited)
	_, limited = findLimited([]report.Record{step(1), step(1), step(1)})
	require.False(t, limited)
}

// An agent that loops is an alarm, whether or not it asks for anything.
func TestAnEpisodeThatDoesNotEndIsAnAlarm(t *testing.T) {
	got := failureAlarms([]report.Failure{
		{Task: "things", Overdue: 1, Last: "g8/1 has run for 30 s: agent mine has asked for nothing"},
		{Task: "boxes", Overdue: 3},
		{Task: "crates", Limited: 60, Ended: 64, Last: "agent mine was stopped by turns"},
	})
	require.Len(t, got, 3)
	require.Equal(t, "an episode does not end", got[0].Title)
	require.Contains(t, got[0].What, "task things: an episode does not end: g8/1 has run for 30 s: agent mine")
	require.Contains(t, got[0].Do, "trainer.limits.timeout")
	require.Equal(t, "episodes do not end", got[1].Title)
	require.Equal(t, report.LimitedTitle, got[2].Title)
	require.Contains(t, got[2].What, "agent mine was stopped by turns")
}
