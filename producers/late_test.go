package producers

import (
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
