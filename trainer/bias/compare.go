package bias

import (
	"math"
	"slices"

	"github.com/weir-rl/weir/trainer/metrics"
)

// Sample is the values of a measure for some trajectories.
type Sample struct {
	// Values are sorted.
	Values []float64
	// Prompts counts the prompts of the trajectories.
	Prompts int
}

// NewSample sorts values in place.
func NewSample(values []float64, prompts int) Sample {
	slices.Sort(values)
	return Sample{values, prompts}
}

// Comparison compares the trajectories that were trained on with all that ended.
type Comparison struct {
	Trained, Others int
	// Distance is the Kolmogorov-Smirnov distance of the trained trajectories from all trajectories, 0 to 1: the greatest difference of the
	// shares at or below a value.
	Distance float64
	// P is the probability of a distance as great if the value has nothing to do with a trajectory's end; 1 where a side is empty.
	P float64
}

// Biased reports whether the trained trajectories differ from all by an amount that matters and is no chance.
func (c Comparison) Biased() bool {
	return c.Distance > metrics.BiasMinDistance && c.P < metrics.BiasMaxP
}

// Compare compares trained trajectories with the others.
//
// P is that of the two-sample Kolmogorov-Smirnov test of the trained against the others. The test needs two samples that have no
// trajectory in common: the distance from all is the distance from the others times the share of the others. Rollouts of one prompt
// resemble each other, so the number of prompts, not of trajectories, is the size of a sample. Turns and rewards have few values, and
// with ties the greatest difference is taken over fewer places: P is then too large rather than too small. A chi-squared test would need
// categories with enough trajectories each, and would overlook a shift of all values in one direction.
func Compare(trained, others Sample) Comparison {
	n, m := len(trained.Values), len(others.Values)
	c := Comparison{Trained: n, Others: m, P: 1}
	if n == 0 || m == 0 {
		return c
	}
	apart := Distance(trained.Values, others.Values)
	c.Distance = apart * float64(m) / float64(n+m)
	a, b := float64(min(trained.Prompts, n)), float64(min(others.Prompts, m))
	c.P = probabilityBeyond(apart, a*b/(a+b))
	return c
}

// Distance is the Kolmogorov-Smirnov distance of two sorted samples that are not empty.
func Distance(a, b []float64) float64 {
	most, i, k := 0.0, 0, 0
	for i < len(a) && k < len(b) {
		x := min(a[i], b[k])
		for i < len(a) && a[i] <= x {
			i++
		}
		for k < len(b) && b[k] <= x {
			k++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(k)/float64(len(b))))
	}
	return most
}

// probabilityBeyond is the probability of a distance of at least d between samples of an effective size: Kolmogorov's distribution, with Stephens'
// correction for small samples.
func probabilityBeyond(d, size float64) float64 {
	root := math.Sqrt(size)
	at := (root + 0.12 + 0.11/root) * d
	if at < 0.2 {
		return 1 // the series converges slowly there, and its sum is 1 but for 1e-13
	}
	sum, sign := 0.0, 1.0
	for j := 1.0; j <= 100; j++ {
		term := math.Exp(-2 * j * j * at * at)
		sum += sign * term
		if term < 1e-12 {
			break
		}
		sign = -sign
	}
	return min(1, max(0, 2*sum))
}
