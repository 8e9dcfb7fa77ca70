package advantage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// builder makes an estimator and holds its facts.
type builder struct {
	make func(name string, o Options) (Estimator, error)
	// facts are those under the default options; under changes what other options change of them, and may be nil.
	facts Facts
	under func(o Options, f *Facts)
}

// builders are the stock estimators by their names in configuration.
func builders() map[string]builder {
	compared := []string{"length_penalty.input_tokens", "length_penalty.output_tokens", "length_penalty.turns"}
	std := []string{"divide_by_std", "std_epsilon"}
	whitened := []string{"whiten", "whiten_epsilon"}
	steps := []string{"step_gamma", "step_unit", "whiten", "whiten_epsilon"}
	ofGroup := func(reads ...[]string) Facts {
		return Facts{Requires: []string{"Group"}, Reads: slices.Concat(reads...)}
	}
	needing := func(requires []string, reads ...[]string) Facts {
		return Facts{Requires: requires, Reads: slices.Concat(reads...)}
	}
	all := map[string]builder{
		// From the rewards of a group.
		"grpo":    {make: groupwise(grpo), facts: ofGroup(compared, std), under: single},
		"dr_grpo": {make: groupwise(centred), facts: ofGroup(compared), under: single},
		"rloo":    {make: groupwise(rloo), facts: ofGroup(compared), under: single},
		"opo":     {make: groupwise(opo), facts: ofGroup(compared), under: single},
		"gpg":     {make: groupwise(gpg), facts: ofGroup(compared, []string{"gpg_norm"}), under: single},
		"max_rl":  {make: groupwise(maxRL), facts: ofGroup(compared).from(2)},
		"rae":     {make: groupwise(rae), facts: ofGroup(compared, []string{"decay"})},
		"grpo_passk": {make: groupwise(passK), facts: ofGroup(compared, std).from(2), under: func(_ Options, f *Facts) {
			f.LeastGroup = 2
		}},
		"hierarchical_grpo": {
			make: func(name string, o Options) (Estimator, error) {
				return &outcome{name: name, options: o, formula: centred, regroup: byAgent}, nil
			},
			facts: ofGroup(compared, []string{"episode_agents"}), under: single,
		},
		"reinforce_pp_baseline": {
			make: func(name string, o Options) (Estimator, error) {
				return &outcome{name: name, options: o, formula: centred, whiten: true}, nil
			},
			facts: ofGroup(compared, whitened), under: single,
		},
		// From what follows each action token.
		"gae": {
			make:  tokenByToken(tokenwise{recursion: gae, values: true, whiten: true}),
			facts: needing([]string{"Values"}, whitened, []string{"gamma", "lambda"}),
		},
		"reinforce_pp": {
			make:  tokenByToken(tokenwise{recursion: discounted, whiten: true, same: true}),
			facts: needing(nil, whitened, []string{"gamma"}),
		},
		"remax": {
			make:  tokenByToken(tokenwise{recursion: remax, baselines: true}),
			facts: needing([]string{"Baselines"}),
		},
		"optimal_token_baseline": {
			make: func(name string, o Options) (Estimator, error) {
				return &tokenBaseline{name: name, options: o, exp: stats.NewExp()}, nil
			},
			facts: Facts{
				Requires: []string{"Group", "Logprobs"}, Improves: []string{"ProbSquares", "Weights"},
				Reads: []string{"zero_tail"},
			},
			under: single,
		},
		"prime_rloo": {
			make: func(name string, o Options) (Estimator, error) { return &primeRLOO{name: name, options: o}, nil },
			facts: Facts{
				Requires: []string{"Group"}, Process: true,
				Reads: slices.Concat(whitened, []string{"outcome_weight", "process_weight", "single"}),
			},
		},
		// From turns and steps beside the outcome.
		"mt_grpo": {
			make: newTurnwise,
			facts: Facts{
				Requires: []string{"Group"}, ByTurns: true, Process: true,
				Reads: slices.Concat(std, whitened, []string{"turn_weight"}),
			},
			under: single,
		},
		"gigpo": {make: newGiGPO, facts: Facts{
			Requires: []string{"Group", "Tokens"}, ByTurns: true,
			Reads: slices.Concat(compared, std, []string{"anchor", "single", "step_gamma", "step_unit", "step_weight"}),
		}},
		// From what follows each step.
		"gae_step": {
			make:  func(name string, o Options) (Estimator, error) { return newStepwise(name, o, true, nil), nil },
			facts: needing([]string{"Values"}, steps, []string{"step_lambda"}),
			under: unit,
		},
		"reinforce_step": {
			make:  func(name string, o Options) (Estimator, error) { return newStepwise(name, o, false, nil), nil },
			facts: needing(nil, steps),
			under: unit,
		},
		"bilevel": {
			make: newBilevel, facts: needing(nil, steps, []string{"step_credit", "token_credit"}),
			under: func(o Options, f *Facts) {
				unit(o, f)
				if o.StepCredit == ByGAE {
					f.Requires, f.Reads = []string{"Values"}, append(f.Reads, "step_lambda")
				}
				if o.TokenCredit == ByGAE {
					f.Requires, f.Reads = []string{"Values"}, append(f.Reads, "gamma", "lambda")
				}
			},
		},
	}
	return all
}

// single are the facts of an estimator to which a group of one trajectory teaches nothing, unless Options.Single gives
// that trajectory its reward.
func single(o Options, f *Facts) {
	f.Reads = append(f.Reads, "single")
	if o.Single == SingleZero {
		f.LearnsFrom = 2
	}
}

// unit are the facts of an estimator of steps, which tells turns apart where they are its steps.
func unit(o Options, f *Facts) { f.ByTurns = o.StepUnit == UnitTurn }

// groupwise makes estimators that compare the trajectories of a group by a formula.
func groupwise(formula func(*outcome, group) error) func(string, Options) (Estimator, error) {
	return func(name string, o Options) (Estimator, error) {
		return &outcome{name: name, options: o, formula: formula}, nil
	}
}

// tokenByToken makes estimators that run a recursion over the action tokens of a trajectory.
func tokenByToken(e tokenwise) func(string, Options) (Estimator, error) {
	return func(name string, o Options) (Estimator, error) {
		e := e
		e.name, e.options = name, o
		return &e, nil
	}
}

func newBilevel(name string, o Options) (Estimator, error) {
	var inner *tokenwise
	if o.TokenCredit == ByGAE {
		inner = &tokenwise{name: name, options: o, recursion: gae, values: true, whiten: true}
	}
	return newStepwise(name, o, o.StepCredit == ByGAE, inner), nil
}

// find returns the builder of a name among the stock estimators and the foreign ones. An unknown name is an error that
// gives the nearest valid one.
func find(name string, foreign []Foreign) (builder, error) {
	all := builders()
	for _, f := range foreign {
		if err := f.validate(all); err != nil {
			return builder{}, err
		}
		all[f.Name] = builder{make: f.make, facts: f.Facts}
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

// New returns the estimator of that name, stock or foreign. An unknown name is an error that gives the nearest valid one.
func New(name string, o Options, foreign ...Foreign) (Estimator, error) {
	b, err := find(name, foreign)
	if err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("advantage %s: %w", name, err)
	}
	e, err := b.make(name, o)
	if err != nil {
		return nil, fmt.Errorf("advantage %s: %w", name, err)
	}
	if o.NormalizeProcess {
		e = &normalized{Estimator: e}
	}
	return e, nil
}
