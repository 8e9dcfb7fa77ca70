package loss

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawBatch draws a micro-batch with every field set; the first row acts.
func drawBatch(t *rapid.T) *Batch {
	b := &Batch{Offsets: []int{0}}
	for i := range rapid.IntRange(2, 5).Draw(t, "rows") {
		mask := rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1}), 1, 6).Draw(t, "mask")
		if i == 0 {
			mask = append(mask, 1)
		}
		for _, m := range mask {
			lp := -rapid.Float64Range(0.05, 3).Draw(t, "logprob")
			near := func(name string) float64 { return lp + rapid.Float64Range(-0.6, 0.6).Draw(t, name) }
			b.Mask = append(b.Mask, m)
			b.Logprobs = append(b.Logprobs, lp)
			b.Proximal = append(b.Proximal, near("proximal"))
			b.Behaviour = append(b.Behaviour, near("behaviour"))
			b.Reference = append(b.Reference, near("reference"))
			b.Advantages = append(b.Advantages, rapid.Float64Range(-2, 2).Draw(t, "advantage"))
			b.Weights = append(b.Weights, rapid.Float64Range(0.2, 2).Draw(t, "weight"))
			b.Entropies = append(b.Entropies, rapid.Float64Range(0, 3).Draw(t, "entropy"))
			b.Values = append(b.Values, rapid.Float64Range(-2, 2).Draw(t, "value"))
			b.OldValues = append(b.OldValues, rapid.Float64Range(-2, 2).Draw(t, "old value"))
			b.Returns = append(b.Returns, rapid.Float64Range(-2, 2).Draw(t, "return"))
		}
		b.Offsets = append(b.Offsets, len(b.Mask))
	}
	return b
}

// rowsOf is the batch's rows in the order given, with the whole's denominators.
func rowsOf(b *Batch, rows []int) *Batch {
	out := &Batch{Offsets: []int{0}, Counts: Count(b.Offsets, b.Mask)}
	for _, i := range rows {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		out.Mask = append(out.Mask, b.Mask[lo:hi]...)
		out.Offsets = append(out.Offsets, len(out.Mask))
		for _, f := range []struct{ to, from *[]float64 }{
			{&out.Logprobs, &b.Logprobs},
			{&out.Proximal, &b.Proximal},
			{&out.Behaviour, &b.Behaviour},
			{&out.Reference, &b.Reference},
			{&out.Advantages, &b.Advantages},
			{&out.Weights, &b.Weights},
			{&out.Entropies, &b.Entropies},
			{&out.Values, &b.Values},
			{&out.OldValues, &b.OldValues},
			{&out.Returns, &b.Returns},
		} {
			if *f.from != nil {
				*f.to = append(*f.to, (*f.from)[lo:hi]...)
			}
		}
	}
	return out
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// modes are the aggregations of a loss.
func modes(name string) []Aggregation {
	if name == "gmpo" {
		return []Aggregation{{Mode: SeqMeanTokenSum}}
	}
	return []Aggregation{
		{Mode: TokenMean}, {Mode: SeqMeanTokenSum}, {Mode: SeqMeanTokenMean}, {Mode: SeqMeanTokenSumNorm, Length: 7},
	}
}

// objectiveConfig has every term.
func objectiveConfig(name string, a Aggregation) Config {
	c := DefaultConfig()
	c.Name, c.Options = name, options{Aggregation: a}.keys(name)
	c.KL.Coef, c.EntropyCoef, c.Value.Aggregation = 0.3, 0.2, Aggregation{Mode: TokenMean}
	c.Value.Clip = 0.48765 // where a drawn value hardly ever ties
	return c
}

func objective(t require.TestingT, name string, a Aggregation) *Objective {
	o, err := NewObjective(objectiveConfig(name, a))
	require.NoError(t, err)
	return o
}

// selects says that a loss chooses tokens over the whole mini-batch; of tokens that are alike, those that come first.
func selects(name string) bool { return name == "clip_cov" || name == "kl_cov" || name == "m2po" }

// corrections are what a run may be configured with beside a loss's own default, which is the zero value.
func corrections() []Correction {
	rules := []string{"mask token ratio 0.8 1.25"}
	return []Correction{
		{},
		{Weight: WeightToken, Normalize: true},
		{Weight: WeightSequence, Normalize: true, LogBound: 20},
		{Of: OfCurrent, Weight: WeightGeometric, Normalize: true, Rules: rules, DropRejected: true},
		{Weight: WeightToken, Rules: rules, DropRejected: true},
		{Rules: []string{"mask mean -k1 -0.1 0.1"}, DropRejected: true, M2Threshold: 0.05},
		{Of: OfCurrent, M2Threshold: 0.05},
	}
}

// inParts is the loss of a mini-batch dealt into micro-batches, each with the mini-batch's counts and its part of the
// plan, as the trainer gives them.
func inParts(t require.TestingT, o *Objective, b *Batch, parts ...[]int) (sum Result) {
	sum.Metrics = Metrics{}
	var plan *Plan
	if o.Span() != SpanRow {
		whole := *b
		whole.Counts = Counts{}
		if o.Span() == SpanFixed {
			whole.Logprobs = nil // nothing of the current policy is needed
		}
		var err error
		plan, err = o.Plan(&whole)
		require.NoError(t, err)
		sum.Metrics.Add(plan.Metrics)
	}
	for _, rows := range parts {
		micro := rowsOf(b, rows)
		if plan != nil {
			micro.Plan = plan.Part(b.Offsets, rows)
		}
		var out Result
		require.NoError(t, o.Loss(micro, &out))
		sum.Loss += out.Loss
		sum.Grad = append(sum.Grad, out.Grad...)
		sum.GradEntropies = append(sum.GradEntropies, out.GradEntropies...)
		sum.GradValues = append(sum.GradValues, out.GradValues...)
		sum.Metrics.Add(out.Metrics)
	}
	return sum
}

// Defects P11 and P12: a split changed what was normalized, rejected and chosen.
func TestSplittingAMiniBatchChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		cut := rapid.IntRange(1, len(b.Offsets)-2).Draw(t, "cut")
		order := rapid.Permutation(upTo(len(b.Offsets)-1)).Draw(t, "order")
		b = rowsOf(b, order)
		order = upTo(len(order))
		alone := *b // the batch is the whole mini-batch, and says so by giving no counts
		alone.Counts = Counts{}
		correction := rapid.SampledFrom(corrections()).Draw(t, "correction")
		empty := rapid.Bool().Draw(t, "count empty rows")
		for _, name := range Names() {
			for _, a := range modes(name) {
				a.CountEmptyRows = empty
				c := objectiveConfig(name, a)
				c.Options = options{Aggregation: a, Correction: correction}.keys(name)
				o, err := NewObjective(c)
				require.NoError(t, err)
				var want Result
				require.NoError(t, o.Loss(&alone, &want))
				wantMetrics := Metrics{}
				wantMetrics.Add(want.Metrics)
				got := inParts(t, o, b, order[:cut], order[cut:])
				require.InDelta(t, want.Loss, got.Loss, 1e-9, "%s %s", name, a.Mode)
				require.InDeltaSlice(t, want.Grad, got.Grad, 1e-12, "%s %s", name, a.Mode)
				require.InDeltaSlice(t, want.GradEntropies, got.GradEntropies, 1e-12)
				require.InDeltaSlice(t, want.GradValues, got.GradValues, 1e-12)
				for metric, v := range wantMetrics {
					require.InDelta(t, v.Value(), got.Metrics[metric].Value(), 1e-9, "%s %s", name, metric)
				}
			}
		}
	})
}

