package compare

import (
	"math"

	"github.com/weir-rl/weir/internal/report"
)

// sigmoid is a curve of a score over versions after Khatri et al., "The Art of Scaling Reinforcement Learning Compute for LLMs" (2025),
// arXiv 2510.13786, equation 1: R(x) = start + (top - start) / (1 + (middle / x)^slope).
type sigmoid struct{ start, top, middle, slope float64 }

func (s sigmoid) valueAt(x float64) float64 {
	if x <= 0 {
		return s.start
	}
	return s.start + (s.top-s.start)/(1+math.Pow(s.middle/x, s.slope))
}

// A fit compares the middles and slopes of a grid, then of finer grids around the best, so that the same curve gives the same fit.
const (
	gridSteps, finerGrids = 41, 6
	// leastSlope and greatestSlope bound the slope.
	leastSlope, greatestSlope = 0.25, 8
	// fewestFitted are the scored versions after the first that a fit of three numbers needs.
	fewestFitted = 4
)

// fitSigmoid is the sigmoid nearest to the curve by least squares. Its start is the curve's first score, its top at most 1, and its middle
// between a quarter of the first version after the start and four times the last. It is false of a curve of too few scored versions.
func fitSigmoid(curve report.Series) (sigmoid, bool) {
	n := len(curve.X)
	if n <= fewestFitted {
		return sigmoid{}, false
	}
	best, least := sigmoid{}, math.Inf(1)
	middles := logRange{math.Log(max(curve.X[1], 1) / 4), math.Log(4 * curve.X[n-1])}
	slopes := logRange{math.Log(leastSlope), math.Log(greatestSlope)}
	for range 1 + finerGrids {
		for i := range gridSteps {
			for j := range gridSteps {
				s := sigmoid{start: curve.Y[0], middle: middles.valueAt(i), slope: slopes.valueAt(j)}
				s.fitTop(curve)
				if d := s.distanceTo(curve); d < least {
					best, least = s, d
				}
			}
		}
		middles, slopes = middles.around(best.middle), slopes.around(best.slope)
	}
	return best, true
}

// logRange is a range of a positive number, by its logarithms.
type logRange struct{ low, high float64 }

func (r logRange) valueAt(step int) float64 {
	return math.Exp(r.low + (r.high-r.low)*float64(step)/(gridSteps-1))
}

// around is the part of the range within two steps of a value.
func (r logRange) around(value float64) logRange {
	at, width := math.Log(value), 2*(r.high-r.low)/(gridSteps-1)
	return logRange{max(r.low, at-width), min(r.high, at+width)}
}

// fitTop sets the top that is best for the middle and the slope: the score is linear in it.
func (s *sigmoid) fitTop(curve report.Series) {
	shape := sigmoid{top: 1, middle: s.middle, slope: s.slope}
	var along, square float64
	for i, x := range curve.X {
		g := shape.valueAt(x)
		along, square = along+g*(curve.Y[i]-s.start), square+g*g
	}
	s.top = s.start
	if square > 0 {
		s.top += min(max(along/square, 0), 1-s.start)
	}
}

// distanceTo is the sum of the squared differences from the curve.
func (s sigmoid) distanceTo(curve report.Series) (sum float64) {
	for i, x := range curve.X {
		d := s.valueAt(x) - curve.Y[i]
		sum += d * d
	}
	return sum
}

// predictEnd is the score of a curve's last version by the sigmoid through its first half: through the versions up to half of the last. It
// is false where these are too few.
func predictEnd(curve report.Series) (float64, bool) {
	n := len(curve.X)
	if n == 0 {
		return 0, false
	}
	half := 0
	for half < n && curve.X[half] <= curve.X[n-1]/2 {
		half++
	}
	s, ok := fitSigmoid(report.Series{X: curve.X[:half], Y: curve.Y[:half]})
	return s.valueAt(curve.X[n-1]), ok
}
