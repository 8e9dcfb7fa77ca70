package loss

import (
	"errors"
	"fmt"
	"math"
)

// Foreign is a policy loss from outside this package: a configuration that has it (Config.Foreign) takes it by its name in
// trainer.loss.name, as it takes a stock one.
type Foreign struct {
	// Name in configuration: not empty, and not that of a stock loss.
	Name string
	// Make returns the loss under resolved options, which have been validated. It is called at each start of a trainer.
	Make func(o Options) (Policy, error)
	// Defaults fill the zero values of the configured options. Their own zero values mean ppo's, without its dual clip.
	Defaults Options
	// Facts are what a trainer must know of the loss.
	Facts Facts
}

// Token is one action token as a loss of single tokens sees it.
type Token struct {
	// Logprob is the current policy's log-probability; Old that of the policy that the ratio is taken against, which
	// Options.Old chooses. Old is 0 where Facts.NoOld is set.
	Logprob, Old float64
	// Advantage is 0 where Facts.NoAdvantages is set.
	Advantage float64
	// Reference is the reference policy's log-probability; 0 unless Facts.Reference is set.
	Reference float64
}

// PerToken is a foreign loss of single action tokens: of returns the loss of a token and its derivative by the token's
// Logprob. Masks, weights, the correction and the aggregation are those of the stock losses, as are the terms beside the
// policy loss. Metrics are approx_kl, the mean of log old - log pi, where there is an old policy.
func PerToken(name string, facts Facts, of func(t Token) (loss, slope float64)) Foreign {
	return Foreign{
		Name: name, Facts: facts,
		Make: func(o Options) (Policy, error) {
			if of == nil {
				return nil, errors.New("the loss of a token is nil")
			}
			return &policy{name: name, options: o, algorithm: perToken{of: of, facts: facts}, facts: facts}, nil
		},
	}
}

// perToken is the algorithm of PerToken.
type perToken struct {
	of    func(t Token) (loss, slope float64)
	facts Facts
}

func (p perToken) metrics() []string {
	if !p.facts.NoOld {
		return []string{"approx_kl"}
	}
	return nil
}

func (p perToken) row(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		at := Token{Logprob: r.logprobs[t]}
		if !p.facts.NoOld {
			at.Old = r.old[t]
		}
		if !p.facts.NoAdvantages {
			at.Advantage = r.advantages[t]
		}
		if p.facts.Reference {
			at.Reference = r.reference[t]
		}
		w := r.weight(t)
		loss, slope := p.of(at)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		ratio := 1.0
		if !p.facts.NoOld {
			ratio = math.Exp(at.Logprob - at.Old)
			tally.add(0, at.Old-at.Logprob)
		}
		r.detail.set(t, w*loss, ratio, w, clip{})
	}
	return r.scale * total
}

// make is the builder's constructor.
func (f Foreign) make(o Options) (Policy, error) {
	p, err := f.Make(o)
	if err == nil && p == nil {
		err = errors.New("Foreign.Make returned neither a loss nor an error")
	}
	return p, err
}

// validate reports what a name cannot be, among those that are taken.
func (f Foreign) validate(taken map[string]builder) error {
	switch _, known := taken[f.Name]; {
	case f.Name == "":
		return errors.New("a foreign loss has no name: set Foreign.Name")
	case known:
		return fmt.Errorf("loss %s: there are two of this name: give the foreign one another", f.Name)
	case f.Make == nil:
		return fmt.Errorf("loss %s: Foreign.Make is nil", f.Name)
	}
	return nil
}
