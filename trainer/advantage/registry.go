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
	// facts returns the facts under the keys' values.
	facts func(keys any) Facts
}

// defineEstimator makes the builder of an estimator with keys of type K.
func defineEstimator[K any](facts func(k *K) Facts, build func(name string, k *K, a Arithmetic) Estimator) builder {
	return builder{
		keys: func() any { k := check.Default[K](); return &k },
		make: func(name string, keys any, a Arithmetic) (Estimator, error) {
			return build(name, keys.(*K), a), nil
		},
		facts: func(keys any) Facts { return facts(keys.(*K)) },
	}
}

// stockBuilders returns the stock estimators by their names in configuration.
func stockBuilders() map[string]builder {
	return map[string]builder{
		// From the rewards of a group.
		"grpo": defineEstimator(func(k *GRPO) Facts { return k.groupFacts(k.learnsFrom()) }, func(name string, k *GRPO, a Arithmetic) Estimator {
			return newOutcome(name, a, k.Grouped, grpoFormula(k.Scaling))
		}),
		"dr_grpo": defineGrouped(centredFormula),
		"rloo":    defineGrouped(rlooFormula),
		"opo": defineEstimator(func(k *Grouped) Facts { return Facts{Requires: []string{"Group"}, LearnsFrom: k.learnsFrom()} },
			func(name string, k *Grouped, a Arithmetic) Estimator { return newOutcome(name, a, *k, opoFormula) }),
		"gpg": defineEstimator(func(k *GPG) Facts { return k.groupFacts(k.learnsFrom()) }, func(name string, k *GPG, a Arithmetic) Estimator {
			return newOutcome(name, a, k.Grouped, gpgFormula(k.GPGNorm))
		}),
		"max_rl": defineEstimator(func(k *MaxRL) Facts { return k.groupFacts(2) }, func(name string, k *MaxRL, a Arithmetic) Estimator {
			return newOutcome(name, a, Grouped{Comparing: k.Comparing}, maxRLFormula)
		}),
		"rae": defineEstimator(func(k *RAE) Facts { return k.groupFacts(1) }, func(name string, k *RAE, a Arithmetic) Estimator {
			return newOutcome(name, a, Grouped{Comparing: k.Comparing}, raeFormula(k.Decay))
		}),
		"grpo_passk": defineEstimator(func(k *PassK) Facts {
			f := k.groupFacts(2)
			f.LeastGroup = 2
			return f
		}, func(name string, k *PassK, a Arithmetic) Estimator {
			return newOutcome(name, a, Grouped{Comparing: k.Comparing}, passKFormula(k.Scaling))
		}),
		"hierarchical_grpo": defineEstimator(func(k *HierarchicalGRPO) Facts { return k.groupFacts(k.learnsFrom()) },
			func(name string, k *HierarchicalGRPO, a Arithmetic) Estimator {
				e := newOutcome(name, a, k.Grouped, centredFormula)
				e.regroup = regroupByAgent(k.EpisodeAgents)
				return e
			}),
		"reinforce_pp_baseline": defineEstimator(func(k *ReinforcePPBaseline) Facts {
			f := k.groupFacts(k.learnsFrom())
			f.OverAnyTokens = f.OverAnyTokens && !k.Whiten
			return f
		},
			func(name string, k *ReinforcePPBaseline, a Arithmetic) Estimator {
				e := newOutcome(name, a, k.Grouped, centredFormula)
				e.Whitening = k.Whitening
				return e
			}),
		// From the tokens after each action token.
		"gae": defineEstimator(func(*GAE) Facts { return Facts{Requires: []string{"Values"}} }, func(name string, k *GAE, a Arithmetic) Estimator {
			return newGAEEstimator(name, tokenOptions{whitener{a, k.Whitening}, k.Gamma, k.Lambda})
		}),
		"reinforce_pp": defineEstimator(func(k *ReinforcePP) Facts { return Facts{OverAnyTokens: !k.Whiten && k.Gamma == 1} }, func(name string, k *ReinforcePP, a Arithmetic) Estimator {
			return &tokenwise{
				name: name, options: tokenOptions{whitener{a, k.Whitening}, k.Gamma, 1}, recursion: discountedReturn, same: true,
			}
		}),
		"remax": defineEstimator(func(*ReMax) Facts { return Facts{Requires: []string{"Baselines"}, OverAnyTokens: true} },
			func(name string, _ *ReMax, a Arithmetic) Estimator {
				return &tokenwise{name: name, options: tokenOptions{whitener: whitener{Arithmetic: a}}, recursion: remaxRecursion, baselines: true}
			}),
		"optimal_token_baseline": defineEstimator(func(k *TokenBaseline) Facts {
			return Facts{Requires: []string{"Group", "Logprobs"}, Improves: []string{"ProbSquares", "Weights"}, LearnsFrom: k.learnsFrom()}
		}, func(name string, k *TokenBaseline, a Arithmetic) Estimator {
			return &tokenBaseline{name: name, Arithmetic: a, TokenBaseline: *k, exp: stats.NewExp()}
		}),
		"prime_rloo": defineEstimator(func(*PrimeRLOO) Facts { return Facts{Requires: []string{"Group"}, ByTurns: true, Process: true} },
			func(name string, k *PrimeRLOO, a Arithmetic) Estimator {
				return &primeRLOO{name: name, Arithmetic: a, PrimeRLOO: *k}
			}),
		// From turns and steps beside the outcome.
		"mt_grpo": defineEstimator(func(k *MTGRPO) Facts {
			return Facts{Requires: []string{"Group"}, ByTurns: true, Process: true, LearnsFrom: k.learnsFrom()}
		}, func(name string, k *MTGRPO, a Arithmetic) Estimator {
			e := &turnwise{outcome: *newOutcome(name, a, Grouped{Alone: k.Alone}, grpoFormula(k.Scaling)), weight: k.TurnWeight}
			e.Whitening = k.Whitening
			return e
		}),
		"gigpo": defineEstimator(func(*GiGPO) Facts { return Facts{Requires: []string{"Group", "Tokens"}, ByTurns: true} },
			func(name string, k *GiGPO, a Arithmetic) Estimator {
				return &gigpo{
					outcome: *newOutcome(name, a, k.Grouped, grpoFormula(k.Scaling)), Steps: k.Steps, anchor: k.Anchor, stepWeight: k.StepWeight,
				}
			}),
		"vineppo": defineEstimator(func(*VinePPO) Facts { return Facts{Requires: []string{"StateValues"}, ByTurns: true} },
			func(name string, _ *VinePPO, a Arithmetic) Estimator { return &vinePPO{name: name, Arithmetic: a} }),
		// From the steps after each step.
		"gae_step": defineEstimator(func(k *GAEStep) Facts { return stepFacts(k.Steps, true) }, func(name string, k *GAEStep, a Arithmetic) Estimator {
			return newStepwise(name, *k, a, true)
		}),
		"reinforce_step": defineEstimator(func(k *ReinforceStep) Facts { return stepFacts(k.Steps, false) },
			func(name string, k *ReinforceStep, a Arithmetic) Estimator {
				return newStepwise(name, GAEStep{ReinforceStep: *k}, a, false)
			}),
		"bilevel": defineEstimator(func(k *Bilevel) Facts {
			f := stepFacts(k.Steps, k.StepCredit == ByGAE || k.TokenCredit == ByGAE)
			f.ByTurns = f.ByTurns || k.TokenCredit == ByGAE
			return f
		}, newBilevel),
	}
}

