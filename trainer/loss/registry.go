package loss

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// builder is a loss's defaults and its constructor.
type builder struct {
	defaults Options
	make     func(o *Options) algorithm
	// reference: it reads Batch.Reference. noAdvantages: it does not read Batch.Advantages.
	// noOld: it takes no ratio.
	reference, noAdvantages, noOld bool
	// modes are the aggregations that make sense; nil means all.
	modes []string
	// reads are the options that it reads, by key, beside those that every loss does.
	reads []string
}

// builders make each loss by its name in configuration.
func builders() map[string]builder {
	base := Options{
		Old: OldProximal, Level: LevelToken, ClipLow: 0.2, ClipHigh: 0.2, DualClip: Off, LogRatioClamp: 20,
		TauPositive: 1, TauNegative: 1.05, MaskLow: 0.2, MaskHigh: 0.2, AdvantageTau: 1, KLTau: Off,
		CovRatio: 2e-4, CovLow: 1, CovHigh: 5, CovCoef: 1,
		Aggregation: Aggregation{Mode: TokenMean},
	}
	with := func(change func(o *Options)) Options { o := base; change(&o); return o }
	behaviour := with(func(o *Options) { o.Old = OldBehaviour })
	kimi := with(func(o *Options) { o.Old, o.KLTau = OldBehaviour, 1e-3 })
	current := Correction{Of: OfCurrent, Weight: WeightToken, LogBound: 20}
	surrogate := []string{"level", "log_ratio_clamp"}
	clipped := append([]string{"clip_low", "clip_high"}, surrogate...)
	clippedTwice := append([]string{"dual_clip"}, clipped...)
	trust := []string{"advantage_tau", "kl_tau", "log_ratio_clamp", "mask_low", "mask_high"}
	return map[string]builder{
		"ppo": {make: newPPO, reads: clippedTwice, defaults: with(func(o *Options) { o.DualClip = 3 })},
		"decoupled_ppo": {make: newPPO, reads: clippedTwice, defaults: with(func(o *Options) {
			o.Correction = Correction{Of: OfProximal, Weight: WeightToken, Rules: []string{"mask token ratio - 5"}}
		})},
		"m2po": {make: newPPO, reads: clippedTwice, defaults: with(func(o *Options) {
			o.Correction = Correction{Of: OfProximal, M2Threshold: 0.04}
		})},
		"gspo": {make: newGSPO, reads: clippedTwice, defaults: with(func(o *Options) {
			o.Level, o.ClipLow, o.ClipHigh, o.LogRatioClamp = LevelSequenceToken, 3e-4, 4e-4, 10
			o.Aggregation.Mode = SeqMeanTokenMean
		})},
		"gmpo": {make: newGMPO, reads: []string{"clip_low", "clip_high", "aggregation.length_epsilon"}, modes: []string{SeqMeanTokenSum}, defaults: with(func(o *Options) {
			o.ClipLow, o.ClipHigh, o.Aggregation.Mode = 0.4, 0.4, SeqMeanTokenSum
		})},
		"sapo": {make: newSAPO, reads: append([]string{"tau_positive", "tau_negative"}, surrogate...), defaults: with(func(o *Options) { o.Aggregation.Mode = SeqMeanTokenMean })},
		"cispo": {make: newCISPO, reads: clipped, defaults: with(func(o *Options) {
			o.Old, o.ClipLow, o.ClipHigh = OldBehaviour, Off, 4
		})},
		"clip_cov":  {make: newClipCov, reads: []string{"clip_low", "clip_high", "log_ratio_clamp", "cov_ratio", "cov_low", "cov_high"}, defaults: base},
		"kl_cov":    {make: newKLCov, reads: []string{"log_ratio_clamp", "cov_ratio", "cov_coef"}, defaults: base},
		"reinforce": {make: newReinforce, reads: []string{"kl_tau"}, defaults: behaviour},
		"gpg":       {make: newReinforce, reads: []string{"kl_tau"}, defaults: behaviour},
		"tis": {make: newReinforce, reads: []string{"kl_tau"}, defaults: with(func(o *Options) {
			o.Old, o.Correction = OldBehaviour, current
			o.Correction.Cap = 2
		})},
		"masked_is": {make: newReinforce, reads: []string{"kl_tau"}, defaults: with(func(o *Options) {
			o.Old, o.Correction = OldBehaviour, current
			o.Correction.Rules = []string{
				"mask token ratio 0.125 8", "mask min ratio 0 -", "mask max ratio - 100", "mask mean ratio 0.1 10",
			}
		})},
		"dppo":          {make: newDPPO, reads: trust, defaults: kimi},
		"ipo":           {make: newIPO, reads: trust, defaults: with(func(o *Options) { *o = kimi; o.MaskLow, o.MaskHigh = 0.1, 0.1 })},
		"ref_kl":        {make: newReferenceKL, reads: trust[:4], defaults: kimi, reference: true, noAdvantages: true},
		"cross_entropy": {make: newCrossEntropy, defaults: behaviour, noAdvantages: true, noOld: true},
	}
}

// Names are the valid names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builders())) }

// Resolve fills the options' zero values with the named loss's own defaults.
func Resolve(name string, o Options) (Options, error) {
	if err := stats.Choose("loss", name, Names()...); err != nil {
		return Options{}, err
	}
	b := builders()[name]
	o = o.over(b.defaults)
	if b.modes != nil {
		if err := stats.Choose("aggregation.mode", o.Aggregation.Mode, b.modes...); err != nil {
			return Options{}, err
		}
	}
	return o, nil
}

// New returns the policy loss of that name. An unknown name is an error that gives the nearest valid one.
func New(name string, o Options) (Policy, error) {
	o, err := Resolve(name, o)
	if err != nil {
		return nil, err
	}
	if err := validate(name, o); err != nil {
		return nil, fmt.Errorf("loss %s: %w", name, err)
	}
	b := builders()[name]
	return &policy{name: name, options: o, algorithm: b.make(&o), builder: b}, nil
}

// validate reports every fault of the named loss's resolved options.
func validate(name string, o Options) error {
	err := o.Validate()
	// gmpo bounds a log ratio, and cispo's authors write 10 for no bound.
	if o.ClipLow > 1 && name != "gmpo" && name != "cispo" {
		err = errors.Join(err, fmt.Errorf("clip_low: %v: must be above 0 and at most 1, or -1 for off: no ratio is below 0", o.ClipLow))
	}
	return err
}
