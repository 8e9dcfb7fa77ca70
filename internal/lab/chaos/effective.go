package chaos

import (
	"path/filepath"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

// EffectiveReport is how much of the time with faults was not lost.
type EffectiveReport struct {
	// CalmSeconds is how long a step took while nothing was broken, CalmSteps of how many steps.
	CalmSeconds float64 `json:"calm_seconds_per_step"`
	CalmSteps   int     `json:"calm_steps"`
	// FaultSeconds is how long faults went on, FaultSteps how many steps were done meanwhile.
	FaultSeconds float64 `json:"fault_seconds"`
	FaultSteps   int     `json:"fault_steps"`
	// Share is the steps that were done while faults went on, times CalmSeconds, as a share of FaultSeconds; at most 1.
	Share float64 `json:"share"`
}

// measureEffective compares the steps of the time with faults with the steps before and after it.
func (h *experiment) measureEffective() error {
	records, err := report.ReadMetrics(filepath.Join(filepath.Dir(h.cfg.Checkpoints), "metrics.jsonl"))
	if err != nil {
		return err
	}
	var done []time.Time
	for _, r := range records {
		if r.Type == string(schemas.EventStepDone) {
			done = append(done, r.At)
		}
	}
	h.report.Effective = effectiveTime(done, h.faultsBegan, h.faultsEnded)
	return nil
}

// effectiveTime is nil where no faults came, or no two steps were done while nothing was broken. done are the times of steps, in order.
func effectiveTime(done []time.Time, began, ended time.Time) *EffectiveReport {
	if began.IsZero() || !ended.After(began) {
		return nil
	}
	out := &EffectiveReport{FaultSeconds: ended.Sub(began).Seconds()}
	var calm time.Duration
	for i, at := range done {
		switch {
		case at.After(began) && !at.After(ended):
			out.FaultSteps++
		case i > 0 && (!at.After(began) || done[i-1].After(ended)):
			calm += at.Sub(done[i-1])
			out.CalmSteps++
		}
	}
	if out.CalmSteps == 0 {
		return nil
	}
	out.CalmSeconds = calm.Seconds() / float64(out.CalmSteps)
	out.Share = min(1, float64(out.FaultSteps)*out.CalmSeconds/out.FaultSeconds)
	return out
}
