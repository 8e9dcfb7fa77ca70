package view

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// remedies are what to do about episodes that fail, by the cause of most of them.
var remedies = map[string]string{
	"agent":           "Mend the agent's program or service; weir agent run tries one episode of it and shows what it does.",
	"tool":            "Mend the tool or start its service; weir tool calls a tool by hand.",
	"reward":          "Mend the reward: it must answer with a finite number.",
	"engine":          "Look at the inference consumers and their logs.",
	"nothing_sampled": "Raise trainer.limits.max_tokens, or shorten the questions.",
	"prompt":          "Mend the questions' data: each failure names the field.",
	"too_large":       "Lower trainer.limits.max_tokens, or the size of what the tools return.",
	"panic":           "A part of the task has a bug: the producer's log has its stack.",
}

// failureAlarms are the alarms about tasks whose episodes fail.
func failureAlarms(failures []report.Failure) []Alarm {
	var out []Alarm
	for _, f := range failures {
		if f.Late > 0 {
			out = append(out, lateAlarm(f))
			continue
		}
		title, level := "episodes fail", levelWarn
		if f.Succeeded == 0 {
			title = "no episode succeeds"
		}
		if f.Failed > f.Succeeded {
			level = levelAlarm
		}
		remedy, known := remedies[mostCommon(f.ByCause)]
		if !known {
			remedy = "The producer's log has the failures."
		}
		out = append(out, Alarm{level, title, f.String(), remedy, "streams"})
	}
	return out
}

// lateAlarm is the alarm about agents that go on after the end of their episodes.
func lateAlarm(f report.Failure) Alarm {
	return Alarm{
		levelWarn, "the agent goes on asking after its episode ended", f.String(),
		"Each request was refused. Let the agent stop at an answer 401, 403 or 410, and after it posted its outcome.", "streams",
	}
}

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

// findLimited finds that a limit ends nearly every episode: an agent that does not end by itself, or a bound that is too low.
func findLimited(steps []report.Record) (Alarm, bool) {
	if len(steps) < limitedSteps {
		return Alarm{}, false
	}
	for _, reason := range slices.Sorted(maps.Keys(limitKeys)) {
		share := 0.0
		for _, r := range steps[len(steps)-limitedSteps:] {
			share += r.Metrics[metrics.BatchStopped.Of(string(reason))] / limitedSteps
		}
		if share >= limitedShare {
			return Alarm{
				levelWarn, "a limit ends nearly every episode",
				fmt.Sprintf("%.0f %% of the trajectories of the last %d steps were stopped by %s", 100*share, limitedSteps, reason),
				"If the agent should end by itself, look at a rollout: it may ask on and on. Else raise " + limitKeys[reason] + ".", "trajectories",
			}, true
		}
	}
	return Alarm{}, false
}

// mostCommon returns the key with the greatest count, the first by name of equal ones; "" where there is none.
func mostCommon(counts map[string]int) string {
	best := ""
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		if best == "" || counts[key] > counts[best] {
			best = key
		}
	}
	return best
}
