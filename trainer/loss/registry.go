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

// defineLoss makes the builder of a loss with keys of type K. defaults change the defaults of K's tags. defaults change what the tags of K
// give.
func defineLoss[K any](facts Facts, defaults func(k *K), build func(k *K) algorithm) builder {
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

// newPolicy runs an algorithm under the shared keys of a loss.
func newPolicy(name string, keys any, a algorithm, facts Facts) *policy {
	return &policy{name: name, shared: *SharedOf(keys), old: oldPolicyOf(keys), algorithm: a, facts: facts}
}

// stockBuilders returns the stock losses by their names in configuration.
func stockBuilders() map[string]builder {
	return map[string]builder{
		"ppo": defineLoss(Facts{}, func(k *PPO) { k.DualClip = 3 }, newPPOLoss),
		"decoupled_ppo": defineLoss(Facts{}, func(k *PPO) {
			k.Correction.Weight, k.Correction.Rules = WeightToken, []string{"mask token ratio - 5"}
		}, newPPOLoss),
		"m2po": defineLoss(Facts{}, func(k *PPO) { k.Correction.M2Threshold = 0.04 }, newPPOLoss),
		"gspo": defineLoss(Facts{}, func(k *PPO) {
			k.Level, k.ClipLow, k.ClipHigh, k.LogRatioClamp = LevelSequenceToken, 3e-4, 4e-4, 10
			k.Aggregation.Mode = SeqMeanTokenMean
		}, newGSPOLoss),
		"gmpo":     defineLoss(Facts{}, func(k *GMPO) { k.Aggregation.Mode = SeqMeanTokenSum }, newGMPOLoss),
		"sapo":     defineLoss(Facts{}, func(k *SAPO) { k.Aggregation.Mode = SeqMeanTokenMean }, newSAPOLoss),
		"cispo":    defineLoss(Facts{}, func(k *CISPO) { k.Old = OldBehaviour }, newCISPOLoss),
		"clip_cov": defineLoss(Facts{}, func(*ClipCov) {}, newClipCov),
		"kl_cov":   defineLoss(Facts{}, func(*KLCov) {}, newKLCov),

		"reinforce": defineLoss(Facts{}, func(k *Reinforce) { k.Old = OldBehaviour }, newReinforceLoss),
		"gpg":       defineLoss(Facts{}, func(k *Reinforce) { k.Old = OldBehaviour }, newReinforceLoss),
		"tis": defineLoss(Facts{}, func(k *Reinforce) {
			k.Old = OldBehaviour
			k.Correction.Of, k.Correction.Weight, k.Correction.LogBound, k.Correction.Cap = OfCurrent, WeightToken, 20, 2
		}, newReinforceLoss),
		"masked_is": defineLoss(Facts{}, func(k *Reinforce) {
			k.Old = OldBehaviour
			k.Correction.Of, k.Correction.Weight, k.Correction.LogBound = OfCurrent, WeightToken, 20
			k.Correction.Rules = []string{
				"mask token ratio 0.125 8", "mask min ratio 0 -", "mask max ratio - 100", "mask mean ratio 0.1 10",
			}
		}, newReinforceLoss),
		"dppo": defineLoss(Facts{}, func(k *Trust) { k.Old = OldBehaviour }, newDPPOLoss),
		"ipo":  defineLoss(Facts{}, func(k *Trust) { k.Old, k.MaskLow, k.MaskHigh = OldBehaviour, 0.1, 0.1 }, newIPOLoss),
		"ref_kl": defineLoss(Facts{Reference: true, NoAdvantages: true}, func(k *Distillation) { k.Old = OldBehaviour },
			newReferenceKL),
		"cross_entropy": defineLoss(Facts{NoAdvantages: true, NoOld: true}, func(*CrossEntropy) {}, newCrossEntropy),
	}
}

// findBuilder returns the builder of a name among the stock and the foreign losses. For an unknown name the error gives the nearest valid
// name.
func findBuilder(key, name string, foreign []Foreign) (builder, error) {
	all := stockBuilders()
	for _, f := range foreign {
		if err := f.checkForeign(all); err != nil {
			return builder{}, err
		}
		all[f.Name] = f.stockBuilder()
	}
	b, ok := all[name]
	if !ok {
		return builder{}, check.OneOf(key, name, slices.Sorted(maps.Keys(all))...)
	}
	return b, nil
}

// Names are the valid names of stock and foreign losses, sorted.
func Names(foreign ...Foreign) []string {
	names := slices.Collect(maps.Keys(stockBuilders()))
	for _, f := range foreign {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names) // of two of a name, which Validate refuses
}

// Keys are the keys of the named loss with their defaults: a pointer to a struct such as [PPO], or to the foreign loss's. They are nil for
// an unknown name, and for a foreign loss without keys.
func Keys(name string, foreign ...Foreign) any {
	b, err := findBuilder("loss", name, foreign)
	if err != nil {
		return nil
	}
	return b.keys()
}

// fillKeys puts the defaults in the place of nil keys, and refuses keys of another loss.
func (b builder) fillKeys(name string, keys any) (any, error) {
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
// For an unknown name the error gives the nearest valid name.
func New(name string, keys any, foreign ...Foreign) (Policy, error) {
	b, err := findBuilder("loss", name, foreign)
	if err != nil {
		return nil, err
	}
	if keys, err = b.fillKeys(name, keys); err != nil {
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