func TestPermutingRowsPermutesGradients(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		order := rapid.Permutation(upTo(len(b.Offsets)-1)).Draw(t, "order")
		moved := rowsOf(b, order)
		for _, name := range Names() {
			if selects(name) { // of tokens that are alike it takes those that come first
				continue
			}
			for _, a := range modes(name) {
				o := objective(t, name, a)
				var want, got Result
				require.NoError(t, o.Loss(b, &want))
				require.NoError(t, o.Loss(moved, &got))
				require.InDelta(t, want.Loss, got.Loss, 1e-9, name)
				for k, i := range order {
					require.InDeltaSlice(t, want.Grad[b.Offsets[i]:b.Offsets[i+1]], got.Grad[moved.Offsets[k]:moved.Offsets[k+1]], 1e-12, name)
				}
			}
		}
	})
}

func TestMaskedTokensNeverMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		dirty := rowsOf(b, upTo(len(b.Offsets)-1))
		dirty.Counts = Counts{}
		for k, m := range b.Mask {
			if m == 0 {
				for _, x := range [][]float64{
					dirty.Logprobs, dirty.Proximal, dirty.Behaviour, dirty.Reference, dirty.Advantages, dirty.Weights,
					dirty.Entropies, dirty.Values, dirty.OldValues, dirty.Returns,
				} {
					x[k] = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 1e6}).Draw(t, "garbage")
				}
			}
		}
		for _, name := range Names() {
			o := objective(t, name, modes(name)[0])
			var want, got Result
			require.NoError(t, o.Loss(b, &want))
			require.NoError(t, o.Loss(dirty, &got))
			require.Equal(t, want.Loss, got.Loss, name)
			require.Equal(t, want.Grad, got.Grad, name)
			require.Equal(t, want.GradEntropies, got.GradEntropies)
			require.Equal(t, want.GradValues, got.GradValues)
			for k, m := range b.Mask {
				if m == 0 {
					require.Zero(t, got.Grad[k])
					require.Zero(t, got.GradEntropies[k])
					require.Zero(t, got.GradValues[k])
				}
			}
		}
	})
}

// slopes are the one-sided differences of the loss by x[k].
func slopes(t require.TestingT, o *Objective, b *Batch, x []float64, k int) (left, right float64) {
	const h = 1e-6
	at := func(v float64) float64 {
		old := x[k]
		x[k] = v
		defer func() { x[k] = old }()
		var out Result
		require.NoError(t, o.Loss(b, &out))
		return out.Loss
	}
	middle := at(x[k])
	return (middle - at(x[k]-h)) / h, (at(x[k]+h) - middle) / h
}

