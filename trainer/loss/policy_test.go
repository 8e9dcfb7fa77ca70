package loss

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// tiny is a batch of two rows; the second has one action token.
func tiny() *Batch {
	return &Batch{
		Offsets:    []int{0, 4, 6},
		Mask:       []uint8{1, 0, 1, 1, 0, 1},
		Logprobs:   []float64{-1, 7, -0.5, -2, math.NaN(), -0.7},
		Proximal:   []float64{-1.1, 0, -0.9, -1.7, 0, -0.6},
		Behaviour:  []float64{-1.3, 0, -0.8, -1.9, 0, -0.5},
		Advantages: []float64{1, 5, -2, 0.5, 9, -1},
		Reference:  []float64{-1.2, 0, -0.6, -1.8, 0, -0.9},
	}
}

func TestDualClip(t *testing.T) {
	t.Parallel()
	p, err := newOf("ppo", options{ClipLow: 0.2, ClipHigh: 0.25})
	require.NoError(t, err)
	for _, c := range []struct{ advantage, d, want float64 }{
		{1, 0.5, -1.25}, {1, -0.5, -0.606531}, {-1, 0.5, 1.648721}, {-1, -0.5, 0.8}, {-1, 2, 3},
	} {
		b := &Batch{
			Offsets: []int{0, 1}, Mask: []uint8{1}, Logprobs: []float64{c.d}, Proximal: []float64{0},
			Advantages: []float64{c.advantage},
		}
		var out Result
		require.NoError(t, p.Loss(b, &out))
		require.InDelta(t, c.want, out.Loss, 1e-6)
	}
}

func TestDecoupledPPOWeighsByThePolicyThatSampled(t *testing.T) {
	t.Parallel()
	p, err := newOf("decoupled_ppo", options{})
	require.NoError(t, err)
	b := tiny()
	b.Behaviour[5] = -4 // a weight far above 5
	out := Result{Tokens: &Tokens{}}
	require.NoError(t, p.Loss(b, &out))
	require.InDelta(t, math.Exp(0.2), out.Tokens.Weight[0], 1e-12)
	require.Equal(t, []uint8{1, 0, 1, 1, 0, 0}, out.Tokens.Keep)
	require.Zero(t, out.Grad[5])
	require.Equal(t, 0.25, out.Metrics["rejected"].Value())
}

func TestAWeightBeyondNumbersIsRejectedLikeAnyOther(t *testing.T) {
	t.Parallel()
	p, err := newOf("decoupled_ppo", options{})
	require.NoError(t, err)
	b := tiny()
	b.Behaviour[5] = -2000
	var out Result
	require.NoError(t, p.Loss(b, &out))
	require.Zero(t, out.Grad[5])
	require.False(t, math.IsNaN(out.Loss))
	require.False(t, math.IsNaN(out.Metrics["weight"].Value()))
}

// Defect P11: counts given by the trainer were of the tokens before rejection, so that drop_rejected did nothing.
func TestDropRejectedTakesThemOutOfTheDenominators(t *testing.T) {
	t.Parallel()
	b := tiny()
	b.Behaviour[5] = -4 // rejected: the second row's only action token, one of four
	for _, c := range []struct {
		a           Aggregation
		count, drop float64 // what the first row's three tokens are divided by
	}{
		{Aggregation{Mode: TokenMean}, 4, 3},
		{Aggregation{Mode: SeqMeanTokenSum}, 2, 1},
		{Aggregation{Mode: SeqMeanTokenSum, CountEmptyRows: true}, 2, 2},
		{Aggregation{Mode: SeqMeanTokenMean}, 3 * 2, 3 * 1},
		{Aggregation{Mode: SeqMeanTokenMean, CountEmptyRows: true}, 3 * 2, 3 * 2},
		{Aggregation{Mode: SeqMeanTokenSumNorm, Length: 7}, 7, 7},
	} {
		for drop, denominator := range map[bool]float64{false: c.count, true: c.drop} {
			config := DefaultConfig()
			config.Name = "decoupled_ppo"
			config.Options = options{Aggregation: c.a, Correction: Correction{DropRejected: drop}}.keys("decoupled_ppo")
			o, err := NewObjective(config)
			require.NoError(t, err)
			got := inParts(t, o, b, []int{0}, []int{1})
			d := b.Logprobs[0] - b.Proximal[0]
			weight := math.Exp(b.Proximal[0] - b.Behaviour[0])
			require.InDelta(t, -weight*math.Exp(d)*b.Advantages[0]/denominator, got.Grad[0], 1e-12, "%+v, drop %v", c.a, drop)
			require.Zero(t, got.Grad[5])
		}
	}
}

