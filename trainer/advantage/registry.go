package advantage

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// builder makes an estimator from its keys.
type builder struct {
	// keys are a pointer to a struct of the estimator's own keys, with their defaults.
	keys func() any
	make func(name string, keys any, a Arithmetic) (Estimator, error)
	// facts are those under the keys' values.
	facts func(keys any) Facts
}

// define makes the builder of an estimator with keys of type K.
func define[K any](facts func(k *K) Facts, build func(name string, k *K, a Arithmetic) Estimator) builder {
	return builder{
		keys: func() any { k := check.Default[K](); return &k },
		make: func(name string, keys any, a Arithmetic) (Estimator, error) {
			return build(name, keys.(*K), a), nil
		},
		facts: func(keys any) Facts { return facts(keys.(*K)) },
	}
}

// builders are the stock estimators by their names in configuration.
func builders() map[string]builder {
	return map[string]builder{
		// From the rewards of a group.
		"grpo": define(func(k *GRPO) Facts { return ofGroup(k.learnsFrom()) }, func(name string, k *GRPO, a Arithmetic) Estimator {
			return newOutcome(name, a, k.Grouped, grpo(k.Scaling))
		}),
		"dr_grpo": grouped(centred),
		"rloo":    grouped(rloo),
		"opo":     grouped(opo),
		"gpg": define(func(k *GPG) Facts { return ofGroup(k.learnsFrom()) }, func(name string, k *GPG, a Arithmetic) Estimator {
			return newOutcome(name, a, k.Grouped, gpg(k.GPGNorm))
		}),
		"max_rl": define(func(*MaxRL) Facts { return ofGroup(2) }, func(name string, k *MaxRL, a Arithmetic) Estimator {
			return newOutcome(name, a, Grouped{Comparing: k.Comparing}, maxRL)
		}),
		"rae": define(func(*RAE) Facts { return ofGroup(1) }, func(name string, k *RAE, a Arithmetic) Estimator {
			return newOutcome(name, a, Grouped{Comparing: k.Comparing}, rae(k.Decay))
		}),
		"grpo_passk": define(func(*PassK) Facts {
			return Facts{Requires: []string{"Group"}, LeastGroup: 2, LearnsFrom: 2}
		}, func(name string, k *PassK, a Arithmetic) Estimator {
			return newOutcome(name, a, Grouped{Comparing: k.Comparing}, passK(k.Scaling))
		}),
		"hierarchical_grpo": define(func(k *HierarchicalGRPO) Facts { return ofGroup(k.learnsFrom()) },
			func(name string, k *HierarchicalGRPO, a Arithmetic) Estimator {
				e := newOutcome(name, a, k.Grouped, centred)
				e.regroup = byAgent(k.EpisodeAgents)
				return e
			}),
		"reinforce_pp_baseline": define(func(k *ReinforcePPBaseline) Facts { return ofGroup(k.learnsFrom()) },
			func(name string, k *ReinforcePPBaseline, a Arithmetic) Estimator {
				e := newOutcome(name, a, k.Grouped, centred)
				e.Whitening = k.Whitening
				return e
			}),
		// From what follows each action token.
		"gae": define(func(*GAE) Facts { return Facts{Requires: []string{"Values"}} }, func(name string, k *GAE, a Arithmetic) Estimator {
			return newGAE(name, tokenOptions{whitener{a, k.Whitening}, k.Gamma, k.Lambda})
		}),
		"reinforce_pp": define(func(*ReinforcePP) Facts { return Facts{} }, func(name string, k *ReinforcePP, a Arithmetic) Estimator {
			return &tokenwise{
				name: name, options: tokenOptions{whitener{a, k.Whitening}, k.Gamma, 1}, recursion: discounted, same: true,
			}
		}),
		"remax": define(func(*ReMax) Facts { return Facts{Requires: []string{"Baselines"}} },
			func(name string, _ *ReMax, a Arithmetic) Estimator {
				return &tokenwise{name: name, options: tokenOptions{whitener: whitener{Arithmetic: a}}, recursion: remax, baselines: true}
			}),
		"optimal_token_baseline": define(func(k *TokenBaseline) Facts {
			return Facts{Requires: []string{"Group", "Logprobs"}, Improves: []string{"ProbSquares", "Weights"}, LearnsFrom: k.learnsFrom()}
		}, func(name string, k *TokenBaseline, a Arithmetic) Estimator {
			return &tokenBaseline{name: name, Arithmetic: a, TokenBaseline: *k, exp: stats.NewExp()}
		}),
		"prime_rloo": define(func(*PrimeRLOO) Facts { return Facts{Requires: []string{"Group"}, Process: true} },
			func(name string, k *PrimeRLOO, a Arithmetic) Estimator {
				return &primeRLOO{name: name, Arithmetic: a, PrimeRLOO: *k}
			}),
		// From turns and steps beside the outcome.
		"mt_grpo": define(func(k *MTGRPO) Facts {
			return Facts{Requires: []string{"Group"}, ByTurns: true, Process: true, LearnsFrom: k.learnsFrom()}
		}, func(name string, k *MTGRPO, a Arithmetic) Estimator {
			e := &turnwise{outcome: *newOutcome(name, a, Grouped{Alone: k.Alone}, grpo(k.Scaling)), weight: k.TurnWeight}
			e.Whitening = k.Whitening
			return e
		}),
		"gigpo": define(func(*GiGPO) Facts { return Facts{Requires: []string{"Group", "Tokens"}, ByTurns: true} },
			func(name string, k *GiGPO, a Arithmetic) Estimator {
				return &gigpo{
					outcome: *newOutcome(name, a, k.Grouped, grpo(k.Scaling)), Steps: k.Steps, anchor: k.Anchor, stepWeight: k.StepWeight,
				}
			}),
		// From what follows each step.
		"gae_step": define(func(k *GAEStep) Facts { return ofSteps(k.Steps, true) }, func(name string, k *GAEStep, a Arithmetic) Estimator {
			return newStepwise(name, *k, a, true)
		}),
		"reinforce_step": define(func(k *ReinforceStep) Facts { return ofSteps(k.Steps, false) },
			func(name string, k *ReinforceStep, a Arithmetic) Estimator {
				return newStepwise(name, GAEStep{ReinforceStep: *k}, a, false)
			}),
		"bilevel": define(func(k *Bilevel) Facts { return ofSteps(k.Steps, k.StepCredit == ByGAE || k.TokenCredit == ByGAE) }, newBilevel),
	}
}

