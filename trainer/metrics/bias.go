package metrics

import (
	"fmt"
	"strings"
)

// The keys of what became of trajectories.
var (
	BiasLength = Key{
		"bias/length", "share",
		"Kolmogorov-Smirnov distance of the trained trajectories from all that ended, by length, over the newest 2,048 " +
			"that this process saw end. 0: nothing is refused, or refused whatever its length. Groups with equal rewards " +
			"are left out of both sides, duplicates and foreign messages too.",
		Gauge{"bias_length_distance", "Distance of the trained trajectories from all that ended, by length."},
	}
	BiasDuration = Key{
		"bias/duration", "share",
		"The same by duration of the rollout. Samples that producers cut off or closed, and lost samples, count with the time since their ticket.",
		Gauge{"bias_duration_distance", "Distance of the trained trajectories from all that ended, by duration."},
	}
	BiasTurns = Key{
		"bias/turns", "share",
		"The same by number of turns.",
		Gauge{"bias_turns_distance", "Distance of the trained trajectories from all that ended, by turns."},
	}
	BiasReward = Key{
		"bias/reward", "share",
		"The same by outcome reward.",
		Gauge{"bias_reward_distance", "Distance of the trained trajectories from all that ended, by reward."},
	}
	BiasLengthP = Key{
		"bias/length_p", "",
		"Probability of such a distance by chance: the two-sample Kolmogorov-Smirnov test of the trained against the " +
			"others, with prompts as the sample size, for rollouts of one prompt are alike. Ties make it too large, never " +
			"too small.",
		Gauge{"bias_length_p_ratio", "Probability of the distance by length, if length had nothing to do with it."},
	}
	BiasDurationP = Key{
		"bias/duration_p", "",
		"The same by duration.",
		Gauge{"bias_duration_p_ratio", "Probability of the distance by duration, if duration had nothing to do with it."},
	}
	BiasTurnsP = Key{
		"bias/turns_p", "",
		"The same by number of turns.",
		Gauge{"bias_turns_p_ratio", "Probability of the distance by turns, if turns had nothing to do with it."},
	}
	BiasRewardP = Key{
		"bias/reward_p", "",
		"The same by outcome reward.",
		Gauge{"bias_reward_p_ratio", "Probability of the distance by reward, if reward had nothing to do with it."},
	}
	BiasCompared = Key{
		"bias/compared", "trajectories",
		"Trajectories that were compared by length.",
		Gauge{},
	}
	BiasSource = Key{
		"bias/source/<name>", "share",
		"Greatest distance within one source whose probability is below 0.001, 0 where there is none, in a run of " +
			"several sources; other as for components.",
		Gauge{},
	}
	BiasTask = Key{
		"bias/task/<name>", "share",
		"The same for each task, in a run of several.",
		Gauge{},
	}

	LostSeconds = Key{
		"ended/lost_seconds", "seconds",
		"Mean time from a ticket to the end of the wait for it, over the step's lost samples: nothing else of them is " +
			"known.",
		Gauge{},
	}
	CancelledSamples = Key{
		"ended/cancelled", "samples",
		"Samples that producers closed without a trajectory.",
		Gauge{"cancelled_samples", "Samples that producers closed without a trajectory in the last step."},
	}
	CancelledSeconds = Key{
		"ended/cancelled_seconds", "seconds",
		"Mean time from their ticket to their end.",
		Gauge{},
	}
	TimeAwaited = Key{
		"time/awaited", "seconds",
		"The part of time/wait in which a batch was there and the step waited for episodes that would else become too old " +
			"(trainer.staleness wait and pace).",
		Gauge{"awaited_seconds", "Time that the last step waited, with a batch, for episodes that would else become too old."},
	}
	EndedUnawaited = Key{
		"ended/unawaited", "groups",
		"Groups that the step no longer waited for, as their episodes did not come in time (trainer.staleness wait and pace).",
		Gauge{},
	}
	EndedLength = Key{
		"ended/length/<reason>", "tokens",
		"Mean length of the step's trajectories that were not trained on, by reason.",
		Gauge{},
	}
	EndedDuration = Key{
		"ended/duration/<reason>", "seconds",
		"Mean duration of their rollouts.",
		Gauge{},
	}
)

// The bounds of Bias: a distance that matters, and one that chance hardly ever makes.
const (
	BiasMinDistance = 0.1
	BiasMaxP        = 0.001
)

// BiasRemedy is what to do about a bias.
const BiasRemedy = "Raise trainer.eta, lower trainer.depth, or set trainer.staleness to wait, so that less is refused as stale."

// BiasKey are the distance of a measure and its probability.
type BiasKey struct {
	Measure     string
	Distance, P Key
}

// BiasKeys are the keys of each measure, in the order of package bias.
func BiasKeys() []BiasKey {
	return []BiasKey{
		{"length", BiasLength, BiasLengthP},
		{"duration", BiasDuration, BiasDurationP},
		{"turns", BiasTurns, BiasTurnsP},
		{"reward", BiasReward, BiasRewardP},
	}
}

// Bias describes the differences between the trained trajectories and all that ended; "" where none matters.
func Bias(v map[string]float64) string {
	var parts []string
	for _, k := range BiasKeys() {
		if d, p := k.Distance.In(v), k.P.In(v); d > BiasMinDistance && p < BiasMaxP {
			parts = append(parts, fmt.Sprintf("%s (distance %.2f, p %.2g)", k.Measure, d, p))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("of the newest %.0f trajectories, those trained on differ from all in %s", BiasCompared.In(v), strings.Join(parts, ", "))
}