// detached says that part of a loss has no gradient by design, so that differences of its value say nothing.
func detached(name string) bool {
	switch name {
	case "cispo", "tis", "masked_is", "gspo", "ref_kl", "clip_cov":
		return true
	default:
		return false
	}
}

func TestGradientsAgainstDifferences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		for _, name := range Names() {
			if detached(name) {
				continue
			}
			o := objective(t, name, modes(name)[rapid.IntRange(0, len(modes(name))-1).Draw(t, "mode")])
			compareGradients(t, o, b, name)
		}
		c := DefaultConfig()
		c.Name, c.Options = "gspo", options{Level: LevelSequence}.keys("gspo")
		c.KL.Kind, c.KL.Coef, c.Value.Clip = "abs", 0.1, 0.48765
		o, err := NewObjective(c)
		require.NoError(t, err)
		compareGradients(t, o, b, "gspo by sequence")
	})
}

// compareGradients looks at every place where the loss is smooth.
func compareGradients(t *rapid.T, o *Objective, b *Batch, name string) {
	var out Result
	require.NoError(t, o.Loss(b, &out))
	for _, f := range []struct {
		x, grad []float64
		of      func(*Result) []float64
	}{
		{b.Logprobs, out.Grad, func(r *Result) []float64 { return r.Grad }},
		{b.Entropies, out.GradEntropies, func(r *Result) []float64 { return r.GradEntropies }},
		{b.Values, out.GradValues, func(r *Result) []float64 { return r.GradValues }},
	} {
		if len(f.grad) == 0 {
			continue
		}
		for k := range f.x {
			left, right := slopes(t, o, b, f.x, k)
			if math.Abs(left-right) > 1e-4 || jumps(t, o, b, f.x, f.of, k) {
				continue // a kink: a clip begins here, or of equal tokens another is chosen
			}
			require.InDelta(t, (left+right)/2, f.grad[k], 1e-4, "%s token %d", name, k)
		}
	}
}

// jumps says whether the gradient by x[k] is another on either side of x[k]. The loss can be smooth there all the same: a
// token that is chosen only because its key equals another's is chosen at x[k] alone.
func jumps(t require.TestingT, o *Objective, b *Batch, x []float64, grad func(*Result) []float64, k int) bool {
	const h = 1e-6
	at := func(v float64) float64 {
		old := x[k]
		x[k] = v
		defer func() { x[k] = old }()
		var out Result
		require.NoError(t, o.Loss(b, &out))
		return grad(&out)[k]
	}
	below, here, above := at(x[k]-h), at(x[k]), at(x[k]+h)
	return math.Abs(below-here) > 1e-4 && math.Abs(above-here) > 1e-4
}

// A critic that learns at other tokens than the policy adds its own loss, over its own mask and denominators, to the policy's.
func TestACriticMayLearnAtOtherTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		a := rapid.SampledFrom(modes("ppo")).Draw(t, "aggregation")
		c := objectiveConfig("ppo", a)
		c.Value.Aggregation = a
		o, err := NewObjective(c)
		require.NoError(t, err)
		mask := rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1}), len(b.Mask), len(b.Mask)).Draw(t, "tokens of the critic")
		mask[0] = 1
		policy, critic := *b, *b
		policy.Values = nil
		critic.Mask = mask
		var want, own, got Result
		require.NoError(t, o.Loss(&policy, &want))
		require.NoError(t, o.ValueLoss(&critic, &own))
		b.ValueMask, b.ValueCounts = mask, Count(b.Offsets, mask)
		b.Counts = Count(b.Offsets, b.Mask)
		require.NoError(t, o.Loss(b, &got))
		require.InDelta(t, want.Loss+own.Loss, got.Loss, 1e-9)
		require.InDeltaSlice(t, want.Grad, got.Grad, 1e-12)
		require.InDeltaSlice(t, want.GradEntropies, got.GradEntropies, 1e-12)
		require.InDeltaSlice(t, own.GradValues, got.GradValues, 1e-12)
		require.InDelta(t, own.Metrics["value_loss"].Sum, got.Metrics["value_loss"].Sum, 1e-9)
	})
}

// The fault of a critic's loss is named at the tokens where the critic learns.
func TestAFaultWhereTheCriticLearnsIsNamed(t *testing.T) {
	t.Parallel()
	b := &Batch{
		Offsets: []int{0, 3}, Mask: []uint8{0, 1, 1}, ValueMask: []uint8{1, 1, 0},
		Values: []float64{math.NaN(), 1, math.Inf(1)}, OldValues: make([]float64, 3), Returns: make([]float64, 3),
	}
	v := DefaultValue()
	require.ErrorContains(t, v.Add(b, &Result{}), "Values: row 0: token 0 is NaN")
	b.Values[0] = 0
	require.NoError(t, v.Add(b, &Result{}))
}
