package harness

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Spread is a figure of several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf sums up a value or more; it sorts them.
func SpreadOf(values []float64) Spread {
	slices.Sort(values)
	middle := values[len(values)/2]
	if len(values)%2 == 0 {
		middle = (middle + values[len(values)/2-1]) / 2
	}
	return Spread{Median: middle, Min: values[0], Max: values[len(values)-1]}
}

// Format writes the spread with a number of decimals.
func (s Spread) Format(decimals int) string {
	return fmt.Sprintf("%.*f  [%.*f .. %.*f]", decimals, s.Median, decimals, s.Min, decimals, s.Max)
}

// Percentiles are the median and the 99th percentile (nearest rank), in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// PercentilesOf sums up times, which it sorts; none give 0.
func PercentilesOf(took []time.Duration) Percentiles {
	if len(took) == 0 {
		return Percentiles{}
	}
	slices.Sort(took)
	at := func(hundredths int) float64 {
		rank := (len(took)*hundredths + 99) / 100
		return float64(took[rank-1]) / float64(time.Millisecond)
	}
	return Percentiles{P50: at(50), P99: at(99)}
}

// String is "p50 / p99" in milliseconds.
func (p Percentiles) String() string { return fmt.Sprintf("%.3g / %.3g", p.P50, p.P99) }

// NewTable makes a table that is written to out when it is rendered; a header may be empty.
func NewTable(out io.Writer, header ...any) table.Writer {
	w := table.NewWriter()
	w.SetOutputMirror(out)
	w.SetStyle(table.StyleLight)
	if len(header) > 0 {
		w.AppendHeader(header)
	}
	return w
}
