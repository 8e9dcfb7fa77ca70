package advantage

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawBatch draws a batch with every field set: groups of trajectories of rows, some rows without an action token.
func drawBatch(t *rapid.T) *Batch {
	b := &Batch{Offsets: []int{0}}
	number := rapid.Float64Range(-2, 2)
	groups := rapid.IntRange(1, 3).Draw(t, "groups")
	trajectory := 0
	for g := range groups {
		for range rapid.IntRange(2, 4).Draw(t, "trajectories") {
			baseline := number.Draw(t, "baseline")
			for step := range rapid.IntRange(1, 3).Draw(t, "rows") {
				mask := rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1}), 1, 6).Draw(t, "mask")
				if step == 0 {
					mask = append(mask, 1, 1) // every trajectory acts
				}
				for _, m := range mask {
					b.Mask = append(b.Mask, m)
					b.Rewards = append(b.Rewards, number.Draw(t, "reward"))
					b.Values = append(b.Values, number.Draw(t, "value"))
					b.StateValues = append(b.StateValues, b.Values[len(b.Values)-1])
					b.ProcessRewards = append(b.ProcessRewards, number.Draw(t, "process"))
					b.Logprobs = append(b.Logprobs, -rapid.Float64Range(0.01, 3).Draw(t, "logprob"))
					b.ProbSquares = append(b.ProbSquares, rapid.Float64Range(0.1, 1).Draw(t, "squares"))
					b.Weights = append(b.Weights, rapid.Float64Range(0.5, 1.5).Draw(t, "weight"))
					b.Tokens = append(b.Tokens, rapid.Int32Range(0, 2).Draw(t, "token"))
				}
				b.Offsets = append(b.Offsets, len(b.Mask))
				b.Group = append(b.Group, 10+g)
				b.Trajectory = append(b.Trajectory, 100+trajectory)
				b.Step = append(b.Step, step)
				b.Bootstrap = append(b.Bootstrap, number.Draw(t, "bootstrap"))
				b.Baselines = append(b.Baselines, baseline)
				b.Agent = append(b.Agent, trajectory%2)
				b.Episode = append(b.Episode, trajectory/2)
			}
			trajectory++
		}
	}
	return b
}

// rearranged is the batch with its rows in another order.
func rearranged(b *Batch, order []int) *Batch {
	out := &Batch{Offsets: []int{0}}
	for _, i := range order {
		lo, hi := b.Offsets[i], b.Offsets[i+1]
		out.Mask = append(out.Mask, b.Mask[lo:hi]...)
		out.Rewards = append(out.Rewards, b.Rewards[lo:hi]...)
		out.Values = append(out.Values, b.Values[lo:hi]...)
		out.StateValues = append(out.StateValues, b.StateValues[lo:hi]...)
		out.ProcessRewards = append(out.ProcessRewards, b.ProcessRewards[lo:hi]...)
		out.Logprobs = append(out.Logprobs, b.Logprobs[lo:hi]...)
		out.ProbSquares = append(out.ProbSquares, b.ProbSquares[lo:hi]...)
		out.Weights = append(out.Weights, b.Weights[lo:hi]...)
		out.Tokens = append(out.Tokens, b.Tokens[lo:hi]...)
		out.Offsets = append(out.Offsets, len(out.Mask))
		out.Group = append(out.Group, b.Group[i])
		out.Trajectory = append(out.Trajectory, b.Trajectory[i])
		out.Step = append(out.Step, b.Step[i])
		out.Bootstrap = append(out.Bootstrap, b.Bootstrap[i])
		out.Baselines = append(out.Baselines, b.Baselines[i])
		out.Agent = append(out.Agent, b.Agent[i])
		out.Episode = append(out.Episode, b.Episode[i])
	}
	return out
}

func rowsOf(b *Batch, x []float64) [][]float64 {
	var out [][]float64
	for i := range b.Rows() {
		out = append(out, x[b.Offsets[i]:b.Offsets[i+1]])
	}
	return out
}

