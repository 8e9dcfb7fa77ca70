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
	// chosen says which tokens of the mini-batch were selected.
	chosen []bool
}

type candidate struct {
	token int
	key   float64
}

// whole is an algorithm that chooses tokens over the mini-batch before it looks at rows.
type whole interface {
	prepare(logprobs, old, advantages []float64, mask []uint8) (chosen []bool)
}

func (c *covariance) means(logprobs, advantages []float64, mask []uint8) {
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

func (c *covariance) at(logprob, advantage float64) float64 {
	return (advantage - c.meanAdvantage) * (logprob - c.meanLogprob)
}

// choose marks the n candidates with the largest keys; of equal ones, those that come first.
func (c *covariance) choose(n int) {
	slices.SortFunc(c.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.token, b.token))
	})
	for _, k := range c.candidates[:min(n, len(c.candidates))] {
		c.chosen[k.token] = true
	}
}

// clipCov gives tokens picked at random among those with Low < cov < High, and not clipped anyway, no gradient.
type clipCov struct {
	ppo
	covariance
	low, high, ratio float64
}

func newClipCov(k *ClipCov) algorithm {
	c := &clipCov{low: k.CovLow, high: k.CovHigh, ratio: k.CovRatio}
	c.ppo = ppo{surrogate: newTokenSurrogate(k.RatioBound), band: newBand(k.ClipLow, k.ClipHigh), dual: Off}
	c.token = c.clipped
	return c
}

func (*clipCov) metrics() []string {
	return []string{"clip_fraction", "ppo_clip_fraction", "approx_kl"}
}

func (c *clipCov) prepare(logprobs, old, advantages []float64, mask []uint8) []bool {
	c.means(logprobs, advantages, mask)
	for t, m := range mask {
		if m == 0 {
			continue
		}
		_, ratio, dr := c.ppo.ratio(logprobs[t] - old[t])
		_, _, flags := c.clipped(logprobs[t], ratio, dr, advantages[t])
		if cov := c.covariance.at(logprobs[t], advantages[t]); !flags.clipped && cov > c.low && cov < c.high {
			c.candidates = append(c.candidates, candidate{t, scramble(old[t], advantages[t])})
		}
	}
	c.choose(max(1, int(c.ratio*float64(c.tokens))))
	return c.chosen
}

func (c *clipCov) row(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		lp := r.logprobs[t]
		d, ratio, dr := c.ppo.ratio(lp - r.old[t])
		loss, slope, flags := c.clipped(lp, ratio, dr, r.advantages[t])
		picked := r.chosen[t]
		if picked {
			loss, slope = 0, 0
		}
		w := r.weight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		tally.flag(0, picked)
		tally.flag(1, flags.clipped)
		tally.add(2, -d)
		r.detail.set(t, w*loss, ratio, w, clip{clipped: picked || flags.clipped})
	}
	return r.scale * total
}

// scramble is a number that looks random but depends on the token's values alone, so that the order of rows does
// not matter and a run can be repeated. The old policy's log-probability is such a value: unlike the current policy's,
// the rounding of the optimizer steps since the step's start is not in it.
func scramble(x, y float64) float64 {
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

func (*klCov) metrics() []string { return []string{"abs_log_ratio", "penalized_fraction"} }

func (k *klCov) prepare(logprobs, _, advantages []float64, mask []uint8) []bool {
	k.means(logprobs, advantages, mask)
	for t, m := range mask {
		if m != 0 {
			k.candidates = append(k.candidates, candidate{t, k.covariance.at(logprobs[t], advantages[t])})
		}
	}
	k.choose(max(1, int(k.ratioOfTokens*float64(k.tokens))))
	return k.chosen
}

func (k *klCov) row(r *row, tally *tally) float64 {
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		d, ratio, dr := k.surrogate.ratio(r.logprobs[t] - r.old[t])
		loss, slope := -r.advantages[t]*ratio, -r.advantages[t]*dr
		picked := r.chosen[t]
		if picked {
			loss += k.coef * math.Abs(d)
			if dr != 0 {
				slope += k.coef * sign(d)
			}
		}
		w := r.weight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		tally.add(0, math.Abs(d))
		tally.flag(1, picked)
		r.detail.set(t, w*loss, ratio, w, clip{clipped: picked})
	}
	return r.scale * total
}