// groupFacts returns the facts of an estimator that compares the rewards of a group, shaped by c, and learns from groups of at least this
// size.
func (c Comparing) groupFacts(learnsFrom int) Facts {
	return Facts{Requires: []string{"Group"}, LearnsFrom: learnsFrom, OverAnyTokens: c.LengthPenalty == LengthPenalty{}}
}

// stepFacts returns the facts of an estimator of steps, which tells turns apart where turns are its steps.
func stepFacts(k Steps, values bool) Facts {
	f := Facts{ByTurns: k.StepUnit == UnitTurn, OverAnyTokens: !values}
	if values {
		f.Requires = []string{"Values"}
	}
	return f
}

// defineGrouped defines an estimator that compares the trajectories of a group by a formula without keys.
func defineGrouped(compare formula) builder {
	return defineEstimator(func(k *Grouped) Facts { return k.groupFacts(k.learnsFrom()) }, func(name string, k *Grouped, a Arithmetic) Estimator {
		return newOutcome(name, a, *k, compare)
	})
}

func newOutcome(name string, a Arithmetic, k Grouped, compare formula) *outcome {
	return &outcome{name: name, whitener: whitener{Arithmetic: a}, Alone: k.Alone, Comparing: k.Comparing, formula: compare}
}

func newGAEEstimator(name string, o tokenOptions) *tokenwise {
	return &tokenwise{name: name, options: o, recursion: gaeRecursion, values: true}
}

