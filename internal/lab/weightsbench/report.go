package weightsbench

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/weir-rl/weir/internal/lab/harness"
)

// Report is the result of `weir-lab bench weights`.
type Report struct {
	// Runs are real runs, a run for each learning rate.
	Runs []*Deltas `json:"runs"`
	// Ways are the ways of versions to consumers.
	Ways []*Swaps `json:"ways"`
}

// Print writes tables for people.
func (r *Report) Print(out io.Writer) {
	if len(r.Runs) > 0 {
		fmt.Fprintln(out, "versions of real runs in bfloat16, each as its difference from the one before: shares of a whole version")
		w := harness.NewTable(out, "learning rate", "optimizer steps", "whole, bytes", "versions", "mean", "largest", "mean of 2nd half", "numbers changed", "to a neighbour")
		for _, d := range r.Runs {
			changed, neighbours, n := 0.0, 0.0, float64(len(d.Versions))
			for _, v := range d.Versions {
				changed, neighbours = changed+v.Changed/n, neighbours+v.Neighbours/n
			}
			w.AppendRow(table.Row{
				d.LearningRate, fmt.Sprintf("%d a version", d.StepsPerVersion), d.Whole, len(d.Versions),
				formatPercent(d.Mean(0)), formatPercent(d.Largest()), formatPercent(d.Mean(int64(len(d.Versions)/2 + 1))), formatPercent(changed), formatPercent(neighbours),
			})
		}
		w.Render()
	}
	fmt.Fprintln(out, "what was sent, and how fast each consumer had it in its hands, verified; times are p50 / p99 in ms")
	w := harness.NewTable(out, "weights", "sent as", "bytes", "consumers", "callers", "publish", "load", "MB/s", "tokens/s meanwhile")
	for _, s := range r.Ways {
		w.AppendRow(table.Row{
			s.Name, s.sentAs(), s.Stored, s.Consumers, s.Callers, s.Publish, s.Load, fmt.Sprintf("%.0f", s.Rate()/1e6),
			fmt.Sprintf("%.0f", s.TokensPerSecond),
		})
	}
	w.Render()
	fmt.Fprintln(out, "from the broker's taking the manifest on: p50 / p99 in ms")
	w = harness.NewTable(out, "weights", "sent as", "consumers", "notice", "load", "decode", "prepare", "wait", "pause", "first token", "total")
	for _, s := range r.Ways {
		w.AppendRow(table.Row{s.Name, s.sentAs(), s.Consumers, s.Notice, s.Load, s.Decode, s.Prepare, s.Wait, s.Pause, s.FirstToken, s.Total})
	}
	w.Render()
}

func (s *Swaps) sentAs() string {
	if s.Deltas {
		return "delta"
	}
	return "whole"
}

func formatPercent(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }

// Print writes a table for people.
func (s *Scale) Print(out io.Writer) {
	fmt.Fprintf(out, "%s with random weights, %.0f million; the last column is the seconds of %s by the ratio of their weights, %.1f\n",
		s.Shape, float64(s.Weights)/1e6, s.For, s.Ratio)
	w := harness.NewTable(out, "part", "MB", "seconds", "MB/s", "process before, MB", "beside at most, MB", "seconds at "+s.For)
	for _, st := range s.Stages {
		rate := "-"
		if st.Bytes > 0 && st.Seconds > 0 {
			rate = fmt.Sprintf("%.0f", float64(st.Bytes)/1e6/st.Seconds)
		}
		w.AppendRow(table.Row{
			st.Name, fmt.Sprintf("%.0f", float64(st.Bytes)/1e6), fmt.Sprintf("%.3g", st.Seconds), rate,
			st.Rest / 1e6, st.Beside / 1e6, fmt.Sprintf("%.3g", st.Computed),
		})
	}
	w.Render()
}
