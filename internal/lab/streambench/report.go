package streambench

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/weir-rl/weir/internal/lab/harness"
)

// WayReport is a way for trajectories from producers to a batch.
type WayReport struct {
	Name string `json:"name"`
	// Rate is in trajectories a second, CPU in microseconds of the processor for a trajectory, of this process: clients, and
	// the broker where it is embedded. 0 where the system does not say.
	Rate harness.Spread `json:"trajectories_per_second"`
	CPU  harness.Spread `json:"cpu_microseconds"`
	// RateRatio is Weir's rate over this way's in the same round, CPURatio this way's processor time over Weir's:
	// 1 is as good, less than 1 is Weir's cost.
	RateRatio harness.Spread `json:"weir_rate_ratio"`
	CPURatio  harness.Spread `json:"weir_cpu_ratio"`

	rates, cpu []float64 // by round
}

func (w *WayReport) addRound(n int, wall, cpu float64) {
	w.rates, w.cpu = append(w.rates, float64(n)/wall), append(w.cpu, cpu/float64(n)*1e6)
}

// Report is the result of Run.
type Report struct {
	Config Config `json:"config"`
	// Bytes of a trajectory on the wire.
	Bytes int `json:"bytes"`
	// Ways are Weir's first, then the ways that it is compared with.
	Ways     []WayReport    `json:"ways"`
	Codec    CodecReport    `json:"codec"`
	Tickets  TicketReport   `json:"tickets"`
	Generate GenerateReport `json:"generate"`
}

// compareWays computes the ratios and spreads of the rounds.
func (r *Report) compareWays() {
	weir := r.Ways[0]
	for i := range r.Ways {
		w := &r.Ways[i]
		rates, cpu := make([]float64, len(w.rates)), make([]float64, len(w.cpu))
		for round := range w.rates {
			rates[round] = weir.rates[round] / w.rates[round]
			if weir.cpu[round] > 0 {
				cpu[round] = w.cpu[round] / weir.cpu[round]
			}
		}
		w.RateRatio, w.CPURatio = harness.SpreadOf(rates), harness.SpreadOf(cpu)
	}
	for i := range r.Ways {
		w := &r.Ways[i]
		w.Rate, w.CPU = harness.SpreadOf(slices.Clone(w.rates)), harness.SpreadOf(slices.Clone(w.cpu))
	}
}

// Print writes tables for people: each figure a median of the rounds, with the least and the most.
func (r *Report) Print(out io.Writer) {
	c := r.Config
	fmt.Fprintf(out, "%d bytes a trajectory, %d producers, batches of %d, %d rounds of %d batches; median [min .. max]\n",
		r.Bytes, c.Producers, c.Batch, c.Rounds, c.Batches)
	w := harness.NewTable(out, "publish to batch", "trajectories/s", "MB/s", "CPU us each", "weir's rate to it", "its CPU to weir's")
	for _, way := range r.Ways {
		megabytes := way.Rate.Median * float64(r.Bytes) / 1e6
		w.AppendRow(table.Row{way.Name, way.Rate.Format(0), fmt.Sprintf("%.0f", megabytes), way.CPU.Format(0), way.RateRatio.Format(2), way.CPURatio.Format(2)})
	}
	w.Render()
	w = harness.NewTable(out)
	w.AppendRows([]table.Row{
		{"encode, buffers reused, in copies of the arrays", r.Codec.EncodeReused.Format(2)},
		{"decode, buffers reused", r.Codec.DecodeReused.Format(2)},
		{"decode into new memory", r.Codec.DecodeFresh.Format(2)},
		{"tickets issued a second", r.Tickets.Issue.Format(0)},
		{"tickets taken and done a second", r.Tickets.Done.Format(0)},
		{"generate call alone, us", r.Generate.Alone.Format(0)},
		{"generate calls together, a second", r.Generate.Together.Format(0)},
	})
	w.Render()
}
