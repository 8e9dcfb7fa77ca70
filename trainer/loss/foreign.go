package loss

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-rl/weir/internal/check"
)

// Foreign is a policy loss from outside this package: a configuration that has it (Config.Foreign) selects it by its name in
// trainer.loss.name, like a stock loss.
type Foreign struct {
	// Name in configuration: not empty, and not the name of a stock loss.
	Name string
	// Keys returns a new pointer to a struct of the loss's own keys with their defaults. The struct's fields have the tag koanf, with the
	// key's name in the section trainer.loss.options; the tags min, max and oneof bound their values, and a method Validate() error is
	// called too. A struct that embeds [Shared] under the tag `koanf:",squash"` has the aggregation and the correction, which the terms
	// beside the policy loss follow. Nil: the loss has no key.
	Keys func() any
	// Make returns the loss under the run's keys: the struct of Keys with the configured values, which have been validated; nil where Keys
	// is nil. It is called at each start of a trainer.
	Make func(keys any) (Policy, error)
	// Facts are the facts that a trainer needs about the loss.
	Facts Facts
}

// Token is an action token as a loss of single tokens sees it.
type Token struct {
	// Logprob is the current policy's log-probability; Old the log-probability of the policy that the ratio is taken against, which the key
	// old chooses. Old is 0 where Facts.NoOld is set.
	Logprob, Old float64
	// Advantage is 0 where Facts.NoAdvantages is set.
	Advantage float64
	// Reference is the reference policy's log-probability; 0 unless Facts.Reference is set.
	Reference float64
}

// PerToken is a foreign loss of single action tokens: of returns the loss of a token and its derivative by the token's Logprob. Masks,
// weights, the correction, the aggregation and the terms beside the policy loss work as in the stock losses. Metrics are approx_kl, the
// mean of log old - log pi, where there is an old policy. The loss has the keys old, aggregation and correction, like the stock losses.
func PerToken(name string, facts Facts, of func(t Token) (loss, slope float64)) Foreign {
	if of == nil {
		return PerTokenWith[struct{}](name, struct{}{}, facts, nil)
	}
	return PerTokenWith(name, struct{}{}, facts, func(_ struct{}, t Token) (loss, slope float64) { return of(t) })
}

// PerTokenWith is PerToken of a loss with keys of its own beside: the fields of K that have the tag koanf. defaults are their values
// before anything sets them.
func PerTokenWith[K any](name string, defaults K, facts Facts, of func(keys K, t Token) (loss, slope float64)) Foreign {
	return Foreign{
		Name: name, Facts: facts,
		Keys: func() any {
			return &perTokenKeys[K]{Own: defaults, Shared: check.Default[Shared](), Ratio: check.Default[Ratio]()}
		},
		Make: func(keys any) (Policy, error) {
			k, ok := keys.(*perTokenKeys[K])
			switch {
			case of == nil:
				return nil, errors.New("the loss of a token is nil")
			case !ok:
				return nil, fmt.Errorf("the keys are a %T: want a %T", keys, k)
			}
			own := k.Own
			algorithm := perToken{of: func(t Token) (loss, slope float64) { return of(own, t) }, facts: facts}
			return newPolicy(name, k, algorithm, facts), nil
		},
	}
}

// perTokenKeys are the keys of PerTokenWith.
type perTokenKeys[K any] struct {
	Own    K `koanf:",squash"`
	Shared `koanf:",squash"`
	Ratio  `koanf:",squash"`
}

// perToken is the algorithm of PerToken.
type perToken struct {
	of    func(t Token) (loss, slope float64)
	facts Facts
}

func (p perToken) metricNames() []string {
	if !p.facts.NoOld {
		return []string{"approx_kl"}
	}
	return nil
}

func (p perToken) rowLoss(r *row, tally *tally) float64 {
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
		w := r.tokenWeight(t)
		loss, slope := p.of(at)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		ratio := 1.0
		if !p.facts.NoOld {
			ratio = math.Exp(at.Logprob - at.Old)
			tally.addValue(0, at.Old-at.Logprob)
		}
		r.detail.setToken(t, w*loss, ratio, w, clip{})
	}
	return r.scale * total
}

// stockBuilder returns the loss's builder in the form of a stock loss.
func (f Foreign) stockBuilder() builder {
	return builder{
		keys: func() any {
			if f.Keys == nil {
				return nil
			}
			return f.Keys()
		},
		make: func(_ string, keys any) (Policy, error) {
			p, err := f.Make(keys)
			if err == nil && p == nil {
				err = errors.New("Foreign.Make returned neither a loss nor an error")
			}
			return p, err
		},
		facts: f.Facts,
	}
}

// checkForeign returns an error for a name that is empty or taken, and for a missing Make.
func (f Foreign) checkForeign(taken map[string]builder) error {
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