// ofGroup are the facts of an estimator that compares the rewards of a group and learns from groups of that size on.
func ofGroup(learnsFrom int) Facts {
	return Facts{Requires: []string{"Group"}, LearnsFrom: learnsFrom}
}

// ofSteps are the facts of an estimator of steps, which tells turns apart where turns are its steps.
func ofSteps(k Steps, values bool) Facts {
	f := Facts{ByTurns: k.StepUnit == UnitTurn}
	if values {
		f.Requires = []string{"Values"}
	}
	return f
}

// grouped defines an estimator that compares the trajectories of a group by a formula without keys.
func grouped(compare formula) builder {
	return define(func(k *Grouped) Facts { return ofGroup(k.learnsFrom()) }, func(name string, k *Grouped, a Arithmetic) Estimator {
		return newOutcome(name, a, *k, compare)
	})
}

func newOutcome(name string, a Arithmetic, k Grouped, compare formula) *outcome {
	return &outcome{name: name, whitener: whitener{Arithmetic: a}, Alone: k.Alone, Comparing: k.Comparing, formula: compare}
}

func newGAE(name string, o tokenOptions) *tokenwise {
	return &tokenwise{name: name, options: o, recursion: gae, values: true}
}

func newStepwise(name string, k GAEStep, a Arithmetic, byGAE bool) *stepwise {
	return &stepwise{name: name, whitener: whitener{a, k.Whitening}, Steps: k.Steps, lambda: k.StepLambda, byGAE: byGAE}
}

func newBilevel(name string, k *Bilevel, a Arithmetic) Estimator {
	e := newStepwise(name, k.GAEStep, a, k.StepCredit == ByGAE)
	if k.TokenCredit == ByGAE {
		e.inner = newGAE(name, tokenOptions{whitener{a, k.Whitening}, k.Gamma, k.Lambda})
	}
	return e
}

// find returns the builder of a name among the stock estimators and the foreign ones. An unknown name is an error that
// gives the nearest valid one.
func find(name string, foreign []Foreign) (builder, error) {
	all := builders()
	for _, f := range foreign {
		if err := f.validate(all); err != nil {
			return builder{}, err
		}
		all[f.Name] = f.builder()
	}
	b, ok := all[name]
	if !ok {
		return builder{}, check.OneOf("advantage", name, slices.Sorted(maps.Keys(all))...)
	}
	return b, nil
}

// Names are the valid names of stock and foreign estimators, sorted.
func Names(foreign ...Foreign) []string {
	names := slices.Collect(maps.Keys(builders()))
	for _, f := range foreign {
		names = append(names, f.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// Keys are the keys of the named estimator with their defaults: a pointer to a struct such as [GRPO], or to the foreign estimator's. They
// are nil for an unknown name, and for a foreign estimator without keys.
func Keys(name string, foreign ...Foreign) any {
	b, err := find(name, foreign)
	if err != nil {
		return nil
	}
	return b.keys()
}

// Validate reports every fault of an estimator's keys, under their own names. Nil keys are the defaults.
func Validate(name string, keys any, foreign ...Foreign) error {
	b, err := find(name, foreign)
	if err != nil {
		return err
	}
	keys, err = b.fill(name, keys)
	if err != nil {
		return err
	}
	return check.Own(keys)
}

// fill puts the defaults in the place of nil keys, and refuses keys of another estimator.
func (b builder) fill(name string, keys any) (any, error) {
	defaults := b.keys()
	switch want, have := reflect.TypeOf(defaults), reflect.TypeOf(keys); {
	case keys == nil:
		return defaults, nil
	case want != have:
		return nil, fmt.Errorf("advantage %s: the keys are a %v: want a %v", name, have, want)
	}
	return keys, nil
}

// New returns the estimator of that name, stock or foreign, under its keys, which are as [Keys] returns them; nil keys are the
// defaults. An unknown name is an error that gives the nearest valid one.
func New(name string, keys any, foreign ...Foreign) (Estimator, error) {
	return NewAs(DefaultArithmetic(), name, keys, foreign...)
}

// NewAs is New in the arithmetic of another project.
func NewAs(a Arithmetic, name string, keys any, foreign ...Foreign) (Estimator, error) {
	b, err := find(name, foreign)
	if err != nil {
		return nil, err
	}
	if keys, err = b.fill(name, keys); err != nil {
		return nil, err
	}
	if err := check.All(check.Own(keys), check.NotNegative("VarianceFloor", a.VarianceFloor), check.NotNegative("CountEpsilon", a.CountEpsilon)); err != nil {
		return nil, fmt.Errorf("advantage %s: %w", name, err)
	}
	e, err := b.make(name, keys, a)
	if err != nil {
		return nil, fmt.Errorf("advantage %s: %w", name, err)
	}
	return e, nil
}