// Defect P11: counts given by the trainer left the empty rows out.
func TestEmptyRowsCountWhereAsked(t *testing.T) {
	t.Parallel()
	b := &Batch{Offsets: []int{0, 2, 4}, Mask: []uint8{0, 1, 0, 0}}
	for _, x := range []*[]float64{&b.Logprobs, &b.Proximal, &b.Behaviour, &b.Advantages} {
		*x = []float64{1, 1, 1, 1}
	}
	for count, want := range map[bool]float64{false: -1, true: -0.5} {
		o, err := NewObjective(Config{
			Name: "ppo", KL: DefaultKL(), Value: DefaultValue(), Duration: DefaultDuration(),
			Options: options{Aggregation: Aggregation{Mode: SeqMeanTokenMean, CountEmptyRows: count}}.keys("ppo"),
		})
		require.NoError(t, err)
		require.Equal(t, want, inParts(t, o, b, []int{0}, []int{1}).Loss)
	}
}

func TestAMicroBatchWithoutItsPlanIsRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{
		"m2po": {}, "clip_cov": {}, "kl_cov": {}, "ppo": {Correction: Correction{Weight: WeightToken, Normalize: true}},
		"decoupled_ppo": {Correction: Correction{DropRejected: true}},
	} {
		p, err := newOf(name, o)
		require.NoError(t, err)
		b := tiny()
		b.Counts = Counts{Tokens: 9, Rows: 4}
		var fault *stats.BatchError
		require.ErrorAs(t, p.Loss(b, &Result{}), &fault, name)
		require.Equal(t, "Plan", fault.Field)
		b.Plan = &Plan{Mask: b.Mask[:3]}
		require.ErrorAs(t, p.Loss(b, &Result{}), &fault, name)
		require.Equal(t, "Plan", fault.Field)
	}
}

func TestBadInputNamesTheFieldAndTheRow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, field string
		row         int
		spoil       func(b *Batch)
	}{
		{"ppo", "Offsets", -1, func(b *Batch) { b.Offsets = nil }},
		{"ppo", "Offsets", 0, func(b *Batch) { b.Offsets = []int{0, -1, 6} }},
		{"ppo", "Mask", 1, func(b *Batch) { b.Mask[4] = 7 }},
		{"ppo", "Logprobs", -1, func(b *Batch) { b.Logprobs = nil }},
		{"ppo", "Logprobs", 1, func(b *Batch) { b.Logprobs[5] = math.NaN() }},
		{"ppo", "Proximal", -1, func(b *Batch) { b.Proximal = b.Proximal[:2] }},
		{"ppo", "Behaviour", -1, func(b *Batch) { b.Proximal, b.Behaviour = nil, nil }},
		{"ppo", "Advantages", 0, func(b *Batch) { b.Advantages[2] = math.Inf(1) }},
		{"ppo", "Advantages", -1, func(b *Batch) { b.Advantages = nil }},
		{"decoupled_ppo", "Behaviour", 0, func(b *Batch) { b.Behaviour[0] = math.NaN() }},
		{"decoupled_ppo", "Proximal", -1, func(b *Batch) { b.Proximal = nil }},
		{"decoupled_ppo", "Proximal", 1, func(b *Batch) { b.Proximal[5] = math.NaN() }},
		{"ref_kl", "Reference", -1, func(b *Batch) { b.Reference = nil }},
		{"ref_kl", "Reference", 1, func(b *Batch) { b.Reference[5] = math.Inf(-1) }},
		{"gmpo", "Logprobs", 0, func(b *Batch) { b.Logprobs[0] = math.NaN() }},
	} {
		b := tiny()
		c.spoil(b)
		p, err := newOf(c.name, options{})
		require.NoError(t, err)
		err = p.Loss(b, &Result{})
		var fault *stats.BatchError
		require.ErrorAs(t, err, &fault, "%s %s", c.name, c.field)
		require.Equal(t, c.field, fault.Field, "%s: %v", c.name, err)
		require.Equal(t, c.row, fault.Row, "%s: %v", c.name, err)
	}
	for field, spoil := range map[string]func(*Batch){
		"Behaviour": func(b *Batch) { b.Behaviour[5] = math.Inf(1) },
		"Proximal":  func(b *Batch) { b.Proximal[5] = math.NaN() },
	} {
		b := tiny()
		spoil(b)
		p, err := newOf("decoupled_ppo", options{})
		require.NoError(t, err)
		require.ErrorContains(t, p.Loss(b, &Result{}), field+": row 1: token 1 is", "counted within its row")
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	t.Parallel()
	_, err := newOf("decopled_ppo", options{})
	require.ErrorContains(t, err, `did you mean "decoupled_ppo"?`)
	_, err = newOf("ppo", options{
		Old: "older", DualClip: 0.5, Aggregation: Aggregation{Mode: SeqMeanTokenSumNorm},
		Correction: Correction{Rules: []string{"mask token ratios - 5", "drop"}, Cap: -3},
	})
	for _, key := range []string{
		`old: unknown "older"`, "dual_clip: 0.5", "aggregation.length: 0", `correction.rules: 0: "mask token ratios - 5"`,
		`did you mean "ratio"?`, `correction.rules: 1: "drop"`, "correction.cap: -3",
	} {
		require.ErrorContains(t, err, key)
	}
	_, err = newOf("gmpo", options{Aggregation: Aggregation{Mode: TokenMean}})
	require.ErrorContains(t, err, SeqMeanTokenSum)
	c := DefaultConfig()
	c.Name, c.KL.Kind, c.Value.Clip, c.EntropyCoef, c.Duration.Cap = "ppoo", "k4", -2, math.NaN(), 0
	err = c.Validate()
	for _, key := range []string{"name: ", "kl.kind: ", "value.clip: -2", "entropy_coef: NaN", "duration.cap: 0"} {
		require.ErrorContains(t, err, key)
	}
	for _, name := range Names() {
		require.NoError(t, check.Own(Keys(name)), name)
	}
}

