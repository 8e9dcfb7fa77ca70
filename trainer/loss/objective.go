package loss

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// Config is the whole loss of a policy: the policy loss, and the terms beside it.
type Config struct {
	// Name of the policy loss; see Names.
	Name string `koanf:"name" default:"decoupled_ppo"`
	// Foreign are losses from outside this package that Name may choose.
	Foreign []Foreign `koanf:"-"`
	// Options are the policy loss's own keys: a pointer to its struct, as [Keys] returns it. Nil is its defaults.
	Options any `koanf:"options"`
	// KL to the reference policy.
	KL KL `koanf:"kl"`
	// EntropyCoef multiplies the entropy bonus. 0 is none.
	EntropyCoef float64 `koanf:"entropy_coef"`
	// Value is the critic's loss.
	Value Value `koanf:"value"`
	// Duration weighs actions by the time that they took.
	Duration Duration `koanf:"duration"`
}

// DefaultConfig is the policy loss alone.
func DefaultConfig() Config { return check.Default[Config]() }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		c.policyFaults(),
		check.Fields(c),
	)
}

// policyFaults are the faults of the name and the options.
func (c Config) policyFaults() error {
	b, err := findBuilder("name", c.Name, c.Foreign)
	if err != nil {
		return err
	}
	keys, err := b.fillKeys(c.Name, c.Options)
	if err == nil {
		err = check.Own(keys)
	}
	return check.Section("options", err)
}

// Keys are the named loss's keys in force.
func (c Config) Keys() any {
	if c.Options != nil {
		return c.Options
	}
	return Keys(c.Name, c.Foreign...)
}

// Shared are the shared keys in force. A loss without shared keys, as a loss from outside may be, has no correction and averages over
// tokens.
func (c Config) Shared() Shared {
	if s := SharedOf(c.Keys()); s != nil {
		return *s
	}
	return check.Default[Shared]()
}

// AgainstStart reports whether the loss reads the log-probabilities of the policy at the start of the step.
func (c Config) AgainstStart() bool {
	of := c.Shared().Correction
	return !c.Facts().NoOld && oldPolicyOf(c.Keys()) == OldProximal || of.isEnabled() && of.Of == OfProximal
}

// Corrects reports whether the loss allows for tokens that another policy sampled: its ratios are taken against the policy that sampled, a
// correction is on, or it reads no advantages.
func (c Config) Corrects() bool {
	facts := c.Facts()
	if facts.NoAdvantages || c.Shared().Correction.isEnabled() {
		return true
	}
	_, score := c.Keys().(*Reinforce) // its ratio is in its diagnostics, and not in its weights
	return !score && !facts.NoOld && oldPolicyOf(c.Keys()) == OldBehaviour
}

// Facts are the named loss's facts.
func (c Config) Facts() Facts { return FactsOf(c.Name, c.Foreign...) }

// Objective is the whole loss of a micro-batch:
//
//	policy loss + KL.Coef KL - EntropyCoef entropy + value loss
//
// The KL, entropy and policy terms share an aggregation. It must not be called by several goroutines at once.
type Objective struct {
	config Config
	shared Shared
	facts  Facts
	policy Policy
	klCoef float64
}

// NewObjective builds the policy loss and its terms.
func NewObjective(c Config) (*Objective, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	policy, err := New(c.Name, c.Options, c.Foreign...)
	if err != nil {
		return nil, err
	}
	return &Objective{config: c, shared: c.Shared(), facts: c.Facts(), policy: policy, klCoef: c.KL.Coef}, nil
}

// NeedsReference reports whether Batch.Reference is read, by the loss or by PenalizeRewards.
func (o *Objective) NeedsReference() bool {
	return o.config.KL.Coef > 0 || o.facts.Reference
}

// Span is the policy loss's span.
func (o *Objective) Span() Span { return o.policy.Span() }

// Corrects reports whether the policy loss weighs or rejects tokens by how far a policy is from the policy that sampled.
func (o *Objective) Corrects() bool {
	return o.shared.Correction.isEnabled()
}

