package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/metrics"
)

func TestReadLearning(t *testing.T) {
	t.Parallel()
	var records []Record
	score := func(version int64, exact float64) {
		records = append(records, Record{Type: "evaluated", PolicyVersion: version, Metrics: map[string]float64{metrics.EvalExactMatch.Name: exact}})
	}
	_, ok := ReadLearning(records)
	require.False(t, ok)
	score(0, 0.2)
	_, ok = ReadLearning(records)
	require.False(t, ok)
	score(2, 0.8)
	score(8, 0.6)
	records = append(records, Record{Type: "step_done", PolicyVersion: 9, Metrics: map[string]float64{metrics.EvalExactMatch.Name: 1}})
	l, ok := ReadLearning(records)
	require.True(t, ok)
	require.InDelta(t, (2*0.5+6*0.7)/8, l.Area, 1e-12)
	require.Equal(t, Learning{Start: 0.2, End: 0.6, Best: 0.8, Area: l.Area, To80: 2, To90: -1}, l)
}