func TestEachKeyIsRefusedOutsideItsRange(t *testing.T) {
	t.Parallel()
	off := func(ok bool) (good, bad []float64) {
		if ok {
			return []float64{Off}, nil
		}
		return nil, []float64{Off}
	}
	for _, c := range []struct {
		key  string
		off  bool // whether -1 turns it off
		most float64
		of   func() (keys any, value *float64)
	}{
		{"clip_low", true, 1, func() (any, *float64) { k := Keys("ppo").(*PPO); return k, &k.ClipLow }},
		{"clip_low", true, 10, func() (any, *float64) { k := Keys("cispo").(*CISPO); return k, &k.ClipLow }},
		{"clip_low", true, 10, func() (any, *float64) { k := Keys("gmpo").(*GMPO); return k, &k.ClipLow }},
		{"clip_high", true, 10, func() (any, *float64) { k := Keys("ppo").(*PPO); return k, &k.ClipHigh }},
		{"log_ratio_clamp", true, 50, func() (any, *float64) { k := Keys("ppo").(*PPO); return k, &k.LogRatioClamp }},
		{"dual_clip", true, 50, func() (any, *float64) { k := Keys("ppo").(*PPO); return k, &k.DualClip }},
		{"tau_positive", false, 50, func() (any, *float64) { k := Keys("sapo").(*SAPO); return k, &k.TauPositive }},
		{"tau_negative", false, 50, func() (any, *float64) { k := Keys("sapo").(*SAPO); return k, &k.TauNegative }},
		{"mask_low", true, 1, func() (any, *float64) { k := Keys("ref_kl").(*Distillation); return k, &k.MaskLow }},
		{"mask_high", true, 1, func() (any, *float64) { k := Keys("dppo").(*Trust); return k, &k.MaskHigh }},
		{"advantage_tau", false, 50, func() (any, *float64) { k := Keys("dppo").(*Trust); return k, &k.AdvantageTau }},
		{"kl_tau", true, 50, func() (any, *float64) { k := Keys("reinforce").(*Reinforce); return k, &k.KLTau }},
		{"cov_ratio", false, 1, func() (any, *float64) { k := Keys("clip_cov").(*ClipCov); return k, &k.CovRatio }},
		{"cov_coef", false, 50, func() (any, *float64) { k := Keys("kl_cov").(*KLCov); return k, &k.CovCoef }},
	} {
		good, bad := off(c.off)
		for _, v := range append(bad, -2, -0.5, math.NaN(), math.Inf(-1), math.Inf(1)) {
			keys, value := c.of()
			*value = v
			require.ErrorContains(t, check.Own(keys), fmt.Sprintf("%s: %v", c.key, v))
		}
		for _, v := range append(good, c.most) {
			keys, value := c.of()
			*value = v
			require.NoError(t, check.Own(keys), "%s: %v", c.key, v)
		}
		if c.most == 1 {
			keys, value := c.of()
			*value = 1.5
			require.ErrorContains(t, check.Own(keys), c.key+": 1.5")
		}
	}
}

