package learner

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/selection"
)

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Fields(c),
		check.That(c.Critic.Network != CriticNone || !c.needsValues(), "critic.network",
			"none: advantage %s needs a critic: head, a value head on the policy, or own, a network of its own", c.Advantage.Name),
		check.That(c.Selection.Resample.By != selection.ResampleBest || c.Critic.Network == CriticNone, "selection.resample.by",
			"best: a critic that learns from the best samples alone expects too much: set critic.network to none, or by to on_correct"),
		c.creditFaults(),
		check.That(c.MaskTools || c.computesStart(), "mask_tools",
			"false: what tools returned has the log-probability of the policy at the start of the step, which nothing computes with loss %s, proximal %s "+
				"and one update a step: set minibatches or epochs above 1, proximal to %s and a loss with ratios against that policy, or leave it on",
			c.Loss.Name, c.Proximal, ProximalRecompute),
		check.That(c.Critic.Network == CriticNone || c.Critic.WarmupSteps < c.Steps, "critic.warmup_steps",
			"%d: the run has %d steps, and each would train the critic alone: set it below steps", c.Critic.WarmupSteps, c.Steps),
		check.That(!c.Advantage.NormalizeProcess || !c.Baseline(), "advantage.normalize_process",
			"true: it would scale the samples' rewards and not the baseline's of %s: turn it off", c.Advantage.Name),
	)
}

// creditFaults are the faults of an estimator that runs over the output of tools too and cannot.
func (c Config) creditFaults() error {
	key, value, instead := "advantage.tokens", TokensAll, "set it to "+TokensSampled
	if c.Advantage.Tokens == TokensTrained {
		key, value, instead = "mask_tools", "false", "leave it on, or set advantage.tokens to "+TokensSampled
	}
	return check.All(
		check.That(!c.creditsTools() || !c.Advantage.Facts().ByTurns, key,
			"%s: advantage %s tells turns, or the ends of trajectories, apart by the masks: %s", value, c.Advantage.Name, instead),
		check.That(!c.creditsTools() || !c.Advantage.NormalizeProcess, key,
			"%s: advantage.normalize_process tells process rewards from the outcome by the masks: turn it off, or %s", value, instead),
	)
}

// Validate reports every fault.
func (c Critic) Validate() error {
	return check.All(
		check.Fields(c),
		check.That(c.Folder == "" || c.Network == CriticOwn, "folder", "%q: only a network of its own starts from a folder: set network to own", c.Folder),
		check.That(c.WarmupSteps <= 0 || c.Network != CriticNone, "warmup_steps",
			"%d: there is no critic to warm up: set network to head or own", c.WarmupSteps),
	)
}

// Validate reports every fault.
func (s Selection) Validate() error { return check.Fields(s) }

// Validate reports every fault.
func (a Advantage) Validate() error {
	return check.All(
		a.estimatorFaults(),
		check.Fields(a),
	)
}

// estimatorFaults are the faults of the name and of the estimator's own keys.
func (a Advantage) estimatorFaults() error {
	if err := check.OneOf("name", a.Name, advantage.Names(a.Foreign...)...); err != nil {
		return err
	}
	return advantage.Validate(a.Name, a.Own, a.Foreign...)
}