func newStepwise(name string, k GAEStep, a Arithmetic, byGAE bool) *stepwise {
	return &stepwise{name: name, whitener: whitener{a, k.Whitening}, Steps: k.Steps, lambda: k.StepLambda, byGAE: byGAE}
}

func newBilevel(name string, k *Bilevel, a Arithmetic) Estimator {
	e := newStepwise(name, k.GAEStep, a, k.StepCredit == ByGAE)
	if k.TokenCredit == ByGAE {
		e.inner = newGAEEstimator(name, tokenOptions{whitener{a, k.Whitening}, k.Gamma, k.Lambda})
	}
	return e
}

// findBuilder returns the builder of a name among the stock and the foreign estimators. For an unknown name the error gives the nearest
// valid name.
func findBuilder(name string, foreign []Foreign) (builder, error) {
	all := stockBuilders()
	for _, f := range foreign {
		if err := f.checkForeign(all); err != nil {
			return builder{}, err
		}
		all[f.Name] = f.stockBuilder()
	}
	b, ok := all[name]
	if !ok {
		return builder{}, check.OneOf("advantage", name, slices.Sorted(maps.Keys(all))...)
	}
	return b, nil
}

// Names are the valid names of stock and foreign estimators, sorted.
func Names(foreign ...Foreign) []string {
	names := slices.Collect(maps.Keys(stockBuilders()))
	for _, f := range foreign {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names) // of two of a name, which Validate refuses
}

// Keys are the keys of the named estimator with their defaults: a pointer to a struct such as [GRPO], or to the foreign estimator's. They
// are nil for an unknown name, and for a foreign estimator without keys.
func Keys(name string, foreign ...Foreign) any {
	b, err := findBuilder(name, foreign)
	if err != nil {
		return nil
	}
	return b.keys()
}

// Validate reports every fault of an estimator's keys, under their own names. Nil keys are the defaults.
func Validate(name string, keys any, foreign ...Foreign) error {
	b, err := findBuilder(name, foreign)
	if err != nil {
		return err
	}
	keys, err = b.fillKeys(name, keys)
	if err != nil {
		return err
	}
	return check.Own(keys)
}

// fillKeys puts the defaults in the place of nil keys, and refuses keys of another estimator.
func (b builder) fillKeys(name string, keys any) (any, error) {
	defaults := b.keys()
	switch want, have := reflect.TypeOf(defaults), reflect.TypeOf(keys); {
	case keys == nil:
		return defaults, nil
	case want != have:
		return nil, fmt.Errorf("advantage %s: the keys are a %v: want a %v", name, have, want)
	}
	return keys, nil
}

// New returns the estimator of that name, stock or foreign, under its keys, which are as [Keys] returns them; nil keys are the defaults.
// For an unknown name the error gives the nearest valid name.
func New(name string, keys any, foreign ...Foreign) (Estimator, error) {
	return NewAs(DefaultArithmetic(), name, keys, foreign...)
}

// NewAs is New in the arithmetic of another project.
func NewAs(a Arithmetic, name string, keys any, foreign ...Foreign) (Estimator, error) {
	b, err := findBuilder(name, foreign)
	if err != nil {
		return nil, err
	}
	if keys, err = b.fillKeys(name, keys); err != nil {
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
