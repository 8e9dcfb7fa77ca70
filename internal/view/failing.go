package view

import (
	"maps"
	"slices"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
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
		switch f.Kind() {
		case schemas.FailingLate:
			out = append(out, lateAlarm(f))
			continue
		case schemas.FailingOverdue:
			out = append(out, overdueAlarm(f))
			continue
		case schemas.FailingLimited:
			remedy := "Look at a rollout. If the agent should end by itself, bound its loop. Else raise the limit."
			out = append(out, Alarm{levelWarn, report.LimitedTitle, f.String(), remedy, "trajectories"})
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

// overdueAlarm is the alarm about running episodes that do not end.
func overdueAlarm(f report.Failure) Alarm {
	title := "an episode does not end"
	if f.Overdue > 1 {
		title = "episodes do not end"
	}
	return Alarm{
		levelWarn, title, f.String(),
		"Look for an endless loop in the agent, and bound its waits. If the agent is only slow, nothing is wrong. " +
			"trainer.limits.timeout ends such an episode.",
		"streams",
	}
}

// findLimited finds that a limit ends nearly every episode.
func findLimited(steps []report.Record) (Alarm, bool) {
	l, found := report.FindLimited(steps)
	if !found {
		return Alarm{}, false
	}
	return Alarm{levelWarn, report.LimitedTitle, l.What(), l.Remedy(), "trajectories"}, true
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
