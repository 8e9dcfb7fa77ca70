package learner

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/loss"
	"github.com/weir-rl/weir/trainer/selection"
	"github.com/weir-rl/weir/trainer/stats"
)

// Validate reports every fault.
func (c Config) Validate() error {
	var f faults
	f.positive("steps", c.Steps)
	f.positive("batch_groups", int64(c.BatchGroups))
	f.positive("epochs", int64(c.Epochs))
	f.positive("minibatches", int64(c.Minibatches))
	f.positive("micro_tokens", int64(c.MicroTokens))
	switch c.Proximal {
	case ProximalRecompute, loss.ApproximateLogLinear, loss.ApproximateLinear, loss.ApproximateRollout:
	default:
		f.check("proximal", false, fmt.Sprintf("%q: must be recompute, loglinear, linear or rollout", c.Proximal))
	}
	f.section("optimizer", c.Optimizer.Validate())
	f.section("critic", c.Critic.Validate())
	f.check("critic.network", c.Critic.Network != CriticNone || !c.needsValues(),
		fmt.Sprintf("none: advantage %s needs a critic: head, a value head on the policy, or own, a network of its own", c.Advantage.Name))
	f.check("selection.resample.by", c.Selection.Resample.By != selection.ResampleBest || c.Critic.Network == CriticNone,
		"best: a critic that learns from the best samples alone expects too much: set critic.network to none, or by to on_correct")
	f.section("selection", c.Selection.Validate())
	f.section("advantage", c.Advantage.Validate())
	f.check("mask_tools", c.MaskTools || !c.Advantage.Facts().ByTurns,
		fmt.Sprintf("false: advantage %s tells turns apart by the masks: leave it on", c.Advantage.Name))
	f.check("advantage.normalize_process", !c.Advantage.NormalizeProcess || !c.Baseline(),
		fmt.Sprintf("true: it would scale the samples' rewards and not the baseline's of %s: turn it off", c.Advantage.Name))
	f.section("loss", c.Loss.Validate())
	f.section("cold_start", c.ColdStart.Validate())
	return errors.Join(f...)
}

// Validate reports every fault.
func (c Critic) Validate() error {
	var f faults
	switch c.Network {
	case CriticNone, CriticHead, CriticOwn:
	default:
		f.check("network", false, fmt.Sprintf("%q: must be none, head or own", c.Network))
	}
	f.check("folder", c.Folder == "" || c.Network == CriticOwn, fmt.Sprintf("%q: only a network of its own starts from a folder: set network to own", c.Folder))
	f.notNegative("warmup_steps", c.WarmupSteps)
	f.check("warmup_steps", c.WarmupSteps <= 0 || c.Network != CriticNone, fmt.Sprintf("%d: there is no critic to warm up: set network to head or own", c.WarmupSteps))
	f.section("optimizer", c.Optimizer.Validate())
	return errors.Join(f...)
}

// Validate reports every fault.
func (s Selection) Validate() error {
	var f faults
	f.section("", s.Groups.Validate())
	f.section("overlong", s.Overlong.Validate())
	f.section("resample", s.Resample.Validate())
	f.section("accumulate", s.Accumulate.Validate())
	return errors.Join(f...)
}

// Validate reports every fault.
func (a Advantage) Validate() error {
	var f faults
	f.section("", stats.Choose("name", a.Name, advantage.Names(a.Foreign...)...))
	f.section("", a.Options.Validate())
	f.section("", stats.Choose("bootstrap", a.Bootstrap, BootstrapNone, BootstrapTimeout, BootstrapLimits))
	f.section("normalize", a.Normalize.Validate())
	return errors.Join(f...)
}

// Validate reports every fault.
func (o Optimizer) Validate() error {
	var f faults
	f.rate("learning_rate", o.LearningRate)
	switch o.Schedule {
	case ScheduleConstant, ScheduleLinear, ScheduleCosine:
	default:
		f.check("schedule", false, fmt.Sprintf("%q: must be constant, linear or cosine", o.Schedule))
	}
	f.notNegative("warmup_steps", o.WarmupSteps)
	f.check("final_ratio", o.FinalRatio >= 0 && o.FinalRatio <= 1, fmt.Sprintf("%g: must be between 0 and 1", o.FinalRatio))
	f.check("beta1", o.Beta1 >= 0 && o.Beta1 < 1, fmt.Sprintf("%g: must be at least 0 and below 1", o.Beta1))
	f.check("beta2", o.Beta2 >= 0 && o.Beta2 < 1, fmt.Sprintf("%g: must be at least 0 and below 1", o.Beta2))
	f.rate("epsilon", o.Epsilon)
	f.check("weight_decay", o.WeightDecay >= 0 && finite(o.WeightDecay), fmt.Sprintf("%g: must not be negative", o.WeightDecay))
	f.check("clip_norm", o.ClipNorm >= 0 && finite(o.ClipNorm), fmt.Sprintf("%g: must not be negative", o.ClipNorm))
	return errors.Join(f...)
}

// faults gathers what is wrong, each naming its key.
type faults []error

func (f *faults) check(key string, ok bool, problem string) {
	if !ok {
		*f = append(*f, fmt.Errorf("%s: %s", key, problem))
	}
}

func (f *faults) positive(key string, v int64) {
	f.check(key, v > 0, fmt.Sprintf("%d: must be positive", v))
}

func (f *faults) notNegative(key string, v int64) {
	f.check(key, v >= 0, fmt.Sprintf("%d: must not be negative", v))
}

func (f *faults) rate(key string, v float64) {
	f.check(key, v > 0 && finite(v), fmt.Sprintf("%g: must be positive", v))
}

// section puts a section's name before each of its faults, however they are joined; "" is no name.
func (f *faults) section(name string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.section(name, e)
		}
		return
	}
	if name != "" {
		err = fmt.Errorf("%s.%w", name, err)
	}
	*f = append(*f, err)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
