package report

import (
	"slices"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Learning is how soon and how far a run learned, by its greedy score on the validation split.
type Learning struct {
	// Start and End are the first and the last score, Best the highest.
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Best  float64 `json:"best"`
	// Area is the mean score from the first to the last scored version, straight lines between them.
	Area float64 `json:"area"`
	// To80 and To90 are the first scored versions at 0.8 and 0.9; -1 says never.
	To80 int64 `json:"to_80"`
	To90 int64 `json:"to_90"`
}

// ReadLearning takes it from a run's records; false when fewer than two versions were scored.
func ReadLearning(records []Record) (Learning, bool) {
	s := Collect(records, string(schemas.EventEvaluated), metrics.EvalExactMatch.Name, "")
	n := len(s.X)
	if n < 2 || s.X[n-1] <= s.X[0] {
		return Learning{}, false
	}
	l := Learning{Start: s.Y[0], End: s.Y[n-1], Best: slices.Max(s.Y), To80: versionReaching(s, 0.8), To90: versionReaching(s, 0.9)}
	for i := 1; i < n; i++ {
		l.Area += (s.X[i] - s.X[i-1]) * (s.Y[i] + s.Y[i-1]) / 2 / (s.X[n-1] - s.X[0])
	}
	return l, true
}

// versionReaching is the first version with at least a score, -1 without any.
func versionReaching(s Series, score float64) int64 {
	for i, y := range s.Y {
		if y >= score {
			return int64(s.X[i])
		}
	}
	return -1
}
