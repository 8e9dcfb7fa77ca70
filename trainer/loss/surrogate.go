package loss

import "math"

// surrogate is a loss of the ratio of the current to the old policy.
type surrogate struct {
	// logLow and logHigh bound the log ratio before exp.
	logLow, logHigh float64
	level           string
	sumAll          bool
	// token is the loss of a token with log-probability lp and advantage a, and slope, its derivative by lp; dr is the derivative of the
	// ratio.
	token func(lp, ratio, dr, a float64) (loss, slope float64, flags clip)
}

// clip marks the bounds that took a token's loss.
type clip struct{ clipped, dual bool }

// newSurrogate takes ratios at the keys' level.
func newSurrogate(k Surrogate) surrogate {
	s := newTokenSurrogate(k.RatioBound)
	s.level, s.sumAll = k.Level, k.SumAllAdvantages
	return s
}

// newTokenSurrogate takes the ratios of single tokens, and bounds their logarithms on both sides.
func newTokenSurrogate(k RatioBound) surrogate {
	s := surrogate{logLow: math.Inf(-1), logHigh: math.Inf(1), level: LevelToken}
	if k.LogRatioClamp > 0 {
		s.logLow, s.logHigh = -k.LogRatioClamp, k.LogRatioClamp
	}
	return s
}

func (*surrogate) metricNames() []string {
	return []string{"clip_fraction", "dual_clip_fraction", "approx_kl"}
}

// boundedRatio returns exp(d) with d within bounds, and its derivative by d: 0 beyond them.
func (s *surrogate) boundedRatio(d float64) (bounded, ratio, dr float64) {
	switch {
	case d > s.logHigh:
		return s.logHigh, math.Exp(s.logHigh), 0
	case d < s.logLow:
		return s.logLow, math.Exp(s.logLow), 0
	}
	ratio = math.Exp(d)
	return d, ratio, ratio
}

func (s *surrogate) rowLoss(r *row, tally *tally) float64 {
	if s.level != LevelToken {
		return s.rowOfSequence(r, tally)
	}
	total := 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		lp := r.logprobs[t]
		d, ratio, dr := s.boundedRatio(lp - r.old[t])
		loss, slope, flags := s.token(lp, ratio, dr, r.advantages[t])
		w := r.tokenWeight(t)
		total += w * loss
		r.grad[t] = r.scale * w * slope
		s.recordToken(r, tally, t, d, ratio, w, w*loss, flags)
	}
	return r.scale * total
}

// rowOfSequence takes the row's geometric mean ratio (GSPO, arXiv 2507.18071, equation 7). Level sequence uses the row's mean advantage,
// its gradient spread over the tokens; sequence-token uses each token's own advantage, its gradient as if the ratio were that token's alone
// (equation 14).
func (s *surrogate) rowOfSequence(r *row, tally *tally) float64 {
	mean, advantage := r.meanRatio(s.sumAll)
	_, ratio, dr := s.boundedRatio(mean)
	total, slopes := 0.0, 0.0
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		a := advantage
		if s.level == LevelSequenceToken {
			a = r.advantages[t]
		}
		lp := r.logprobs[t]
		loss, slope, flags := s.token(lp, ratio, dr, a)
		w := r.tokenWeight(t)
		total += w * loss
		slopes += w * slope
		r.grad[t] = r.scale * w * slope
		s.recordToken(r, tally, t, lp-r.old[t], ratio, w, w*loss, flags)
	}
	if s.level == LevelSequence {
		r.spreadGradient(r.scale * slopes / float64(r.n))
	}
	return r.scale * total
}

func (s *surrogate) recordToken(r *row, tally *tally, t int, d, ratio, w, loss float64, flags clip) {
	tally.addFlag(0, flags.clipped)
	tally.addFlag(1, flags.dual)
	tally.addValue(2, -d)
	r.detail.setToken(t, loss, ratio, w, flags)
}

// meanRatio returns the row's mean log ratio and mean advantage; if all is set, masked tokens count in the mean advantage.
func (r *row) meanRatio(all bool) (d, advantage float64) {
	for t, m := range r.mask {
		if m != 0 {
			d += r.logprobs[t] - r.old[t]
		}
		if m != 0 || all {
			advantage += r.advantages[t]
		}
	}
	return d / float64(r.n), advantage / float64(r.n)
}

// spreadGradient gives every action token the gradient g.
func (r *row) spreadGradient(g float64) {
	for t, m := range r.mask {
		r.grad[t] = g * float64(m)
	}
}

// band bounds a ratio to [1 - low, 1 + high], each Off for no bound.
type band struct{ low, high float64 }

func newClipBand(low, high float64) band {
	b := band{math.Inf(-1), math.Inf(1)}
	if low > 0 {
		b.low = 1 - low
	}
	if high > 0 {
		b.high = 1 + high
	}
	return b
}

func (b band) clipRatio(ratio float64) float64 { return min(max(ratio, b.low), b.high) }
