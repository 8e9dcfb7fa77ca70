package loss

import (
	"math"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/trainer/stats"
)

// Value is the critic's loss: the squared error to the returns, the larger of the plain error and the error of a value kept within Clip of
// the old value (arXiv 1506.02438; clipping as in OpenAI Baselines' PPO2):
//
//	L_t = max(e(v - R), e(clip(v, v_old - c, v_old + c) - R)),  e(x) = x^2 / 2
type Value struct {
	// Coef multiplies the term.
	Coef float64 `koanf:"coef" default:"1" min:"0"`
	// Clip is how far a value may move from the old value before the clipped error counts: c above. -1 means no clipping.
	Clip float64 `koanf:"clip" default:"0.5" above:"0" off:"-1"`
	// Huber makes e linear beyond this error: Huber (|x| - Huber/2). -1, the default, means none.
	Huber float64 `koanf:"huber" default:"-1" above:"0" off:"-1"`
	// Aggregation of token losses.
	Aggregation Aggregation `koanf:"aggregation"`
}

// DefaultValue clips at 0.5.
func DefaultValue() Value { return check.Default[Value]() }

// Validate reports every fault.
func (v Value) Validate() error { return check.Fields(v) }

// At is the loss of a token, its derivative by the value, and whether the clip took it.
func (v *Value) At(value, old, target float64) (loss, slope float64, clipped bool) {
	loss, slope = v.errorLoss(value - target)
	if v.Clip <= 0 {
		return loss, slope, false
	}
	bounded := min(max(value, old-v.Clip), old+v.Clip)
	other, otherSlope := v.errorLoss(bounded - target)
	if bounded != value {
		otherSlope = 0
	}
	switch {
	case other > loss:
		return other, otherSlope, true
	case other == loss: // a tie: autograd's max shares the gradient
		return loss, (slope + otherSlope) / 2, false
	}
	return loss, slope, false
}

// errorLoss returns e and its derivative.
func (v *Value) errorLoss(x float64) (loss, slope float64) {
	if v.Huber > 0 && math.Abs(x) >= v.Huber {
		return v.Huber * (math.Abs(x) - v.Huber/2), math.Copysign(v.Huber, x)
	}
	return x * x / 2, x
}

// Add adds the value loss to out.Loss and writes out.GradValues. It reads Values, OldValues and Returns,
// at the tokens of ValueMask where that is set.
func (v *Value) Add(b *Batch, out *Result) error {
	if b.ValueMask != nil {
		own := *b
		own.Mask, own.Counts, own.ValueMask = b.ValueMask, b.ValueCounts, nil
		b = &own
	}
	if err := stats.CheckRows(b.Offsets, b.Mask); err != nil {
		return err
	}
	fields := []field{{"Values", b.Values}, {"Returns", b.Returns}}
	if v.Clip > 0 {
		fields = append(fields, field{"OldValues", b.OldValues})
	}
	for _, f := range fields {
		if err := stats.CheckLength(f.name, f.x, len(b.Mask)); err != nil {
			return err
		}
	}
	out.GradValues = stats.Resize(out.GradValues, len(b.Mask))
	clear(out.GradValues)
	if out.Metrics == nil {
		out.Metrics = Metrics{}
	}
	d := v.Aggregation.withCounts(b.Counts, b.Offsets, b.Mask)
	var sum, clippedTokens, count float64
	for i := range len(b.Offsets) - 1 {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		n := stats.Count(b.Mask[lo:hi])
		if n == 0 {
			out.Loss += d.emptyRowLoss(out.GradValues[lo:hi])
			continue
		}
		scale, row := v.Coef*d.rowScale(n), 0.0
		for t := lo; t < hi; t++ {
			if b.Mask[t] == 0 {
				continue
			}
			old := 0.0
			if v.Clip > 0 {
				old = b.OldValues[t]
			}
			loss, slope, clipped := v.At(b.Values[t], old, b.Returns[t])
			row += loss
			out.GradValues[t] = scale * slope
			if clipped {
				clippedTokens++
			}
		}
		if !stats.Finite(row) {
			return firstFault(i, b, fields)
		}
		out.Loss += scale * row
		sum, count = sum+row, count+float64(n)
	}
	out.Metrics["value_loss"] = Mean{sum, count}
	out.Metrics["value_clip_fraction"] = Mean{clippedTokens, count}
	return nil
}
