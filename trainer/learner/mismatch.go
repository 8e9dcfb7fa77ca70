package learner

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/metrics"
)

// mismatchStats compares the sampler's log-probabilities with the trainer's, at tokens that the trainer's own version sampled: there only
// arithmetic and settings can differ.
type mismatchStats struct {
	// elsewhere is set where another run's policy sampled the tokens: nothing is compared.
	elsewhere bool

	n, close, below  float64
	absolute, most   float64
	sum, squares     float64 // of the differences, trainer less sampler
	weight, weights2 float64
	// Of the trainer's log-probability x and the sampler's y.
	x, y, xx, xy, yy float64
}

// addTokens adds tokens; version is the trainer's.
func (m *mismatchStats) addTokens(policy, behaviour []float64, mask []uint8, versions []int32, version int64) {
	if m.elsewhere {
		return
	}
	for i, on := range mask {
		if on == 0 || int64(versions[i]) != version {
			continue
		}
		x, y := policy[i], behaviour[i]
		d := x - y
		m.n++
		m.sum, m.squares = m.sum+d, m.squares+d*d
		m.absolute, m.most = m.absolute+math.Abs(d), max(m.most, math.Abs(d))
		if math.Abs(d) <= closeRatio {
			m.close++
		}
		if d < -closeRatio {
			m.below++
		}
		w := math.Exp(max(-20, min(20, d)))
		m.weight, m.weights2 = m.weight+w, m.weights2+w*w
		m.x, m.y, m.xx, m.xy, m.yy = m.x+x, m.y+y, m.xx+x*x, m.xy+x*y, m.yy+y*y
	}
}

// sampledElsewhere reports whether another run's policy sampled some trajectory of a batch.
func sampledElsewhere(b *batch.Batch) bool {
	return slices.ContainsFunc(b.Groups, func(g batch.Taken) bool {
		return slices.ContainsFunc(g.Members, func(m batch.Member) bool { return m.Trajectory.Recorded != nil })
	})
}

// closeRatio is the log ratio up to which a ratio counts as 1.
const closeRatio = 1e-3

// writeMetrics puts the numbers under their keys; none where no token was compared.
func (m *mismatchStats) writeMetrics(v map[string]float64) {
	if m.n == 0 {
		return
	}
	metrics.MismatchTokens.Set(v, m.n)
	metrics.MismatchMean.Set(v, m.absolute/m.n)
	metrics.MismatchMax.Set(v, m.most)
	metrics.MismatchSame.Set(v, m.close/m.n)
	metrics.MismatchESS.Set(v, m.weight*m.weight/m.weights2/m.n)
	metrics.MismatchCause.Set(v, float64(m.likelyCause()))
}

// The bounds from which a difference is alarming, and the least number of compared tokens.
const (
	alarmTokens = 128
	alarmMean   = 0.05
	alarmESS    = 0.9
)

// likelyCause returns the likely cause of an alarming difference, by its pattern.
//
// Another temperature makes the one log-probability a linear function of the other, with a slope that is not 1. Truncation, by top_p, top_k
// or min_p, raises the sampler's by the mass that was cut, so that the trainer's are below everywhere. Other arithmetic scatters both ways.
// Weights or penalties that differ do none of these.
func (m *mismatchStats) likelyCause() metrics.Cause {
	mean := m.absolute / m.n
	if m.n < alarmTokens || mean <= alarmMean && m.weight*m.weight/m.weights2/m.n >= alarmESS {
		return metrics.CauseNone
	}
	sxx, syy, sxy := m.xx-m.x*m.x/m.n, m.yy-m.y*m.y/m.n, m.xy-m.x*m.y/m.n
	fit := sxy * sxy / max(sxx*syy, 1e-12)
	slope := math.Sqrt(syy / max(sxx, 1e-12)) // of the line through both, whichever is noisy
	switch {
	case m.below/m.n > 0.98:
		return metrics.CauseTruncation
	case fit > 0.8 && math.Abs(math.Log(max(slope, 1e-6))) > 0.1:
		return metrics.CauseTemperature
	case math.Abs(m.sum/m.n) < 0.3*mean && mean < 0.3:
		return metrics.CauseArithmetic
	default:
		return metrics.CauseWeights
	}
}
