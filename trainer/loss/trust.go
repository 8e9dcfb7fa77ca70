package loss

import "math"

// trust keeps each token's probability near the one that it was sampled with (DPPO, as in prime-rl): a token whose
// probability has already moved too far the way its advantage pushes gets no policy gradient. What is kept has the
// ratio unclipped, and every token a squared log ratio (Kimi-K2.5):
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

func newTrust(k *Distillation) *trust {
	s := newTokenSurrogate(k.RatioBound)
	return &trust{logLow: s.logLow, logHigh: s.logHigh, low: orUnbounded(k.MaskLow), tauA: k.AdvantageTau, tau: max(0, k.KLTau)}
}

// orUnbounded is a bound of a key that may be Off.
func orUnbounded(bound float64) float64 {
	if bound == Off {
		return math.Inf(1)
	}
	return bound
}

func newDPPO(k *Trust) algorithm {
	p := newTrust(&k.Distillation)
	p.high = orUnbounded(k.MaskHigh)
	return p
}

func newIPO(k *Trust) algorithm {
	p := newTrust(&k.Distillation)
	p.high = orUnbounded(k.MaskHigh)
	p.symmetric = true
	return p
}

func newReferenceKL(k *Distillation) algorithm {
	p := newTrust(k)
	p.distill = true
	return p
}

func (p *trust) metrics() []string {
	names := []string{
		"masked_mismatch_kl", "unmasked_mismatch_kl", "is_masked", "is_masked_low", "is_masked_high",
		"masked_advantage_positive", "masked_advantage_negative",
	}
	if p.distill {
		names = append(names, "ref_kl")
	}
	return names
}

// dropped says whether the policy gradient of a token with advantage a stops, because its probability fell, or rose.
func (p *trust) dropped(moved, a float64) (fell, rose bool) {
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

func (p *trust) row(r *row, tally *tally) float64 {
	s := surrogate{logLow: p.logLow, logHigh: p.logHigh}
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		lp, old, a := r.logprobs[t], r.old[t], r.advantage(t, p.distill)
		d, ratio, dr := s.ratio(lp - old)
		fell, rose := p.dropped(math.Exp(lp)-math.Exp(old), a)
		loss, slope := p.tau*d*d, 0.0
		if dr != 0 {
			slope = 2 * p.tau * d
		}
		if !fell && !rose {
			loss -= p.tauA * a * ratio
			slope -= p.tauA * a * dr
		}
		w := r.weight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		p.note(tally, ratio-d-1, a, fell, rose)
		r.detail.set(t, w*loss, ratio, w, clip{clipped: fell || rose})
	}
	return r.scale * total
}

func (p *trust) note(tally *tally, mismatch, a float64, fell, rose bool) {
	dropped := fell || rose
	if dropped {
		tally.add(0, mismatch)
		tally.flag(5, a > 0)
		tally.flag(6, a <= 0)
	} else {
		tally.add(1, mismatch)
	}
	tally.flag(2, dropped)
	tally.flag(3, fell)
	tally.flag(4, rose)
	if p.distill {
		tally.add(7, a)
	}
}

// advantage of token t: the batch's, or how far the policy is below the reference.
func (r *row) advantage(t int, distill bool) float64 {
	if distill {
		return r.reference[t] - r.logprobs[t]
	}
	return r.advantages[t]
}
