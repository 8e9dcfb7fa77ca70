package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// limitKeys are the keys that bound an episode, by the reason of its end.
var limitKeys = map[schemas.StopReason]string{
	schemas.StopTurns: "trainer.limits.max_turns", schemas.StopTokens: "trainer.limits.max_tokens",
	schemas.StopTimeout: "trainer.limits.timeout", schemas.StopSegments: "trainer.limits.max_segments",
}

// A limit alarms where it ended this share of the trajectories of the newest limitedSteps steps.
const (
	limitedSteps = 4
	limitedShare = 0.8
)

// LimitedTitle heads the alarm of a [Limited].
const LimitedTitle = "a limit ends nearly every episode"

// Limited is a limit that ends nearly every episode: an agent does not end by itself, or a bound is too low.
type Limited struct {
	Reason schemas.StopReason
	// Share is the share of the trajectories that it ended, 0.8 to 1.
	Share float64
}

// FindLimited finds the limit that ends nearly every episode by the newest steps; false where none does.
func FindLimited(steps []Record) (Limited, bool) {
	if len(steps) < limitedSteps {
		return Limited{}, false
	}
	for _, reason := range slices.Sorted(maps.Keys(limitKeys)) {
		share := 0.0
		for _, r := range steps[len(steps)-limitedSteps:] {
			share += r.Metrics[metrics.BatchStopped.Of(string(reason))] / limitedSteps
		}
		if share >= limitedShare {
			return Limited{reason, share}, true
		}
	}
	return Limited{}, false
}

// What is the observation, in a clause.
func (l Limited) What() string {
	return fmt.Sprintf("%.0f %% of the trajectories of the last %d steps were stopped by %s", 100*l.Share, limitedSteps, l.Reason)
}

// Remedy is what to do.
func (l Limited) Remedy() string {
	return "If the agent should end by itself, look at a rollout: it may ask on and on. Else raise " + limitKeys[l.Reason] + "."
}
