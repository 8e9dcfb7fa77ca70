package report

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// EventLine is an event as a line of weir status --follow.
func EventLine(e *schemas.Event) string {
	return Plain(fmt.Sprintf("%s %-18s %-10s %s", e.At.Local().Format(time.TimeOnly), e.Type, e.Role, EventText(e)))
}

// EventText is an event in words, with its numbers.
func EventText(e *schemas.Event) string {
	m := e.Metrics
	switch e.Type {
	case schemas.EventStepDone:
		dropped, refused := Untrained(m)
		return fmt.Sprintf("step %d: reward %.3f, staleness %.2f mean, %.0f max, %.0f trajectories, dropped %.0f, refused %.0f, idle %.2f",
			e.Step, m[metrics.RewardMean.Name], m[metrics.StalenessMean.Name], m[metrics.StalenessMax.Name], m[metrics.BatchTrajectories.Name], dropped, refused, m[metrics.TimeIdleRatio.Name])
	case schemas.EventEvaluated:
		return fmt.Sprintf("version %d: exact match %.3f over %.0f held-out questions", e.PolicyVersion, m[metrics.EvalExactMatch.Name], m[metrics.EvalQuestions.Name])
	case schemas.EventColdStart:
		return fmt.Sprintf("step %.0f of %.0f, loss %.3f", m[metrics.ColdStartStep.Name], m[metrics.ColdStartSteps.Name], m[metrics.ColdStartLoss.Name])
	case schemas.EventVersionApplied:
		return fmt.Sprintf("version %d by %s, %.0f ms after it was published", e.PolicyVersion, e.Worker, 1000*m["weights_lag_seconds"])
	case schemas.EventVersionPublished:
		return fmt.Sprintf("version %d", e.PolicyVersion)
	case schemas.EventRunDone:
		return fmt.Sprintf("step %d: %s", e.Step, e.Message)
	case schemas.EventWaiting:
		return cmp.Or(e.Message, "it goes on")
	case schemas.EventWorkerJoined, schemas.EventWorkerLeft:
		return e.Worker
	}
	return fmt.Sprintf("version %d %s", e.PolicyVersion, e.Message)
}
