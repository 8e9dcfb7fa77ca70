package metrics

// The keys of a shadow, beside those of a run's step.
var (
	ShadowESS = Key{
		"shadow/ess", "share", "Effective sample size of the weights between the shadow at the step's start and the policies that sampled, " +
			"over the tokens trained on. Near 0: the shadow has gone where the run's trajectories say little.", Gauge{},
	}
	ShadowLogprob = Key{
		"shadow/logprob_difference", "nats", "Mean size of the difference of their log-probabilities: how far the shadow has moved from the " +
			"run that sampled.", Gauge{},
	}
	ShadowKL = Key{
		"shadow/kl", "nats", "Divergence of the policies that sampled from the shadow (k3), at the same tokens. The run's own is its " +
			"`policy/mismatch_kl`.", Gauge{},
	}
	ShadowWeights = Key{
		"shadow/weight_distance", "share", "Length of the difference between the weights of shadow and run after the step, over the length of " +
			"the run's. In steps of which the run has a full checkpoint.", Gauge{},
	}
	ShadowBehind = Key{"shadow/behind", "steps", "Steps that the run has made and the shadow has not.", Gauge{}}
	ShadowMissed = Key{
		"shadow/missed_steps", "steps", "Steps of the run, since the shadow began, whose batch was gone before the shadow came to it.", Gauge{},
	}
	ShadowEmpty = Key{
		"shadow/empty_steps", "steps", "Steps of the run, since the shadow began, none of whose trajectories the shadow may use.", Gauge{},
	}
	ShadowRefused = Key{
		"shadow/refused", "trajectories", "Trajectories of the step that the shadow does not train on: beyond its eta, or in groups that its " +
			"selection drops.", Gauge{},
	}
)

// shadowKeys returns the keys of a shadow.
func shadowKeys() []Key {
	return []Key{
		ShadowESS, ShadowLogprob, ShadowKL, ShadowWeights, ShadowBehind, ShadowMissed, ShadowEmpty, ShadowRefused,
	}
}
