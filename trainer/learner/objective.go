package learner

import (
	"fmt"
	"slices"

	"github.com/weir-rl/weir/trainer/loss"
)

// objective is the loss with what it reads of the start of a step.
type objective struct {
	*loss.Objective
	cfg loss.Config
	// correction is how the loss weighs or rejects what an older policy sampled.
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

// readsStart says whether anything under c, the configuration of o, reads what the policy says of a batch before the step's first
// update. Where it does not, the one and only minibatch gives the same.
func (o *objective) readsStart(c Config) bool {
	return o.proximal && c.Minibatches*c.Epochs > 1 || c.Critic.Network == CriticHead || o.penalizes() ||
		slices.Contains(c.Advantage.Facts().Requires, "Logprobs")
}

// knowsStart is readsStart of the configuration; of one whose loss is not valid it is true.
func (c Config) knowsStart() bool {
	o, err := newObjective(c)
	return err != nil || o.readsStart(c)
}

// penalizes says whether the KL term goes into the rewards.
func (o *objective) penalizes() bool { return o.cfg.KL.Coef > 0 && o.cfg.KL.In == loss.KLInReward }

// restoreKLCoef goes on with the coefficient as it has adapted, where the configuration that it adapted under is still in
// force; a coefficient that does not adapt is the configuration's.
func (o *objective) restoreKLCoef(inForce, configured *float64) {
	kl := o.cfg.KL
	if kl.Target <= 0 || kl.Coef == 0 || inForce == nil || *inForce == 0 {
		return
	}
	if configured == nil || *configured == kl.Coef {
		o.SetKLCoef(*inForce)
	}
}
