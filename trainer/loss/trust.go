package loss

import "math"

// trust keeps each token's probability near the probability that it was sampled with (DPPO, as in prime-rl): a token whose probability has
// already moved too far in the direction of its advantage gets no policy gradient. A kept token has its ratio unclipped, and every token a
// squared log ratio (Kimi-K2.5):
//
//	L_t = -[kept] tauA A r + tau (log r)^2
//	kept: p - p_old <= high where A > 0, >= -low else
type trust struct {
	logLow, logHigh float64
	low, high       float64
	tauA, tau       float64
	// symmetric drops a token that moved too far either way (IPO in prime-rl).
	symmetric bool
	// distill takes log(ref/pi) for the advantage, without gradient, and bounds falling probabilities alone.
	distill bool
}

func newTrustLoss(k *Distillation) *trust {
	s := newTokenSurrogate(k.RatioBound)
	return &trust{logLow: s.logLow, logHigh: s.logHigh, low: boundOrInf(k.MaskLow), tauA: k.AdvantageTau, tau: max(0, k.KLTau)}
}

// boundOrInf returns a bound; Inf for Off.
func boundOrInf(bound float64) float64 {
	if bound == Off {
		return math.Inf(1)
	}
	return bound
}

func newDPPOLoss(k *Trust) algorithm {
	p := newTrustLoss(&k.Distillation)
	p.high = boundOrInf(k.MaskHigh)
	return p
}

func newIPOLoss(k *Trust) algorithm {
	p := newTrustLoss(&k.Distillation)
	p.high = boundOrInf(k.MaskHigh)
	p.symmetric = true
	return p
}

func newReferenceKL(k *Distillation) algorithm {
	p := newTrustLoss(k)
	p.distill = true
	return p
}

func (p *trust) metricNames() []string {
	names := []string{
		"masked_mismatch_kl", "unmasked_mismatch_kl", "is_masked", "is_masked_low", "is_masked_high",
		"masked_advantage_positive", "masked_advantage_negative",
	}
	if p.distill {
		names = append(names, "ref_kl")
	}
	return names
}

// isDropped reports whether the policy gradient of a token with advantage a stops, because its probability fell, or rose.
func (p *trust) isDropped(moved, a float64) (fell, rose bool) {
	switch {
	case p.symmetric:
		return moved < -p.low, moved > p.high
	case p.distill:
		return moved < -p.low, false
	case a > 0:
		return false, moved > p.high
	default:
		return moved < -p.low, false
	}
}

func (p *trust) rowLoss(r *row, tally *tally) float64 {
	s := surrogate{logLow: p.logLow, logHigh: p.logHigh}
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		lp, old, a := r.logprobs[t], r.old[t], r.tokenAdvantage(t, p.distill)
		d, ratio, dr := s.boundedRatio(lp - old)
		fell, rose := p.isDropped(math.Exp(lp)-math.Exp(old), a)
		loss, slope := p.tau*d*d, 0.0
		if dr != 0 {
			slope = 2 * p.tau * d
		}
		if !fell && !rose {
			loss -= p.tauA * a * ratio
			slope -= p.tauA * a * dr
		}
		w := r.tokenWeight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		p.recordTally(tally, ratio-d-1, a, fell, rose)
		r.detail.setToken(t, w*loss, ratio, w, clip{clipped: fell || rose})
	}
	return r.scale * total
}

func (p *trust) recordTally(tally *tally, mismatch, a float64, fell, rose bool) {
	dropped := fell || rose
	if dropped {
		tally.addValue(0, mismatch)
		tally.addFlag(5, a > 0)
		tally.addFlag(6, a <= 0)
	} else {
		tally.addValue(1, mismatch)
	}
	tally.addFlag(2, dropped)
	tally.addFlag(3, fell)
	tally.addFlag(4, rose)
	if p.distill {
		tally.addValue(7, a)
	}
}

// tokenAdvantage returns the advantage of token t: the batch's, or how far the policy is below the reference. the batch's, or how far the
// policy is below the reference.
func (r *row) tokenAdvantage(t int, distill bool) float64 {
	if distill {
		return r.reference[t] - r.logprobs[t]
	}
	return r.advantages[t]
}
