package loss

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
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

// outcomeOf is the loss and its gradient, as text; "" for keys that are refused.
func outcomeOf(name string, keys any, batches []*Batch) string {
	p, err := New(name, keys)
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
func bases(name string) []any {
	var out []any
	add := func(o options) {
		o.CovLow = 0.01
		out = append(out, o.keys(name))
		o.KLTau, o.Aggregation.CountEmptyRows, o.CovRatio = 0.1, true, 0.5
		out = append(out, o.keys(name))
	}
	for _, mode := range modes(name) {
		add(options{Aggregation: mode})
	}
	first := modes(name)[0]
	for _, level := range []string{LevelToken, LevelSequence, LevelSequenceToken} {
		add(options{Aggregation: first, Level: level})
	}
	for _, c := range []Correction{
		{Weight: WeightNone, Rules: []string{"none"}, M2Threshold: Off},
		{Weight: WeightToken, Rules: []string{"mask mean k1 -0.3 0.3"}},
		{Weight: WeightGeometric, Normalize: true},
		{Weight: WeightSequence, Cap: 3, Rules: []string{"none"}},
	} {
		add(options{Aggregation: first, Correction: c})
	}
	return out
}

// unreadKey says why nothing depends on a key of a loss.
func unreadKey(keys any, key string) string {
	shared := SharedOf(keys)
	if rest, ok := strings.CutPrefix(key, "aggregation."); ok {
		return shared.Aggregation.Unread(rest)
	}
	if rest, ok := strings.CutPrefix(key, "correction."); ok {
		return shared.Correction.Unread(rest)
	}
	return ""
}

// Defect N16: each key that a loss has changes its result under some of the others, for every loss, and none does that a section says
// nothing reads.
func TestEveryKeyOfALossMatters(t *testing.T) {
	t.Parallel()
	texts := []string{OldProximal, OldBehaviour, LevelToken, LevelSequence, TokenMean, SeqMeanTokenSum, OfCurrent, WeightNone, WeightToken}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(3, 4))
			batches := []*Batch{everyCase(random, true, false), everyCase(random, false, false), everyCase(random, true, true)}
			has := perturb.Keys(reflect.ValueOf(Keys(name)).Elem().Interface())
			if name == "gmpo" { // its one mode is refused to be another
				has = slices.DeleteFunc(has, func(key string) bool { return strings.HasPrefix(key, "aggregation.") })
			}
			var observed []string
			for _, keys := range bases(name) {
				was := outcomeOf(name, keys, batches)
				require.NotEmpty(t, was)
				for _, key := range has {
					unread := unreadKey(keys, key)
					perturb.Each(keys, key, texts, func() {
						if now := outcomeOf(name, keys, batches); now != "" && now != was {
							observed = append(observed, key)
							require.Empty(t, unread, "%s under %+v", key, keys)
						}
					})
				}
			}
			slices.Sort(has)
			slices.Sort(observed)
			require.Equal(t, has, slices.Compact(observed), "what a loss has matters under some")
		})
	}
}
