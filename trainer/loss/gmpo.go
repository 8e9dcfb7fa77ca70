package loss

import "math"

// gmpo takes the geometric mean of the row's token ratios, each clipped in the direction that its advantage
// pushes (arXiv 2507.20673, equation 4):
//
//	L_i = -mean(A) exp(mean_t clip(log r_t)), clip(d) = min(d, high) for A > 0, max(d, -low) for A < 0
type gmpo struct{ low, high, epsilon float64 }

func newGMPOLoss(k *GMPO) algorithm {
	return &gmpo{low: k.ClipLow, high: k.ClipHigh, epsilon: k.Aggregation.LengthEpsilon}
}

func (*gmpo) metricNames() []string {
	return []string{"clip_fraction", "clip_fraction_low", "approx_kl"}
}

func (g *gmpo) rowLoss(r *row, tally *tally) float64 {
	length := float64(r.n) + g.epsilon
	var sum, advantage, logWeight float64
	for t, m := range r.mask {
		if m == 0 {
			continue
		}
		d, a := r.logprobs[t]-r.old[t], r.advantages[t]
		bounded, _ := g.boundRatio(d, a)
		sum += bounded
		advantage += a
		outside := d > g.high && g.high > 0 || d < -g.low && g.low > 0
		tally.addFlag(0, outside && a > 0)
		tally.addFlag(1, outside && a < 0)
		tally.addValue(2, -d)
		if r.weights != nil {
			logWeight += math.Log(r.weights[t] + 1e-10)
		}
	}
	ratio, advantage := math.Exp(sum/length), advantage/length
	weight := math.Exp(logWeight / length)
	for t, m := range r.mask {
		if m != 0 {
			_, pass := g.boundRatio(r.logprobs[t]-r.old[t], r.advantages[t])
			r.grad[t] = -r.scale * weight * advantage * ratio * pass / length
			r.detail.setToken(t, -weight*advantage*ratio, ratio, weight, clip{clipped: pass == 0})
		}
	}
	return -r.scale * weight * advantage * ratio
}

// boundRatio clips d in the direction in which a pushes it; pass is 1 if the gradient passes, else 0. Advantage 0 counts as no ratio at
// all. Advantage 0 counts as no ratio at all.
func (g *gmpo) boundRatio(d, a float64) (bounded, pass float64) {
	switch {
	case a == 0:
		return 0, 0
	case a > 0 && g.high > 0 && d > g.high:
		return g.high, 0
	case a < 0 && g.low > 0 && d < -g.low:
		return -g.low, 0
	}
	return d, 1
}
