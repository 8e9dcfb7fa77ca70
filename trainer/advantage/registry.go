package advantage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

type builder func(name string, o Options) Estimator

// builders make each estimator by its name in configuration.
func builders() map[string]builder {
	groups := func(formula func(*outcome, group) error) builder {
		return func(name string, o Options) Estimator { return &outcome{name: name, options: o, formula: formula} }
	}
	tokens := func(e tokenwise) builder {
		return func(name string, o Options) Estimator { e := e; e.name, e.options = name, o; return &e }
	}
	return map[string]builder{
		// From the rewards of a group.
		"grpo":       groups(grpo),
		"dr_grpo":    groups(centred),
		"grpo_passk": groups(passK),
		"rloo":       groups(rloo),
		"opo":        groups(opo),
		"gpg":        groups(gpg),
		"max_rl":     groups(maxRL),
		"rae":        groups(rae),
		"hierarchical_grpo": func(name string, o Options) Estimator {
			return &outcome{name: name, options: o, formula: centred, regroup: byAgent}
		},
		"reinforce_pp_baseline": func(name string, o Options) Estimator {
			return &outcome{name: name, options: o, formula: centred, whiten: true}
		},
		// From what follows each action token.
		"gae":          tokens(tokenwise{recursion: gae, values: true, whiten: true}),
		"reinforce_pp": tokens(tokenwise{recursion: discounted, whiten: true, same: true}),
		"remax":        tokens(tokenwise{recursion: remax, baselines: true}),
		"optimal_token_baseline": func(name string, o Options) Estimator {
			return &tokenBaseline{name: name, options: o, exp: stats.NewExp()}
		},
		"prime_rloo": func(name string, o Options) Estimator { return &primeRLOO{name: name, options: o} },
		// From turns and steps beside the outcome.
		"mt_grpo": newTurnwise,
		"gigpo":   newGiGPO,
		// From what follows each step.
		"gae_step": func(name string, o Options) Estimator { return newStepwise(name, o, true, nil) },
		"reinforce_step": func(name string, o Options) Estimator {
			return newStepwise(name, o, false, nil)
		},
		"bilevel": func(name string, o Options) Estimator {
			var inner *tokenwise
			if o.TokenCredit == ByGAE {
				inner = &tokenwise{name: name, options: o, recursion: gae, values: true, whiten: true}
			}
			return newStepwise(name, o, o.StepCredit == ByGAE, inner)
		},
	}
}

// Names are the valid names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builders())) }

// New returns the estimator of that name. An unknown name is an error that gives the nearest valid one.
func New(name string, o Options) (Estimator, error) {
	if err := stats.Choose("advantage", name, Names()...); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("advantage %s: %w", name, err)
	}
	e := builders()[name](name, o)
	if o.NormalizeProcess {
		e = &normalized{Estimator: e}
	}
	return e, nil
}

// Requires names the fields of Batch, beside Offsets, Mask and Rewards, that the named estimator cannot do without
// under these options: what a trainer checks before it begins.
func Requires(name string, o Options) []string {
	switch name {
	case "gae", "gae_step":
		return []string{"Values"}
	case "bilevel":
		if o.StepCredit == ByGAE || o.TokenCredit == ByGAE {
			return []string{"Values"}
		}
		return nil
	case "remax":
		return []string{"Baselines"}
	case "optimal_token_baseline":
		return []string{"Group", "Logprobs"}
	case "gigpo":
		return []string{"Group", "Tokens"}
	case "reinforce_pp", "reinforce_step":
		return nil
	default:
		return []string{"Group"}
	}
}

// Improves names the fields of Batch that the named estimator reads when there are any and does without when there are not,
// and that a trainer must compute for it.
func Improves(name string) []string {
	if name == "optimal_token_baseline" {
		return []string{"ProbSquares", "Weights"}
	}
	return nil
}

// LeastGroup is how many trajectories of a group the named estimator cannot do without.
func LeastGroup(name string) int {
	if name == "grpo_passk" {
		return 2
	}
	return 1
}

// LearnsFrom is the size of the smallest groups that the named estimator can learn from under these options: all
// trajectories of smaller ones get advantage 0, whatever their rewards.
func LearnsFrom(name string, o Options) int {
	switch name {
	case "grpo_passk", "max_rl":
		return 2
	case "grpo", "dr_grpo", "rloo", "opo", "gpg", "hierarchical_grpo", "reinforce_pp_baseline", "optimal_token_baseline", "mt_grpo":
		if o.Single == SingleZero {
			return 2
		}
	}
	return 1
}
