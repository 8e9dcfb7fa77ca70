package learner

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/metrics"
)

// draws are tokens of many softmaxes: the logits and the one that was drawn by some rule.
func draws(t *testing.T, rule func(random *rand.Rand, logits []float64) (policy, behaviour float64)) *mismatchStats {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	const n = 2000
	var policy, behaviour []float64
	mask, versions := make([]uint8, n), make([]int32, n)
	for i := range n {
		logits := make([]float64, 40)
		for j := range logits {
			logits[j] = 3 * random.NormFloat64()
		}
		p, b := rule(random, logits)
		policy, behaviour = append(policy, p), append(behaviour, b)
		mask[i], versions[i] = 1, 7
	}
	// What is masked, or of another version, does not count.
	mask[0], policy[0] = 0, 99
	versions[1], policy[1] = 6, 99
	m := &mismatchStats{}
	m.addTokens(policy, behaviour, mask, versions, 7)
	require.InDelta(t, n-2, m.n, 0)
	return m
}

// softmax is the log-probabilities at a temperature, of the tokens that keep says.
func softmax(logits []float64, temperature float64, keep func(int) bool) []float64 {
	out, total := make([]float64, len(logits)), 0.0
	for i, x := range logits {
		if keep(i) {
			total += math.Exp(x / temperature)
		}
	}
	for i, x := range logits {
		out[i] = math.Inf(-1)
		if keep(i) {
			out[i] = x/temperature - math.Log(total)
		}
	}
	return out
}

func all(int) bool { return true }

func draw(random *rand.Rand, logprobs []float64) int {
	u := random.Float64()
	for i, lp := range logprobs {
		if u -= math.Exp(lp); u < 0 {
			return i
		}
	}
	for i, lp := range logprobs {
		if !math.IsInf(lp, -1) {
			return i
		}
	}
	return 0
}

// A difference between sampler and trainer is measured, and named after the setting that it looks like.
func TestTheMismatchIsMeasuredAndNamed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		rule func(*rand.Rand, []float64) (policy, behaviour float64)
		want metrics.Cause
		text string
	}{
		"none": {func(r *rand.Rand, logits []float64) (float64, float64) {
			p := softmax(logits, 1, all)
			i := draw(r, p)
			return p[i], p[i]
		}, metrics.CauseNone, ""},
		"log-probabilities from before a temperature of 0.6": {func(r *rand.Rand, logits []float64) (float64, float64) {
			p := softmax(logits, 0.6, all)
			i := draw(r, p)
			return p[i], softmax(logits, 1, all)[i]
		}, metrics.CauseTemperature, "--logprobs-mode processed_logprobs"},
		"a default temperature of 0.6": {func(r *rand.Rand, logits []float64) (float64, float64) {
			b := softmax(logits, 0.6, all)
			i := draw(r, b)
			return softmax(logits, 1, all)[i], b[i]
		}, metrics.CauseTemperature, "a default of its own"},
		"top_k of 3": {func(r *rand.Rand, logits []float64) (float64, float64) {
			b := softmax(logits, 1, func(i int) bool {
				above := 0
				for _, x := range logits {
					if x > logits[i] {
						above++
					}
				}
				return above < 3
			})
			i := draw(r, b)
			return softmax(logits, 1, all)[i], b[i]
		}, metrics.CauseTruncation, "--generation-config vllm"},
		"another dtype": {func(r *rand.Rand, logits []float64) (float64, float64) {
			p := softmax(logits, 1, all)
			i := draw(r, p)
			return p[i], p[i] + 0.1*r.NormFloat64()
		}, metrics.CauseArithmetic, "trainer.publish.dtype"},
		"other weights": {func(r *rand.Rand, logits []float64) (float64, float64) {
			other := make([]float64, len(logits))
			for i := range other {
				other[i] = 3 * r.NormFloat64()
			}
			b := softmax(other, 1, all)
			i := draw(r, b)
			return softmax(logits, 1, all)[i], b[i]
		}, metrics.CauseWeights, "may not have the version"},
	} {
		v := map[string]float64{}
		m := draws(t, f.rule)
		m.writeMetrics(v)
		require.Equal(t, f.want, metrics.Cause(metrics.MismatchCause.In(v)), "%s: %v", name, v)
		require.Contains(t, metrics.Mismatch(v), f.text, name)
		require.Equal(t, f.want == metrics.CauseNone, metrics.Mismatch(v) == "", name)
		if f.want == metrics.CauseNone {
			require.InDelta(t, 1, metrics.MismatchSame.In(v), 0)
			require.InDelta(t, 1, metrics.MismatchESS.In(v), 1e-9)
			require.Zero(t, metrics.MismatchMax.In(v))
		} else {
			require.Less(t, metrics.MismatchSame.In(v), 0.5, name)
			require.Less(t, metrics.MismatchESS.In(v), 1.0, name)
			require.Greater(t, metrics.MismatchMax.In(v), metrics.MismatchMean.In(v), name)
		}
	}
}

// A step on what its own version sampled has the numbers, whether the policy was evaluated before it or within it; a step on
// what older versions sampled has none.
func TestAStepReportsTheMismatch(t *testing.T) {
	t.Parallel()
	for _, minibatches := range []int{1, 2} {
		_, _, stats := nativeStep(t, func(c *Config) { c.Minibatches = minibatches })
		v := stats.Metrics()
		require.Positive(t, metrics.MismatchTokens.In(v), "minibatches %d", minibatches)
		require.Positive(t, metrics.MismatchMean.In(v))
	}
	empty := map[string]float64{}
	(&mismatchStats{}).writeMetrics(empty)
	require.Empty(t, empty)
}

// Nothing is compared where another run's policy sampled: its tokens have the versions of their tickets.
func TestTokensOfAnotherRunAreNotCompared(t *testing.T) {
	t.Parallel()
	own := batch.Member{Trajectory: &schemas.Trajectory{}}
	recorded := batch.Member{Trajectory: &schemas.Trajectory{Recorded: &schemas.Recorded{Run: "r", ID: "g"}}}
	for _, members := range [][]batch.Member{{own, own}, {own, recorded}} {
		elsewhere := members[1].Trajectory.Recorded != nil
		m := mismatchStats{elsewhere: sampledElsewhere(&batch.Batch{Groups: []batch.Taken{{Members: members}}})}
		m.addTokens([]float64{-1}, []float64{-4}, []uint8{1}, []int32{7}, 7)
		v := map[string]float64{}
		m.writeMetrics(v)
		require.Equal(t, elsewhere, len(v) == 0)
	}
}
