package compare

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a 95 % percentile bootstrap interval.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const (
	// mostExact is the number of resamples up to which all are taken, so that the interval has no chance in it; randomResamples are
	// drawn where there are more.
	mostExact       = 1 << 16
	randomResamples = 20000
	// lowShare and highShare are the ends of the interval.
	lowShare, highShare = 0.025, 0.975
)

// interquartileMean is the mean without the lowest and the highest quarter of the values, each quarter rounded down to whole values, as
// scipy.stats.trim_mean(x, 0.25) has it: of three values or fewer it is the mean. It is NaN of no value.
func interquartileMean(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	cut := len(sorted) / 4
	return meanOf(sorted[cut : len(sorted)-cut])
}

// meanOf is NaN of no value.
func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// improvementProbability is the probability that a run of a scores higher than a run of b: the share of all pairs of which that is so, ties
// counted half (the Mann-Whitney statistic over its greatest value).
func improvementProbability(a, b []float64) float64 {
	won := 0.0
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				won++
			case x == y:
				won += 0.5
			}
		}
	}
	return won / float64(len(a)*len(b))
}

// bootstrapOne is the interval of a statistic of n values, which are drawn with replacement: statistic gets their indices, which it must
// not keep.
func bootstrapOne(n int, statistic func(drawn []int) float64) Interval {
	return bootstrapTwo(n, 0, func(drawn, _ []int) float64 { return statistic(drawn) })
}

// bootstrapTwo is bootstrapOne of two samples, which are drawn apart.
func bootstrapTwo(n, m int, statistic func(first, second []int) float64) Interval {
	if n == 0 {
		return Interval{math.NaN(), math.NaN()}
	}
	drawn := make([]int, n+m)
	limit := func(i int) int {
		if i < n {
			return n
		}
		return m
	}
	var results []float64
	if math.Pow(float64(n), float64(n))*math.Pow(float64(m), float64(m)) <= mostExact {
		for more := true; more; more = advanceDigits(drawn, limit) {
			results = append(results, statistic(drawn[:n], drawn[n:]))
		}
	} else {
		random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same interval each time
		for range randomResamples {
			for i := range drawn {
				drawn[i] = random.IntN(limit(i))
			}
			results = append(results, statistic(drawn[:n], drawn[n:]))
		}
	}
	slices.Sort(results)
	return Interval{quantileOf(results, lowShare), quantileOf(results, highShare)}
}

// advanceDigits counts up, each digit below its limit; false after the last number.
func advanceDigits(digits []int, limit func(int) int) bool {
	for i := range digits {
		if digits[i]++; digits[i] < limit(i) {
			return true
		}
		digits[i] = 0
	}
	return false
}

// quantileOf is the quantile of sorted values, in a straight line between neighbours; beside an infinite value there is no line, and the
// infinite value is taken.
func quantileOf(sorted []float64, share float64) float64 {
	at := share * float64(len(sorted)-1)
	i := int(at)
	part := at - float64(i)
	if part == 0 || i+1 == len(sorted) || sorted[i] == sorted[i+1] || math.IsInf(sorted[i], 0) {
		return sorted[i]
	}
	if math.IsInf(sorted[i+1], 0) {
		return sorted[i+1]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}

// pickValues are the values at some indices.
func pickValues(values []float64, indices []int) []float64 {
	out := make([]float64, len(indices))
	for i, at := range indices {
		out[i] = values[at]
	}
	return out
}

// Estimate is a statistic of an arm over its seeds.
type Estimate struct {
	// Value is the interquartile mean, NaN without a seed. Interval is its bootstrap interval over the seeds.
	Value    float64
	Interval Interval
}

// estimateMean is the interquartile mean of values and its interval.
func estimateMean(values []float64) Estimate {
	return Estimate{interquartileMean(values), bootstrapOne(len(values), func(drawn []int) float64 {
		return interquartileMean(pickValues(values, drawn))
	})}
}

// estimateImprovement is the probability of improvement of a over b and its interval.
func estimateImprovement(a, b []float64) Estimate {
	if len(a) == 0 || len(b) == 0 {
		return Estimate{math.NaN(), Interval{math.NaN(), math.NaN()}}
	}
	return Estimate{improvementProbability(a, b), bootstrapTwo(len(a), len(b), func(first, second []int) float64 {
		return improvementProbability(pickValues(a, first), pickValues(b, second))
	})}
}

// MarshalJSON writes value, low and high, null where there is none.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Value *float64 `json:"value"`
		Low   *float64 `json:"low"`
		High  *float64 `json:"high"`
	}{finiteOrNil(e.Value), finiteOrNil(e.Interval.Low), finiteOrNil(e.Interval.High)})
}
