package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/metrics"
)

// Row 4: a limit that ends nearly every episode is on the terminal: in the live view while it lasts, and in plain lines once per onset.
func TestALimitThatEndsEveryEpisodeIsOnTheTerminal(t *testing.T) {
	at := func(step int64, share float64) Record {
		return Record{Type: "step_done", Step: step, Metrics: map[string]float64{metrics.BatchStopped.Of("turns"): share}}
	}
	var out bytes.Buffer
	plain := NewProgress(&out, false, 100, 1, time.Now)
	shares := []float64{1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1}
	for i, share := range shares {
		plain.Add(at(int64(i+1), share))
	}
	require.Equal(t, 2, strings.Count(out.String(), "! "+LimitedTitle), out.String())
	require.Contains(t, out.String(), "raise trainer.limits.max_turns")

	out.Reset()
	live := NewProgress(&out, true, 100, 1, time.Now)
	for i := range 4 {
		live.Add(at(int64(i+1), 1))
	}
	require.Contains(t, out.String(), LimitedTitle)
	out.Reset()
	live.Add(at(5, 0))
	require.NotContains(t, out.String(), LimitedTitle)
}

// Row 5: without a terminal each alarm about failures is printed once, though another task's is renewed.
func TestPlainLinesHaveEachAlarmOnce(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, false, 10, 1, time.Now)
	a, b := Failure{Task: "a", Failed: 5, Last: "x"}, Failure{Task: "b", Failed: 5, Last: "y"}
	p.Failing([]Failure{a})
	p.Failing([]Failure{a, b})
	b.Failed = 10
	p.Failing([]Failure{b, a})
	require.Equal(t, 1, strings.Count(out.String(), "task a:"))
	require.Equal(t, 2, strings.Count(out.String(), "task b:"))
}
