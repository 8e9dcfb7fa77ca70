package learner

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/trainer/loss"
)

// objective is the loss, with the policies that it reads at the start of a step.
type objective struct {
	*loss.Objective
	cfg loss.Config
	// correction is how the loss weighs or rejects tokens that an older policy sampled.
	correction loss.Correction
	// against: ratios are taken against the policy at the start of the step; proximal: its log-probabilities are computed.
	against, proximal bool
}

func newObjective(cfg Config) (*objective, error) {
	o := &objective{cfg: cfg.Loss}
	var err error
	if o.Objective, err = loss.NewObjective(cfg.Loss); err != nil {
		return nil, fmt.Errorf("loss: %w", err)
	}
	o.correction = cfg.Loss.Shared().Correction
	o.against = cfg.Loss.AgainstStart()
	o.proximal = o.against && cfg.Proximal == ProximalRecompute
	return o, nil
}

// readsStart reports whether anything under c, the configuration of o, reads the policy's log-probabilities from before the step's first
// update. If not, the pass of the only minibatch gives the same.
func (o *objective) readsStart(c Config) bool {
	return o.proximal && c.Minibatches*c.Epochs > 1 || c.Critic.Network == CriticHead || o.penalizesRewards() ||
		slices.Contains(c.Advantage.Facts().Requires, "Logprobs")
}

// computesStart is readsStart of the configuration; true for a loss that is not valid.
func (c Config) computesStart() bool {
	o, err := newObjective(c)
	return err != nil || o.readsStart(c)
}

// penalizesRewards reports whether the KL term goes into the rewards.
func (o *objective) penalizesRewards() bool {
	return o.cfg.KL.Coef > 0 && o.cfg.KL.In == loss.KLInReward
}

// restoreKLCoef restores the adapted coefficient if the configuration under which it adapted is still in force; a coefficient that does not
// adapt is the configured coefficient.
func (o *objective) restoreKLCoef(inForce, configured *float64) {
	kl := o.cfg.KL
	if kl.Target <= 0 || kl.Coef == 0 || inForce == nil || *inForce == 0 {
		return
	}
	if configured == nil || *configured == kl.Coef {
		o.SetKLCoef(*inForce)
	}
}
