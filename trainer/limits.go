package trainer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// EventRefused is the type of the event for a limit of an operator that the trainer does not adopt. Message names the limit and the reason.
const EventRefused schemas.EventType = "control_refused"

// limits are the operators' limits of episodes, as [schemas.Control] lists them.
type limits []schemas.Limit

// overrideLimits returns the limits of a task's episodes: at, changed by the operators' settings.
func (l limits) overrideLimits(task string, at schemas.Limits) schemas.Limits {
	for _, one := range l { // limits of every task come first
		if one.Task == "" || one.Task == task {
			at.Set(one.Key, one.Value)
		}
	}
	return at
}

// changesTo returns the differences from l to now, for the record.
func (l limits) changesTo(now limits) (out []checkpoint.RecordChange) {
	for _, change := range schemas.LimitChanges(l, now) {
		out = append(out, checkpoint.RecordChange{Key: "control.limits." + change.Name, Before: change.Before, After: change.After})
	}
	return out
}

// isLimitKey reports whether a setting is a limit of episodes.
func isLimitKey(key string) bool {
	task, in := strings.CutPrefix(key, "tasks.")
	return strings.HasPrefix(key, "trainer.limits.") || in && strings.Contains(task, ".limits.")
}

// checkLimits splits limits into sound, which this run can apply, and faults, which name each other limit with the reason.
func (c *control) checkLimits(asked limits) (sound limits, faults []string) {
	tasks, longest, most := c.deps.Prompts.Tasks(), c.deps.maxSequence(), c.cfg.Limits.MaxSegments
	for _, one := range asked {
		switch {
		case one.Task != "" && !slices.Contains(tasks, one.Task):
			faults = append(faults, fmt.Sprintf("limits.%s: the run has no task %q: want %s", one.Name(), one.Task, strings.Join(tasks, ", ")))
		case one.Key == schemas.LimitMaxTokens && one.Value > int64(longest):
			faults = append(faults, fmt.Sprintf("limits.%s: %d: must not exceed the longest sequence of the policy, %d", one.Name(), one.Value, longest))
		case one.Key == schemas.LimitMaxSegments && most > 0 && one.Value > int64(most):
			faults = append(faults, fmt.Sprintf("limits.%s: %d: must not exceed trainer.limits.max_segments, %d: what has more is refused", one.Name(), one.Value, most))
		default:
			sound = append(sound, one)
		}
	}
	return sound, faults
}

// adoptLimits takes over the limits that an operator has set since the trainer last wrote; they apply to tickets that are planned from then
// on. A limit that the run cannot apply is refused with an event, and taken out of control at the next write.
func (c *control) adoptLimits(now *schemas.Control, step int64) {
	asked := limits(now.Limits)
	if slices.Equal(asked, c.told) {
		return
	}
	sound, faults := c.checkLimits(asked)
	for _, change := range c.limits.changesTo(sound) {
		c.deps.Log.Info("limits of episodes changed by control", "key", change.Key, "before", change.Before, "after", change.After)
		c.changed = append(c.changed, change)
	}
	c.limits, c.told = sound, asked
	if len(faults) == 0 {
		return
	}
	message := strings.Join(faults, "; ")
	c.deps.Log.Warn("control refused", "why", message)
	c.deps.Observer(schemas.Event{
		Run: c.deps.Stream.Name(), Type: EventRefused, At: c.deps.Now().UTC(), Role: "trainer", Step: step, PolicyVersion: step, Message: message,
	})
}
