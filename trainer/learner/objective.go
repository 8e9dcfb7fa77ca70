package learner

import (
	"fmt"

	"github.com/weir-rl/weir/trainer/loss"
)

// objective is the loss with what it reads of the start of a step.
type objective struct {
	*loss.Objective
	cfg loss.Config
	// correction is how the loss weighs or rejects what an older policy sampled.
	correction loss.Correction
	// proximal: ratios are taken against the policy at the start of the step, whose log-probabilities are computed.
	proximal bool
}

func newObjective(cfg Config) (*objective, error) {
	o := &objective{cfg: cfg.Loss}
	var err error
	if o.Objective, err = loss.NewObjective(cfg.Loss); err != nil {
		return nil, fmt.Errorf("loss: %w", err)
	}
	resolved, err := cfg.Loss.Resolved()
	if err != nil {
		return nil, fmt.Errorf("loss: %w", err)
	}
	o.correction = resolved.Correction
	against := resolved.Old != loss.OldBehaviour || o.Corrects() && resolved.Correction.Of != loss.OfCurrent
	o.proximal = against && cfg.Proximal == ProximalRecompute
	return o, nil
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
