package assembly

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Newcomer's friction N13: a finished run that is reported again has the time of its training, and not that of the report.
func TestAReportAgainHasTheTimeOfTheRun(t *testing.T) {
	t.Parallel()
	tested := func(version int64, seconds float64) report.Record {
		return report.Record{Type: report.Tested, PolicyVersion: version, Metrics: map[string]float64{metrics.TimeTotal.Name: seconds}}
	}
	records := []report.Record{tested(20, 300), {Type: "step_done", PolicyVersion: 40}, tested(40, 660), tested(40, 9)}
	require.Equal(t, 11*time.Minute, reportedTime(records, 40))
	require.Zero(t, reportedTime(records, 50))
}
