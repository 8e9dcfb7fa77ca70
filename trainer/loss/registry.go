package loss

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/internal/check"
)

// builder makes a policy loss and holds its defaults and facts.
type builder struct {
	// make returns what policy runs over the rows of a batch. It is nil for a foreign loss, which whole makes.
	make     func(o *Options) algorithm
	whole    func(o Options) (Policy, error)
	defaults Options
	facts    Facts
	// wideLow allows clip_low above 1, where it bounds something other than a ratio, which is never below 0.
	wideLow bool
}

// builders are the stock losses by their names in configuration.
func builders() map[string]builder {
	base := base()
	with := func(change func(o *Options)) Options { o := base; change(&o); return o }
	behaviour := with(func(o *Options) { o.Old = OldBehaviour })
	kimi := with(func(o *Options) { o.Old, o.KLTau = OldBehaviour, 1e-3 })
	current := Correction{Of: OfCurrent, Weight: WeightToken, LogBound: 20}
	surrogate := []string{"level", "log_ratio_clamp"}
	clipped := append([]string{"clip_low", "clip_high"}, surrogate...)
	clippedTwice := append([]string{"dual_clip"}, clipped...)
	score := Facts{Reads: []string{"kl_tau"}}
	trust := []string{"advantage_tau", "kl_tau", "log_ratio_clamp", "mask_low", "mask_high"}
	return map[string]builder{
		"ppo": {make: newPPO, facts: Facts{Reads: clippedTwice}, defaults: with(func(o *Options) { o.DualClip = 3 })},
		"decoupled_ppo": {make: newPPO, facts: Facts{Reads: clippedTwice}, defaults: with(func(o *Options) {
			o.Correction = Correction{Of: OfProximal, Weight: WeightToken, Rules: []string{"mask token ratio - 5"}}
		})},
		"m2po": {make: newPPO, facts: Facts{Reads: clippedTwice}, defaults: with(func(o *Options) {
			o.Correction = Correction{Of: OfProximal, M2Threshold: 0.04}
		})},
		"gspo": {make: newGSPO, facts: Facts{Reads: clippedTwice}, defaults: with(func(o *Options) {
			o.Level, o.ClipLow, o.ClipHigh, o.LogRatioClamp = LevelSequenceToken, 3e-4, 4e-4, 10
			o.Aggregation.Mode = SeqMeanTokenMean
		})},
		"gmpo": {
			make: newGMPO, wideLow: true, // its bounds are of a log ratio
			facts: Facts{Reads: []string{"clip_low", "clip_high"}, Modes: []string{SeqMeanTokenSum}},
			defaults: with(func(o *Options) {
				o.ClipLow, o.ClipHigh, o.Aggregation.Mode = 0.4, 0.4, SeqMeanTokenSum
			}),
		},
		"sapo": {
			make: newSAPO, facts: Facts{Reads: append([]string{"tau_positive", "tau_negative"}, surrogate...)},
			defaults: with(func(o *Options) { o.Aggregation.Mode = SeqMeanTokenMean }),
		},
		"cispo": {
			make: newCISPO, wideLow: true, // its authors write 10 for no bound
			facts: Facts{Reads: clipped},
			defaults: with(func(o *Options) {
				o.Old, o.ClipLow, o.ClipHigh = OldBehaviour, Off, 4
			}),
		},
		"clip_cov": {
			make: newClipCov, defaults: base,
			facts: Facts{Reads: []string{"clip_low", "clip_high", "log_ratio_clamp", "cov_ratio", "cov_low", "cov_high"}},
		},
		"kl_cov":    {make: newKLCov, facts: Facts{Reads: []string{"log_ratio_clamp", "cov_ratio", "cov_coef"}}, defaults: base},
		"reinforce": {make: newReinforce, facts: score, defaults: behaviour},
		"gpg":       {make: newReinforce, facts: score, defaults: behaviour},
		"tis": {make: newReinforce, facts: score, defaults: with(func(o *Options) {
			o.Old, o.Correction = OldBehaviour, current
			o.Correction.Cap = 2
		})},
		"masked_is": {make: newReinforce, facts: score, defaults: with(func(o *Options) {
			o.Old, o.Correction = OldBehaviour, current
			o.Correction.Rules = []string{
				"mask token ratio 0.125 8", "mask min ratio 0 -", "mask max ratio - 100", "mask mean ratio 0.1 10",
			}
		})},
		"dppo": {make: newDPPO, facts: Facts{Reads: trust}, defaults: kimi},
		"ipo":  {make: newIPO, facts: Facts{Reads: trust}, defaults: with(func(o *Options) { *o = kimi; o.MaskLow, o.MaskHigh = 0.1, 0.1 })},
		"ref_kl": {
			make: newReferenceKL, defaults: kimi,
			facts: Facts{Reference: true, NoAdvantages: true, Reads: []string{"advantage_tau", "kl_tau", "log_ratio_clamp", "mask_low"}},
		},
		"cross_entropy": {make: newCrossEntropy, facts: Facts{NoAdvantages: true, NoOld: true}, defaults: behaviour},
	}
}

// base are the defaults that the losses' own ones start from.
func base() Options {
	return Options{
		Old: OldProximal, Level: LevelToken, ClipLow: 0.2, ClipHigh: 0.2, DualClip: Off, LogRatioClamp: 20,
		TauPositive: 1, TauNegative: 1.05, MaskLow: 0.2, MaskHigh: 0.2, AdvantageTau: 1, KLTau: Off,
		CovRatio: 2e-4, CovLow: 1, CovHigh: 5, CovCoef: 1,
		Aggregation: Aggregation{Mode: TokenMean},
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
		all[f.Name] = builder{whole: f.make, defaults: f.Defaults.over(base()), facts: f.Facts}
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

// Resolve fills the options' zero values with the defaults of the named loss, stock or foreign.
func Resolve(name string, o Options, foreign ...Foreign) (Options, error) {
	b, err := find("loss", name, foreign)
	if err != nil {
		return Options{}, err
	}
	return b.resolve(o)
}

func (b builder) resolve(o Options) (Options, error) {
	o = o.over(b.defaults)
	if b.facts.Modes != nil {
		if err := check.OneOf("aggregation.mode", o.Aggregation.Mode, b.facts.Modes...); err != nil {
			return Options{}, err
		}
	}
	return o, nil
}

// New returns the policy loss of that name, stock or foreign. An unknown name is an error that gives the nearest valid one.
func New(name string, o Options, foreign ...Foreign) (Policy, error) {
	b, err := find("loss", name, foreign)
	if err != nil {
		return nil, err
	}
	if o, err = b.resolve(o); err != nil {
		return nil, err
	}
	if err := b.validate(o); err != nil {
		return nil, fmt.Errorf("loss %s: %w", name, err)
	}
	if b.whole == nil {
		return &policy{name: name, options: o, algorithm: b.make(&o), facts: b.facts}, nil
	}
	p, err := b.whole(o)
	if err != nil {
		return nil, fmt.Errorf("loss %s: %w", name, err)
	}
	return p, nil
}

// validate reports every fault of resolved options.
func (b builder) validate(o Options) error {
	return check.All(
		o.Validate(),
		check.That(o.ClipLow <= 1 || b.wideLow, "clip_low", "%v: must be above 0 and at most 1, or -1 for off: no ratio is below 0", o.ClipLow),
	)
}
