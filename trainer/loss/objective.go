package loss

import (
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// Config is everything that a policy is trained on: the policy loss, and the terms beside it.
type Config struct {
	// Name of the policy loss; see Names. Defaults to ppo.
	Name string `koanf:"name"`
	// Foreign are losses from outside this package that Name may choose. Defaults to none.
	Foreign []Foreign `koanf:"-"`
	// Options of the policy loss.
	Options Options `koanf:"options"`
	// KL to the reference policy.
	KL KL `koanf:"kl"`
	// EntropyCoef multiplies the entropy bonus. Defaults to 0, none.
	EntropyCoef float64 `koanf:"entropy_coef"`
	// Value is the critic's loss.
	Value Value `koanf:"value"`
	// Duration weighs actions by the time that they took.
	Duration Duration `koanf:"duration"`
}

// DefaultConfig is PPO alone.
func DefaultConfig() Config {
	return Config{Name: "ppo", KL: DefaultKL(), Value: DefaultValue(), Duration: DefaultDuration()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		c.policyFaults(),
		check.Section("kl", c.KL.Validate()),
		check.Section("value", c.Value.Validate()),
		check.Section("duration", c.Duration.Validate()),
		check.Finite("entropy_coef", c.EntropyCoef),
	)
}

// policyFaults are those of the name and the options.
func (c Config) policyFaults() error {
	b, err := find("name", c.Name, c.Foreign)
	if err != nil {
		return err
	}
	o, err := b.resolve(c.Options)
	if err == nil {
		err = b.validate(o)
	}
	return check.Section("options", err)
}

// Resolved are the options with the named loss's defaults in place of zero values.
func (c Config) Resolved() (Options, error) { return Resolve(c.Name, c.Options, c.Foreign...) }

// Facts are the named loss's.
func (c Config) Facts() Facts { return FactsOf(c.Name, c.Foreign...) }

// Objective is the whole loss of a micro-batch in one place:
//
//	policy loss + KL.Coef KL - EntropyCoef entropy + value loss
//
// The KL, entropy and policy terms share one aggregation. One goroutine at a time calls it.
type Objective struct {
	config Config
	// options are resolved.
	options Options
	facts   Facts
	policy  Policy
	klCoef  float64
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
	o, err := c.Resolved()
	if err != nil {
		return nil, err
	}
	return &Objective{config: c, options: o, facts: c.Facts(), policy: policy, klCoef: c.KL.Coef}, nil
}

// NeedsReference says whether Batch.Reference is read, by the loss or by PenalizeRewards.
func (o *Objective) NeedsReference() bool {
	return o.config.KL.Coef > 0 || o.facts.Reference
}

// Span is the policy loss's.
func (o *Objective) Span() Span { return o.policy.Span() }

// Corrects says whether the policy loss weighs or rejects by how far a policy is from the one that sampled.
func (o *Objective) Corrects() bool {
	return !o.facts.NoCorrection && o.options.Correction.enabled()
}

// Plan settles what the policy loss spans of a whole mini-batch, for Batch.Plan of its micro-batches.
func (o *Objective) Plan(b *Batch) (*Plan, error) { return o.policy.Plan(b) }

// KLCoef is the KL coefficient in force, which adapts when KL.Target is set: a checkpoint keeps it.
func (o *Objective) KLCoef() float64 { return o.klCoef }

// SetKLCoef restores it.
func (o *Objective) SetKLCoef(coef float64) { o.klCoef = coef }

// Loss fills out with the objective and its gradients. The value term is added when b.Values is set; a critic
// that is a network of its own is trained with ValueLoss instead.
func (o *Objective) Loss(b *Batch, out *Result) error {
	if err := o.policy.Loss(b, out); err != nil {
		return err
	}
	out.GradEntropies, out.GradValues = out.GradEntropies[:0], out.GradValues[:0]
	if o.klCoef > 0 && o.config.KL.In == KLInLoss {
		if err := o.config.KL.AddLoss(o.klCoef, o.options.Aggregation, b, out); err != nil {
			return err
		}
	}
	if o.config.EntropyCoef != 0 {
		if err := AddEntropy(o.config.EntropyCoef, o.options.Aggregation, b, out); err != nil {
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
// coefficient afterwards. It is called once a step, over the whole batch, before the advantages.
func (o *Objective) PenalizeRewards(offsets []int, mask []uint8, rewards, logprobs, reference []float64) (kl float64, err error) {
	if o.klCoef == 0 || o.config.KL.In != KLInReward {
		return 0, nil
	}
	kl, err = o.config.KL.Penalize(o.klCoef, offsets, mask, rewards, logprobs, reference, rewards)
	if err == nil {
		o.klCoef = o.config.KL.Adapt(o.klCoef, kl, len(offsets)-1)
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
	d := a.over(b.Counts, b.Offsets, b.Mask)
	sum, count := 0.0, 0
	for i := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		n := stats.Count(b.Mask[lo:hi])
		if n == 0 {
			out.Loss += d.empty(out.GradEntropies[lo:hi])
			continue
		}
		scale, row := -coef*d.scale(n), 0.0
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