// A bound of dppo that is off holds no token back: -1 was once read as a bound of -1, beyond which every token was.
func TestABoundOfDPPOThatIsOffHoldsNothingBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dppo", "ipo", "ref_kl"} {
		p, err := newOf(name, options{MaskLow: Off, MaskHigh: Off})
		require.NoError(t, err)
		var out Result
		require.NoError(t, p.Loss(tiny(), &out))
		require.Zero(t, out.Metrics["is_masked"].Value(), name)
		require.NotZero(t, out.Grad[0], name)
	}
}

// A weight of 0 is as little as can be, and no NaN: gmpo takes its logarithm.
func TestGMPOTakesAWeightOfZero(t *testing.T) {
	t.Parallel()
	p, err := newOf("gmpo", options{})
	require.NoError(t, err)
	b := tiny()
	b.Weights = []float64{0, 1, 1, 1, 1, 1}
	var out Result
	require.NoError(t, p.Loss(b, &out))
	require.False(t, math.IsNaN(out.Loss))
	require.NotZero(t, out.Grad[0])
	b.Weights[0] = 1
	var whole Result
	require.NoError(t, p.Loss(b, &whole))
	require.InEpsilon(t, 1e-10, math.Pow(out.Grad[0]/whole.Grad[0], 3), 1e-6, "the geometric mean over three tokens")
}

// A token that no advantage pushes is not held by the clip, however far its ratio went.
func TestGMPOCountsNoClipWithoutAnAdvantage(t *testing.T) {
	t.Parallel()
	p, err := newOf("gmpo", options{})
	require.NoError(t, err)
	b := tiny()
	copy(b.Advantages, []float64{0, 5, 1, 1, 9, -1})
	copy(b.Logprobs, []float64{-0.1, 7, -0.9, -1.7, math.NaN(), -3})
	out := Result{Tokens: &Tokens{}}
	require.NoError(t, p.Loss(b, &out))
	require.Equal(t, []uint8{0, 0, 0, 0, 1}, out.Tokens.Clipped[1:])
	require.Zero(t, out.Metrics["clip_fraction"].Value())
	require.Equal(t, 0.25, out.Metrics["clip_fraction_low"].Value(), "the last token's")
	require.Zero(t, out.Grad[5])
}

func TestTheCovarianceOfASingleTokenIsNothing(t *testing.T) {
	t.Parallel()
	var c covariance
	c.computeMeans([]float64{-3, -0.5}, []float64{9, 2}, []uint8{0, 1})
	require.Zero(t, c.covarianceAt(-0.5, 2))
	c.computeMeans([]float64{-3, -0.5}, []float64{9, 2}, []uint8{1, 1})
	require.Equal(t, 3.5*-1.25, c.covarianceAt(-3, 9))
}

func TestMetricsOfMicroBatchesAddUp(t *testing.T) {
	t.Parallel()
	m := Metrics{}
	m.Add(Metrics{"a": {Sum: 2, Count: 1}, "b": {Sum: -1, Count: 2}})
	m.Add(Metrics{"a": {Sum: 4, Count: 5}})
	require.Equal(t, Metrics{"a": {Sum: 6, Count: 6}, "b": {Sum: -1, Count: 2}}, m)
	require.InDelta(t, 1, m["a"].Value(), 0)
	require.Zero(t, Mean{}.Value())
}

func TestEveryLossRunsOnItsDefaults(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		p, err := newOf(name, options{})
		require.NoError(t, err)
		require.Equal(t, name, p.Name())
		var out Result
		require.NoError(t, p.Loss(tiny(), &out))
		require.False(t, math.IsNaN(out.Loss))
		if name != "gspo" { // whose clip is narrower than this batch's ratios
			require.NotZero(t, out.Grad[0], name)
		}
	}
}

func TestAnEmptyBatchIsNothingUnlessAskedToBeNaN(t *testing.T) {
	t.Parallel()
	b := tiny()
	clear(b.Mask)
	for _, nan := range []bool{false, true} {
		p, err := newOf("ppo", options{Aggregation: Aggregation{EmptyNaN: nan}})
		require.NoError(t, err)
		var out Result
		require.NoError(t, p.Loss(b, &out))
		require.Equal(t, nan, math.IsNaN(out.Loss))
		for _, g := range out.Grad {
			require.Zero(t, g)
		}
	}
}

