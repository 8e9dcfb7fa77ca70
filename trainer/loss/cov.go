package loss

import (
	"cmp"
	"math"
	"slices"
)

// Clip-Cov and KL-Cov (arXiv 2505.22617, section 4) hold back the tokens whose log-probability and advantage vary
// together the most, which use up the entropy:
//
//	cov_t = (A_t - mean(A)) (log pi_t - mean(log pi))
//
// Means and selections are over the mini-batch: Batch.Plan carries them to its micro-batches.
type covariance struct {
	meanAdvantage, meanLogprob float64
	tokens                     int
	candidates                 []candidate
	// chosen marks the selected tokens of the mini-batch.
	chosen []bool
}

type candidate struct {
	token int
	key   float64
}

// tokenChooser is an algorithm that chooses tokens over the whole mini-batch before its rows.
type tokenChooser interface {
	chooseTokens(logprobs, old, advantages []float64, mask []uint8) (chosen []bool)
}

func (c *covariance) computeMeans(logprobs, advantages []float64, mask []uint8) {
	c.meanAdvantage, c.meanLogprob, c.tokens = 0, 0, 0
	for t, m := range mask {
		if m != 0 {
			c.meanAdvantage += advantages[t]
			c.meanLogprob += logprobs[t]
			c.tokens++
		}
	}
	n := float64(max(1, c.tokens))
	c.meanAdvantage, c.meanLogprob = c.meanAdvantage/n, c.meanLogprob/n
	c.candidates = c.candidates[:0]
	c.chosen = slices.Grow(c.chosen[:0], len(mask))[:len(mask)]
	clear(c.chosen)
}

func (c *covariance) covarianceAt(logprob, advantage float64) float64 {
	return (advantage - c.meanAdvantage) * (logprob - c.meanLogprob)
}

// chooseLargest marks the n candidates with the largest keys; of equal keys, the first.
func (c *covariance) chooseLargest(n int) {
	slices.SortFunc(c.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.token, b.token))
	})
	for _, k := range c.candidates[:min(n, len(c.candidates))] {
		c.chosen[k.token] = true
	}
}

// clipCov gives no gradient to tokens picked at random among the tokens with Low < cov < High that are not clipped anyway.
type clipCov struct {
	ppo
	covariance
	low, high, ratio float64
}

func newClipCov(k *ClipCov) algorithm {
	c := &clipCov{low: k.CovLow, high: k.CovHigh, ratio: k.CovRatio}
	c.ppo = ppo{surrogate: newTokenSurrogate(k.RatioBound), band: newClipBand(k.ClipLow, k.ClipHigh), dual: Off}
	c.token = c.clippedLoss
	return c
}

func (*clipCov) metricNames() []string {
	return []string{"clip_fraction", "ppo_clip_fraction", "approx_kl"}
}

func (c *clipCov) chooseTokens(logprobs, old, advantages []float64, mask []uint8) []bool {
	c.computeMeans(logprobs, advantages, mask)
	for t, m := range mask {
		if m == 0 {
			continue
		}
		_, ratio, dr := c.ppo.boundedRatio(logprobs[t] - old[t])
		_, _, flags := c.clippedLoss(logprobs[t], ratio, dr, advantages[t])
		if cov := c.covariance.covarianceAt(logprobs[t], advantages[t]); !flags.clipped && cov > c.low && cov < c.high {
			c.candidates = append(c.candidates, candidate{t, scrambleKey(old[t], advantages[t])})
		}
	}
	c.chooseLargest(max(1, int(c.ratio*float64(c.tokens))))
	return c.chosen
}

func (c *clipCov) rowLoss(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		lp := r.logprobs[t]
		d, ratio, dr := c.ppo.boundedRatio(lp - r.old[t])
		loss, slope, flags := c.clippedLoss(lp, ratio, dr, r.advantages[t])
		picked := r.chosen[t]
		if picked {
			loss, slope = 0, 0
		}
		w := r.tokenWeight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		tally.addFlag(0, picked)
		tally.addFlag(1, flags.clipped)
		tally.addValue(2, -d)
		r.detail.setToken(t, w*loss, ratio, w, clip{clipped: picked || flags.clipped})
	}
	return r.scale * total
}

// scrambleKey is a number that looks random but depends on the token's values alone, so that the order of rows does
// not matter and a run can be repeated. The old policy's log-probability is such a value: unlike the current policy's,
// the rounding of the optimizer steps since the step's start is not in it.
func scrambleKey(x, y float64) float64 {
	h := math.Float64bits(x)*0x9e3779b97f4a7c15 ^ math.Float64bits(y)
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return float64(h >> 11)
}

// klCov adds a KL penalty to the tokens with the largest covariance:
//
//	L_t = -A r + [t chosen] coef |log r|
type klCov struct {
	surrogate
	covariance
	ratioOfTokens, coef float64
}

func newKLCov(k *KLCov) algorithm {
	return &klCov{surrogate: newTokenSurrogate(k.RatioBound), ratioOfTokens: k.CovRatio, coef: k.CovCoef}
}

func (*klCov) metricNames() []string { return []string{"abs_log_ratio", "penalized_fraction"} }

func (k *klCov) chooseTokens(logprobs, _, advantages []float64, mask []uint8) []bool {
	k.computeMeans(logprobs, advantages, mask)
	for t, m := range mask {
		if m != 0 {
			k.candidates = append(k.candidates, candidate{t, k.covariance.covarianceAt(logprobs[t], advantages[t])})
		}
	}
	k.chooseLargest(max(1, int(k.ratioOfTokens*float64(k.tokens))))
	return k.chosen
}

func (k *klCov) rowLoss(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		d, ratio, dr := k.surrogate.boundedRatio(r.logprobs[t] - r.old[t])
		loss, slope := -r.advantages[t]*ratio, -r.advantages[t]*dr
		picked := r.chosen[t]
		if picked {
			loss += k.coef * math.Abs(d)
			if dr != 0 {
				slope += k.coef * signOf(d)
			}
		}
		w := r.tokenWeight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		tally.addValue(0, math.Abs(d))
		tally.addFlag(1, picked)
		r.detail.setToken(t, w*loss, ratio, w, clip{clipped: picked})
	}
	return r.scale * total
}