func mustEstimate(t require.TestingT, name string, o options, b *Batch) *Result {
	e, err := newOf(name, o)
	require.NoError(t, err)
	require.Equal(t, name, e.Name())
	out := &Result{}
	require.NoError(t, e.Estimate(b, out), name)
	require.Len(t, out.Advantages, len(b.Mask))
	require.Len(t, out.Returns, len(b.Mask))
	return out
}

// forms are the option sets that properties are checked under.
func forms() map[string]options {
	gae, raw, discount := defaultOptions(), defaultOptions(), defaultOptions()
	gae.StepCredit, gae.TokenCredit, gae.Gamma, gae.Lambda = ByGAE, ByGAE, 0.9, 0.8
	raw.Whiten, raw.DivideByStd, raw.Single = false, false, SingleReward
	discount.Gamma, discount.StepGamma, discount.StepLambda = 0.9, 0.8, 0.7
	discount.LengthPenalty = LengthPenalty{OutputTokens: 0.3, InputTokens: 0.2, Turns: 0.1}
	process := defaultOptions()
	process.NormalizeProcess = true
	return map[string]options{"process": process, "default": defaultOptions(), "gae": gae, "raw": raw, "discount": discount}
}

func TestPermutingRowsPermutesResults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		order := rapid.Permutation(upTo(b.Rows())).Draw(t, "order")
		moved := rearranged(b, order)
		for form, o := range forms() {
			for _, name := range Names() {
				if name == "rae" { // a running mean, which the order is part of
					continue
				}
				want := rowsOf(b, mustEstimate(t, name, o, b).Advantages)
				got := rowsOf(moved, mustEstimate(t, name, o, moved).Advantages)
				for k, i := range order {
					require.Len(t, got[k], len(want[i]))
					for j, w := range want[i] { // max_rl divides by a mean that may be next to nothing
						require.InDelta(t, w, got[k][j], 1e-6*max(1, math.Abs(w)), "%s %s row %d", name, form, i)
					}
				}
			}
		}
	})
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// A batch so large that several processors share it.
func TestPartsOfALargeBatchDoNotShow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	b := &Batch{Offsets: []int{0}}
	for i := range 128 {
		for k := range 1000 + random.IntN(200) {
			m := uint8(min(1, k/(1+i%7)%4))
			b.Mask = append(b.Mask, m)
			for _, x := range []*[]float64{&b.Rewards, &b.Values, &b.StateValues, &b.ProcessRewards, &b.ProbSquares, &b.Weights} {
				*x = append(*x, random.Float64())
			}
			b.Logprobs = append(b.Logprobs, -random.Float64())
			b.Tokens = append(b.Tokens, random.Int32N(3))
		}
		b.Offsets = append(b.Offsets, len(b.Mask))
		b.Group, b.Trajectory, b.Step = append(b.Group, i/16), append(b.Trajectory, i/2), append(b.Step, i%2)
		b.Bootstrap, b.Baselines = append(b.Bootstrap, 0.1), append(b.Baselines, 0.5)
		b.Agent, b.Episode = append(b.Agent, 0), append(b.Episode, i)
	}
	order := upTo(b.Rows())
	slices.Reverse(order)
	moved := rearranged(b, order)
	for form, o := range forms() {
		for _, name := range Names() {
			if name == "rae" {
				continue
			}
			want := rowsOf(b, mustEstimate(t, name, o, b).Advantages)
			got := rowsOf(moved, mustEstimate(t, name, o, moved).Advantages)
			for k, i := range order {
				for at, a := range want[i] {
					if !(math.Abs(a-got[k][at]) < 1e-8) {
						require.Failf(t, "differs", "%s %s row %d token %d: %v, want %v", name, form, i, at, got[k][at], a)
					}
				}
			}
		}
	}
}

func TestMaskedTokensNeverMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		dirty := rearranged(b, upTo(b.Rows()))
		for k, m := range b.Mask {
			if m == 0 {
				for _, x := range [][]float64{
					dirty.Rewards, dirty.Values, dirty.StateValues, dirty.ProcessRewards, dirty.Logprobs, dirty.ProbSquares, dirty.Weights,
				} {
					x[k] = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 1e6}).Draw(t, "garbage")
				}
			}
		}
		for form, o := range forms() {
			for _, name := range Names() {
				want, got := mustEstimate(t, name, o, b), mustEstimate(t, name, o, dirty)
				require.Equal(t, want.Advantages, got.Advantages, "%s %s", name, form)
				require.Equal(t, want.Returns, got.Returns, "%s %s", name, form)
				for k, m := range b.Mask {
					if m == 0 {
						require.Zero(t, got.Advantages[k], name)
						require.Zero(t, got.Returns[k], name)
					}
				}
			}
		}
	})
}

func TestAFullyMaskedRowContributesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		// A trajectory without an action token, in the first group.
		more := rearranged(b, append(upTo(b.Rows()), 0))
		last := more.Rows() - 1
		more.Trajectory[last] = -1
		clear(more.Mask[more.Offsets[last]:])
		for form, o := range forms() {
			for _, name := range Names() {
				want, got := mustEstimate(t, name, o, b), mustEstimate(t, name, o, more)
				require.InDeltaSlice(t, want.Advantages, got.Advantages[:len(want.Advantages)], 1e-9, "%s %s", name, form)
				for _, a := range got.Advantages[len(want.Advantages):] {
					require.Zero(t, a)
				}
			}
		}
	})
}

func TestAnOutcomeReachesEveryEarlierTurn(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		if name == "vineppo" { // through the values of states alone: TestVinePPOByHand
			continue
		}
		o := defaultOptions()
		o.Whiten = false
		b := &Batch{
			Offsets: []int{0, 6, 12}, Mask: []uint8{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
			Rewards: []float64{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, Group: []int{0, 0},
			Values: make([]float64, 12), Baselines: []float64{0, 0}, Logprobs: make([]float64, 12), Tokens: make([]int32, 12),
			Agent: []int{0, 0}, Episode: []int{0, 0},
		}
		for k := range b.Logprobs {
			b.Logprobs[k] = -1
		}
		out := mustEstimate(t, name, o, b)
		for _, k := range []int{1, 3, 5} {
			require.Positive(t, out.Advantages[k], "%s token %d", name, k)
		}
	}
}

// The naive forms are sums as the papers write them, quadratic in the tokens.
func TestGAEAgainstTheSumOfItsTerms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		o := defaultOptions()
		o.Whiten = false
		o.Gamma, o.Lambda = rapid.Float64Range(0, 1).Draw(t, "gamma"), rapid.Float64Range(0, 1).Draw(t, "lambda")
		out := mustEstimate(t, "gae", o, b)
		for _, id := range slices.Compact(slices.Clone(b.Trajectory)) {
			var tokens []int
			bootstrap := 0.0
			for i, k := range b.Trajectory {
				if k != id {
					continue
				}
				bootstrap = b.Bootstrap[i]
				for k := b.Offsets[i]; k < b.Offsets[i+1]; k++ {
					if b.Mask[k] != 0 {
						tokens = append(tokens, k)
					}
				}
			}
			for j := range tokens {
				want := 0.0
				for l := j; l < len(tokens); l++ {
					next := bootstrap
					if l+1 < len(tokens) {
						next = b.Values[tokens[l+1]]
					}
					delta := b.Rewards[tokens[l]] + o.Gamma*next - b.Values[tokens[l]]
					want += math.Pow(o.Gamma*o.Lambda, float64(l-j)) * delta
				}
				require.InDelta(t, want, out.Advantages[tokens[j]], 1e-9)
				require.InDelta(t, want+b.Values[tokens[j]], out.Returns[tokens[j]], 1e-9)
			}
		}
	})
}