// Plan returns the policy loss's plan of a whole mini-batch, for Batch.Plan of its micro-batches.
func (o *Objective) Plan(b *Batch) (*Plan, error) { return o.policy.Plan(b) }

// KLCoef is the KL coefficient in force, which adapts when KL.Target is set: a checkpoint keeps it.
func (o *Objective) KLCoef() float64 { return o.klCoef }

// SetKLCoef restores the coefficient.
func (o *Objective) SetKLCoef(coef float64) { o.klCoef = coef }

// Loss fills out with the objective and its gradients. The value term is added when b.Values is set; a critic
// that is a network of its own is trained with ValueLoss instead.
func (o *Objective) Loss(b *Batch, out *Result) error {
	if err := o.policy.Loss(b, out); err != nil {
		return err
	}
	out.GradEntropies, out.GradValues = out.GradEntropies[:0], out.GradValues[:0]
	if o.klCoef > 0 && o.config.KL.In == KLInLoss {
		if err := o.config.KL.AddLoss(o.klCoef, o.shared.Aggregation, b, out); err != nil {
			return err
		}
	}
	if o.config.EntropyCoef != 0 {
		if err := AddEntropy(o.config.EntropyCoef, o.shared.Aggregation, b, out); err != nil {
			return err
		}
	}
	if b.Values != nil {
		return o.config.Value.Add(b, out)
	}
	return nil
}

// ValueLoss fills out with the critic's loss alone.
func (o *Objective) ValueLoss(b *Batch, out *Result) error {
	out.Loss, out.Grad, out.GradEntropies = 0, out.Grad[:0], out.GradEntropies[:0]
	clear(out.Metrics)
	return o.config.Value.Add(b, out)
}

// PenalizeRewards subtracts the KL term from rewards in place, when KL.In is reward, and adapts the
// coefficient afterwards, by a fifth at most. It is called once a step, over the whole batch, before the advantages.
// trajectory is the trajectory of each row, as in [KL.Penalize].
func (o *Objective) PenalizeRewards(
	offsets []int, mask []uint8, trajectory []int, rewards, logprobs, reference []float64,
) (kl float64, err error) {
	if o.klCoef == 0 || o.config.KL.In != KLInReward {
		return 0, nil
	}
	kl, err = o.config.KL.Penalize(o.klCoef, offsets, mask, trajectory, rewards, logprobs, reference, rewards)
	if err == nil {
		n := min(float64(countTrajectories(offsets, trajectory)), o.config.KL.Horizon)
		o.klCoef = o.config.KL.Adapt(o.klCoef, kl, n)
	}
	return kl, err
}

// AddEntropy subtracts coef * aggregate(entropy) from out.Loss and writes out.GradEntropies.
func AddEntropy(coef float64, a Aggregation, b *Batch, out *Result) error {
	if err := stats.CheckRows(b.Offsets, b.Mask); err != nil {
		return err
	}
	if err := stats.CheckLength("Entropies", b.Entropies, len(b.Mask)); err != nil {
		return err
	}
	out.GradEntropies = stats.Resize(out.GradEntropies, len(b.Mask))
	clear(out.GradEntropies)
	d := a.withCounts(b.Counts, b.Offsets, b.Mask)
	sum, count := 0.0, 0
	for i := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		n := stats.Count(b.Mask[lo:hi])
		if n == 0 {
			out.Loss += d.emptyRowLoss(out.GradEntropies[lo:hi])
			continue
		}
		scale, row := -coef*d.rowScale(n), 0.0
		for t := lo; t < hi; t++ {
			if b.Mask[t] != 0 {
				row += b.Entropies[t]
				out.GradEntropies[t] = scale
			}
		}
		if !stats.Finite(row) {
			return firstFault(i, b, []field{{"Entropies", b.Entropies}})
		}
		out.Loss += scale * row
		sum, count = sum+row, count+n
	}
	if out.Metrics == nil {
		out.Metrics = Metrics{}
	}
	out.Metrics["entropy"] = Mean{sum, float64(count)}
	return nil
}
