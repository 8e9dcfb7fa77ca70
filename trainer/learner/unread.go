package learner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/selection"
)

// Unread returns the reason why nothing in a run under this configuration depends on a key, which is given without trainer. before it; ""
// if something does.
func (c Config) Unread(key string) string {
	section, name := splitLast(key)
	switch {
	case key == "critic.network" && c.Critic.Network != CriticNone && !c.needsValues():
		return fmt.Sprintf("advantage %s reads no values: the critic is trained and never asked", c.Advantage.Name)
	case strings.HasPrefix(key, "loss.value.") && c.Critic.Network == CriticNone:
		return "critic.network is none"
	case section == "critic.optimizer" && c.Critic.Network == CriticNone:
		return "critic.network is none"
	case section == "critic.optimizer" && c.Critic.Network == CriticHead && c.Critic.WarmupSteps == 0 && !slices.Contains(headReads, name):
		return "critic.network is head, and critic.warmup_steps 0: the policy's optimizer moves both"
	case key == "proximal" && !c.ratiosAgainstStart():
		return "loss " + c.Loss.Name + " takes no ratio against the policy at the start of the step"
	case key == "advantage.bootstrap" && !c.needsValues():
		return fmt.Sprintf("advantage %s reads no values", c.Advantage.Name)
	case key == "advantage.tokens" && c.MaskTools && c.Critic.Network == CriticNone && c.Advantage.sameOverAnyTokens():
		return fmt.Sprintf("advantage %s is the same over any tokens, and there is no critic", c.Advantage.Name)
	case section == "advantage.normalize":
		return check.Prefixed(section, c.Advantage.Normalize.Unread(name))
	case section == "advantage":
		if own, ok := c.Advantage.Own.(unreadReporter); ok {
			return check.Prefixed(section, own.Unread(name))
		}
	case section == "loss.options.aggregation":
		return check.Prefixed(section, c.Loss.Shared().Aggregation.Unread(name))
	case section == "loss.options.correction":
		return check.Prefixed(section, c.Loss.Shared().Correction.Unread(name))
	case section == "loss.kl":
		return check.Prefixed(section, c.Loss.KL.Unread(name))
	case section == "loss.duration" && name != "share" && c.Loss.Duration.Share == 0:
		return "loss.duration.share is 0"
	case strings.HasPrefix(key, "selection."):
		return c.Selection.unreadKey(strings.TrimPrefix(key, "selection."))
	case name == "final_ratio" && section == "optimizer" && c.Optimizer.Schedule == ScheduleConstant:
		return "optimizer.schedule is constant"
	case strings.HasPrefix(key, "cold_start.") && name != "steps" && c.ColdStart.Steps == 0:
		return "cold_start.steps is 0"
	}
	return ""
}

// headReads are the keys of the critic's optimizer that count for a value head after the critic's warm-up.
var headReads = []string{"learning_rate", "schedule", "warmup_steps", "final_ratio"}

// ratiosAgainstStart reports whether anything takes ratios against the policy at the start of a step.
func (c Config) ratiosAgainstStart() bool {
	o, err := newObjective(c)
	return err != nil || o.against
}

// splitLast splits a key before its last part.
func splitLast(key string) (section, name string) {
	at := strings.LastIndexByte(key, '.')
	if at < 0 {
		return "", key
	}
	return key[:at], key[at+1:]
}

// needsValues reports whether the advantage reads a critic's values.
func (c Config) needsValues() bool {
	return slices.Contains(c.Advantage.Facts().Requires, "Values")
}

// unreadReporter is implemented by keys of which some may have no effect.
type unreadReporter interface {
	// Unread returns the reason why nothing depends on a key, beginning with the other key that causes it; "" if something does.
	Unread(key string) string
}

// unreadKey is Config.Unread of this section's keys.
func (s Selection) unreadKey(key string) string {
	section, name := splitLast(key)
	switch {
	case section == "resample" && name != "by" && s.Resample.By == selection.ResampleOff:
		return "selection.resample.by is off"
	case (key == "resample.right" || key == "resample.flawless") && s.Resample.By != selection.ResampleCorrect:
		return "selection.resample.by is not on_correct"
	case section == "overlong" && name != "limit" && name != "mask" && s.Overlong.Limit == 0:
		return "selection.overlong.limit is 0"
	case key == "accumulate.max_rounds" && s.Accumulate.Rows == 0:
		return "selection.accumulate.rows is 0"
	case (key == "worst" || key == "best") && !s.ExtremesOnly:
		return "selection.extremes_only is false"
	case !s.DropZeroVariance && slices.Contains([]string{"drop_rate", "tolerance", "extremes_only", "worst", "best", "keep_single"}, key):
		return "selection.drop_zero_variance is false"
	}
	return ""
}
