package loss

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-rl/weir/internal/check"
)

// builder makes a policy loss from its keys.
type builder struct {
	// keys are a pointer to a struct of the loss's own keys, with their defaults.
	keys  func() any
	make  func(name string, keys any) (Policy, error)
	facts Facts
}

// define makes the builder of a loss with keys of type K. defaults change what the tags of K give.
func define[K any](facts Facts, defaults func(k *K), build func(k *K) algorithm) builder {
	return builder{
		keys: func() any {
			k := check.Default[K]()
			defaults(&k)
			return &k
		},
		make: func(name string, keys any) (Policy, error) {
			return newPolicy(name, keys, build(keys.(*K)), facts), nil
		},
		facts: facts,
	}
}

// newPolicy runs an algorithm under the shared keys among those of a loss.
func newPolicy(name string, keys any, a algorithm, facts Facts) *policy {
	return &policy{name: name, shared: *SharedOf(keys), old: oldOf(keys), algorithm: a, facts: facts}
}

// builders are the stock losses by their names in configuration.
func builders() map[string]builder {
	return map[string]builder{
		"ppo": define(Facts{}, func(k *PPO) { k.DualClip = 3 }, newPPO),
		"decoupled_ppo": define(Facts{}, func(k *PPO) {
			k.Correction.Weight, k.Correction.Rules = WeightToken, []string{"mask token ratio - 5"}
		}, newPPO),
		"m2po": define(Facts{}, func(k *PPO) { k.Correction.M2Threshold = 0.04 }, newPPO),
		"gspo": define(Facts{}, func(k *PPO) {
			k.Level, k.ClipLow, k.ClipHigh, k.LogRatioClamp = LevelSequenceToken, 3e-4, 4e-4, 10
			k.Aggregation.Mode = SeqMeanTokenMean
		}, newGSPO),
		"gmpo":     define(Facts{}, func(k *GMPO) { k.Aggregation.Mode = SeqMeanTokenSum }, newGMPO),
		"sapo":     define(Facts{}, func(k *SAPO) { k.Aggregation.Mode = SeqMeanTokenMean }, newSAPO),
		"cispo":    define(Facts{}, func(k *CISPO) { k.Old = OldBehaviour }, newCISPO),
		"clip_cov": define(Facts{}, func(*ClipCov) {}, newClipCov),
		"kl_cov":   define(Facts{}, func(*KLCov) {}, newKLCov),

		"reinforce": define(Facts{}, func(k *Reinforce) { k.Old = OldBehaviour }, newReinforce),
		"gpg":       define(Facts{}, func(k *Reinforce) { k.Old = OldBehaviour }, newReinforce),
		"tis": define(Facts{}, func(k *Reinforce) {
			k.Old = OldBehaviour
			k.Correction.Of, k.Correction.Weight, k.Correction.LogBound, k.Correction.Cap = OfCurrent, WeightToken, 20, 2
		}, newReinforce),
		"masked_is": define(Facts{}, func(k *Reinforce) {
			k.Old = OldBehaviour
			k.Correction.Of, k.Correction.Weight, k.Correction.LogBound = OfCurrent, WeightToken, 20
			k.Correction.Rules = []string{
				"mask token ratio 0.125 8", "mask min ratio 0 -", "mask max ratio - 100", "mask mean ratio 0.1 10",
			}
		}, newReinforce),
		"dppo": define(Facts{}, func(k *Trust) { k.Old = OldBehaviour }, newDPPO),
		"ipo":  define(Facts{}, func(k *Trust) { k.Old, k.MaskLow, k.MaskHigh = OldBehaviour, 0.1, 0.1 }, newIPO),
		"ref_kl": define(Facts{Reference: true, NoAdvantages: true}, func(k *Distillation) { k.Old = OldBehaviour },
			newReferenceKL),
		"cross_entropy": define(Facts{NoAdvantages: true, NoOld: true}, func(*CrossEntropy) {}, newCrossEntropy),
	}
}

// find returns the builder of a name among the stock losses and the foreign ones. An unknown name is an error that gives
// the nearest valid one.
func find(key, name string, foreign []Foreign) (builder, error) {
	all := builders()
	for _, f := range foreign {
		if err := f.validate(all); err != nil {
			return builder{}, err
		}
		all[f.Name] = f.builder()
	}
	b, ok := all[name]
	if !ok {
		return builder{}, check.OneOf(key, name, slices.Sorted(maps.Keys(all))...)
	}
	return b, nil
}

// Names are the valid names of stock and foreign losses, sorted.
func Names(foreign ...Foreign) []string {
	names := slices.Collect(maps.Keys(builders()))
	for _, f := range foreign {
		names = append(names, f.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// Keys are the keys of the named loss with their defaults: a pointer to a struct such as [PPO], or to the foreign loss's. They are nil for
// an unknown name, and for a foreign loss without keys.
func Keys(name string, foreign ...Foreign) any {
	b, err := find("loss", name, foreign)
	if err != nil {
		return nil
	}
	return b.keys()
}

// fill puts the defaults in the place of nil keys, and refuses keys of another loss.
func (b builder) fill(name string, keys any) (any, error) {
	defaults := b.keys()
	switch want, have := reflect.TypeOf(defaults), reflect.TypeOf(keys); {
	case keys == nil:
		return defaults, nil
	case want != have:
		return nil, fmt.Errorf("loss %s: the keys are a %v: want a %v", name, have, want)
	}
	return keys, nil
}

// New returns the policy loss of that name, stock or foreign, under its keys, which are as [Keys] returns them; nil keys are the defaults.
// An unknown name is an error that gives the nearest valid one.
func New(name string, keys any, foreign ...Foreign) (Policy, error) {
	b, err := find("loss", name, foreign)
	if err != nil {
		return nil, err
	}
	if keys, err = b.fill(name, keys); err != nil {
		return nil, err
	}
	if err := check.Own(keys); err != nil {
		return nil, fmt.Errorf("loss %s: %w", name, err)
	}
	p, err := b.make(name, keys)
	if err != nil {
		return nil, fmt.Errorf("loss %s: %w", name, err)
	}
	return p, nil
}