func TestAdaptiveKLFollowsItsTarget(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.KL.Kind, c.KL.Coef, c.KL.In, c.KL.Target, c.KL.Horizon = "k1", 0.1, KLInReward, 0.01, 10
	o, err := NewObjective(c)
	require.NoError(t, err)
	require.True(t, o.NeedsReference())
	rewards := []float64{0, 1}
	kl, err := o.PenalizeRewards([]int{0, 2}, []uint8{1, 1}, nil, rewards, []float64{-1, -1}, []float64{-1.5, -1.5})
	require.NoError(t, err)
	require.InDelta(t, 0.5, kl, 1e-12)
	require.InDeltaSlice(t, []float64{-0.05, 0.95}, rewards, 1e-12)
	require.InDelta(t, 0.1*(1+0.2/10), o.KLCoef(), 1e-12)
}

// Finding 14.3: a step over more than five horizons turned the coefficient negative, and then rewarded what it was to punish.
func TestPropertyAStepChangesTheKLCoefficientByAFifthAtMost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := DefaultConfig()
		c.KL.Kind, c.KL.In, c.KL.Coef = "k1", KLInReward, rapid.Float64Range(1e-9, 1e3).Draw(t, "coef")
		c.KL.Target, c.KL.Horizon = rapid.Float64Range(1e-6, 10).Draw(t, "target"), rapid.Float64Range(0.1, 100).Draw(t, "horizon")
		o, err := NewObjective(c)
		require.NoError(t, err)
		rows := rapid.IntRange(1, 600).Draw(t, "rows")
		offsets := make([]int, rows+1)
		for i := range offsets {
			offsets[i] = i
		}
		current, reference := make([]float64, rows), slices.Repeat([]float64{rapid.Float64Range(-5, 5).Draw(t, "reference")}, rows)
		for range 5 {
			before := o.KLCoef()
			_, err := o.PenalizeRewards(offsets, slices.Repeat([]uint8{1}, rows), nil, make([]float64, rows), current, reference)
			require.NoError(t, err)
			require.GreaterOrEqual(t, o.KLCoef(), 0.8*before*(1-1e-12))
			require.LessOrEqual(t, o.KLCoef(), 1.2*before*(1+1e-12))
		}
	})
}

// Finding 14.3: contexts of a trajectory are no trajectories: where a context begins changes neither the mean KL nor the coefficient.
func TestTheMeanKLIsOfTrajectories(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.KL.Kind, c.KL.Coef, c.KL.In, c.KL.Target, c.KL.Horizon = "k1", 0.1, KLInReward, 0.3, 10
	mask, current, reference := []uint8{1, 0, 1, 1, 1}, []float64{-1, 0, -2, -1, -3}, []float64{-1.5, 0, -2.25, -1.75, -3}
	var got, coefs [2]float64
	for i, cut := range []struct{ offsets, trajectory []int }{{[]int{0, 4, 5}, nil}, {[]int{0, 1, 3, 4, 5}, []int{0, 0, 0, 1}}} {
		o, err := NewObjective(c)
		require.NoError(t, err)
		got[i], err = o.PenalizeRewards(cut.offsets, mask, cut.trajectory, make([]float64, 5), current, reference)
		require.NoError(t, err)
		coefs[i] = o.KLCoef()
	}
	require.InDelta(t, 0.25, got[0], 1e-12)
	require.InDelta(t, got[0], got[1], 1e-12)
	require.InDelta(t, coefs[0], coefs[1], 1e-12)
}

func TestDurationWeightsHaveMeanOne(t *testing.T) {
	t.Parallel()
	d := Duration{Share: 1, Floor: 0.1, Cap: 10}
	out := make([]float64, 4)
	require.NoError(t, d.Weights([]int{0, 2, 4}, []uint8{1, 1, 0, 1}, []float64{0, 2, math.NaN(), 0.9}, out))
	require.InDeltaSlice(t, []float64{0.1, 2, 0, 0.9}, out, 1e-12)
	require.NoError(t, DefaultDuration().Weights([]int{0, 2, 4}, []uint8{1, 1, 0, 1}, []float64{0, 2, 0, 0.9}, out))
	require.Equal(t, []float64{1, 1, 0, 1}, out, "off by default")
	capped := Duration{Share: 1, Floor: 0.1, Cap: 1.25}
	require.NoError(t, capped.Weights([]int{0, 2}, []uint8{1, 1}, []float64{1, 3}, out[:2]))
	require.InDeltaSlice(t, []float64{0.5 / 0.875, 1.25 / 0.875}, out[:2], 1e-12, "the mean before the cap is 2")
	var fault *stats.BatchError
	require.ErrorAs(t, d.Weights([]int{0, 2}, []uint8{1, 1}, []float64{0, -1}, out[:2]), &fault)
	require.Equal(t, 0, fault.Row)
}
