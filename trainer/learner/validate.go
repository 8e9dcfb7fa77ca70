package learner

import (
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
)

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.Positive("steps", c.Steps),
		check.Positive("batch_groups", c.BatchGroups),
		check.Positive("epochs", c.Epochs),
		check.Positive("minibatches", c.Minibatches),
		check.Positive("micro_tokens", c.MicroTokens),
		check.OneOf("proximal", c.Proximal, ProximalRecompute, loss.ApproximateLogLinear, loss.ApproximateLinear, loss.ApproximateRollout),
		check.Section("optimizer", c.Optimizer.Validate()),
		check.Section("critic", c.Critic.Validate()),
		check.That(c.Critic.Network != CriticNone || !c.needsValues(), "critic.network",
			"none: advantage %s needs a critic: head, a value head on the policy, or own, a network of its own", c.Advantage.Name),
		check.That(c.Selection.Resample.By != selection.ResampleBest || c.Critic.Network == CriticNone, "selection.resample.by",
			"best: a critic that learns from the best samples alone expects too much: set critic.network to none, or by to on_correct"),
		check.Section("selection", c.Selection.Validate()),
		check.Section("advantage", c.Advantage.Validate()),
		check.That(c.MaskTools || !c.Advantage.Facts().ByTurns, "mask_tools",
			"false: advantage %s tells turns apart by the masks: leave it on", c.Advantage.Name),
		check.That(c.MaskTools || c.knowsStart(), "mask_tools",
			"false: what tools returned has the log-probability of the policy at the start of the step, which nothing computes with loss %s, proximal %s "+
				"and one update a step: set minibatches or epochs above 1, proximal to %s and a loss with ratios against that policy, or leave it on",
			c.Loss.Name, c.Proximal, ProximalRecompute),
		check.That(c.Critic.Network == CriticNone || c.Critic.WarmupSteps < c.Steps, "critic.warmup_steps",
			"%d: the run has %d steps, and each would train the critic alone: set it below steps", c.Critic.WarmupSteps, c.Steps),
		check.That(!c.Advantage.NormalizeProcess || !c.Baseline(), "advantage.normalize_process",
			"true: it would scale the samples' rewards and not the baseline's of %s: turn it off", c.Advantage.Name),
		check.Section("loss", c.Loss.Validate()),
		check.Section("cold_start", c.ColdStart.Validate()),
	)
}

// Validate reports every fault.
func (c Critic) Validate() error {
	return check.All(
		check.OneOf("network", c.Network, CriticNone, CriticHead, CriticOwn),
		check.That(c.Folder == "" || c.Network == CriticOwn, "folder", "%q: only a network of its own starts from a folder: set network to own", c.Folder),
		check.NotNegative("warmup_steps", c.WarmupSteps),
		check.That(c.WarmupSteps <= 0 || c.Network != CriticNone, "warmup_steps",
			"%d: there is no critic to warm up: set network to head or own", c.WarmupSteps),
		check.Section("optimizer", c.Optimizer.Validate()),
	)
}

// Validate reports every fault.
func (s Selection) Validate() error {
	return check.All(
		s.Groups.Validate(),
		check.Section("overlong", s.Overlong.Validate()),
		check.Section("resample", s.Resample.Validate()),
		check.Section("accumulate", s.Accumulate.Validate()),
	)
}

// Validate reports every fault.
func (a Advantage) Validate() error {
	return check.All(
		check.OneOf("name", a.Name, advantage.Names(a.Foreign...)...),
		a.Options.Validate(),
		check.That(a.ProcessWeight > 0 || a.OutcomeWeight > 0 || !slices.Contains(a.Facts().Reads, "outcome_weight"), "outcome_weight",
			"0: advantage %s is 0 without an outcome and without process rewards: set it, or process_weight, above 0", a.Name),
		check.OneOf("bootstrap", a.Bootstrap, BootstrapNone, BootstrapTimeout, BootstrapLimits),
		check.Section("normalize", a.Normalize.Validate()),
	)
}

// Validate reports every fault.
func (o Optimizer) Validate() error {
	return check.All(
		check.Positive("learning_rate", o.LearningRate),
		check.OneOf("schedule", o.Schedule, ScheduleConstant, ScheduleLinear, ScheduleCosine),
		check.NotNegative("warmup_steps", o.WarmupSteps),
		check.Between("final_ratio", o.FinalRatio, 0, 1),
		check.That(o.Beta1 >= 0 && o.Beta1 < 1, "beta1", "%v: must be at least 0 and below 1", o.Beta1),
		check.That(o.Beta2 >= 0 && o.Beta2 < 1, "beta2", "%v: must be at least 0 and below 1", o.Beta2),
		check.Positive("epsilon", o.Epsilon),
		check.NotNegative("weight_decay", o.WeightDecay),
		check.NotNegative("clip_norm", o.ClipNorm),
	)
}
