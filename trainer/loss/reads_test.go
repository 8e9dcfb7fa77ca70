package loss

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/perturb"
)

// everyCase is a batch in which policies are near and far from each other, with rows without an action token.
func everyCase(random *rand.Rand, finite, masked bool) *Batch {
	b := &Batch{Offsets: []int{0}}
	for i := range 14 {
		for k := range 3 + i%5 {
			lp := -0.05 - 2*random.Float64()
			near := func() float64 { return lp + 2*(random.Float64()-0.5)*[]float64{0.1, 0.8, 5}[k%3] }
			m := uint8(1)
			if k%4 == 3 || i == 2 {
				m = 0
			}
			b.Mask = append(b.Mask, m)
			b.Logprobs, b.Proximal, b.Behaviour = append(b.Logprobs, lp), append(b.Proximal, near()), append(b.Behaviour, near())
			b.Reference = append(b.Reference, near())
			b.Advantages = append(b.Advantages, random.Float64()*4-2)
			b.Weights = append(b.Weights, 0.5+random.Float64())
		}
		b.Offsets = append(b.Offsets, len(b.Mask))
	}
	if masked {
		clear(b.Mask)
	}
	if !finite {
		b.Advantages[0], b.Reference[0], b.Weights[0] = math.Inf(1), math.Inf(1), math.Inf(1)
	}
	return b
}

// outcomeOf is the loss and its gradient, as text; "" for options that are refused.
func outcomeOf(name string, o Options, batches []*Batch) string {
	p, err := New(name, o)
	if err != nil {
		return ""
	}
	var all []any
	for _, b := range batches {
		var out Result
		err := p.Loss(b, &out)
		all = append(all, fmt.Sprint(err), out.Loss, fmt.Sprint(out.Grad))
	}
	return fmt.Sprint(all...)
}

// bases are the settings that others depend on.
func bases(name string) []Options {
	var out []Options
	add := func(o Options) {
		o.CovLow = 0.01
		out = append(out, o)
		o.KLTau, o.Aggregation.CountEmptyRows, o.CovRatio = 0.1, true, 0.5
		out = append(out, o)
	}
	for _, mode := range modes(name) {
		add(Options{Aggregation: mode})
	}
	first := modes(name)[0]
	for _, level := range []string{LevelToken, LevelSequence, LevelSequenceToken} {
		add(Options{Aggregation: first, Level: level})
	}
	for _, c := range []Correction{
		{Weight: WeightNone, Rules: []string{"none"}, M2Threshold: Off},
		{Weight: WeightToken, Rules: []string{"mask mean k1 -0.3 0.3"}},
		{Weight: WeightGeometric, Normalize: true},
		{Weight: WeightSequence, Cap: 3, Rules: []string{"none"}},
	} {
		add(Options{Aggregation: first, Correction: c})
	}
	return out
}

// Defect N16: what a loss is declared to read is what changes its result, for every loss and option.
func TestReadsAreTheOptionsThatMatter(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(3, 4))
			batches := []*Batch{everyCase(random, true, false), everyCase(random, false, false), everyCase(random, true, true)}
			var observed, declared []string
			for _, o := range bases(name) {
				resolved, err := Resolve(name, o)
				require.NoError(t, err)
				reads := Reads(name, resolved)
				declared = append(declared, reads...)
				was := outcomeOf(name, o, batches)
				for _, key := range perturb.Keys(o) {
					texts := []string{OldProximal, OldBehaviour, LevelToken, LevelSequence, TokenMean, SeqMeanTokenSum, OfCurrent, WeightNone, WeightToken}
					perturb.Each(&o, key, texts, func() {
						if now := outcomeOf(name, o, batches); now != "" && now != was {
							observed = append(observed, key)
							require.Contains(t, reads, key, "%+v", resolved)
						}
					})
				}
			}
			slices.Sort(observed)
			slices.Sort(declared)
			require.Equal(t, slices.Compact(observed), slices.Compact(declared), "what is declared under some options matters under some")
		})
	}
}
