package producers

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// Row 1: an agent that goes on asking after its episode ended is reported from its third request on, at each doubling, and when no request
// came for a minute. Single late requests of many episodes are no report.
func TestAnAgentThatGoesOnAfterItsEndIsReported(t *testing.T) {
	now := time.Unix(0, 0)
	var reports []schemas.Failing
	l := &lateWatch{task: "t", now: func() time.Time { return now }, report: func(f schemas.Failing) { reports = append(reports, f) }}
	for range 10 {
		l.addRequest(1, "GET /v1/models")
	}
	require.Empty(t, reports)
	now = now.Add(lateSpell)
	l.endSpell()
	require.Empty(t, reports, "nothing was reported that could be over")
	e := &Episode{env: Environment{late: l}}
	report := e.LateReporter()
	for n := range 12 {
		report(n+1, "POST /v1/chat/completions")
	}
	l.endSpell()
	require.Len(t, reports, 3)
	for i, count := range []int{3, 6, 12} {
		require.Equal(t, schemas.Failing{Task: "t", Late: count, Last: "POST /v1/chat/completions"}, reports[i])
	}
	now = now.Add(lateSpell)
	l.endSpell()
	require.Len(t, reports, 4)
	require.True(t, reports[3].Over)
	require.NotPanics(t, func() { new(Episode).LateReporter()(1, "") }, "no producer")
}

// A spell that goes on is reported again after some minutes: a trainer that starts anew, and weir status after it, had nothing of episodes
// that fail until their number had doubled.
func TestASpellThatGoesOnIsReportedAgain(t *testing.T) {
	now := time.Unix(0, 0)
	var watch failureWatch
	var reports []schemas.Failing
	for range 5 * 61 {
		now = now.Add(time.Second)
		if f, due := watch.addOutcome("t", errors.New("away"), now); due {
			reports = append(reports, f)
		}
	}
	var failed []int
	for _, f := range reports {
		failed = append(failed, f.Failed)
	}
	require.Equal(t, []int{5, 10, 20, 40, 80, 160}, failed)
	now = now.Add(reportAgain)
	f, due := watch.addOutcome("t", errors.New("away"), now)
	require.True(t, due)
	require.Equal(t, 306, f.Failed)
	_, due = watch.addOutcome("t", nil, now.Add(2*reportAgain))
	require.False(t, due, "a success is no failure that goes on")

	var late []schemas.Failing
	l := &lateWatch{task: "t", now: func() time.Time { return now }, report: func(f schemas.Failing) { late = append(late, f) }}
	for n := range 6 {
		l.addRequest(n+1, "GET /v1/models")
	}
	require.Len(t, late, 2)
	now = now.Add(reportAgain)
	l.addRequest(7, "GET /v1/models")
	require.Len(t, late, 3)
	l.addRequest(8, "GET /v1/models")
	require.Len(t, late, 3)
}
