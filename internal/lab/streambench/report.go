package streambench

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Spread is a figure of several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spread of at least one value; it sorts them.
func spread(values []float64) Spread {
	slices.Sort(values)
	middle := values[len(values)/2]
	if len(values)%2 == 0 {
		middle = (middle + values[len(values)/2-1]) / 2
	}
	return Spread{Median: middle, Min: values[0], Max: values[len(values)-1]}
}

// in formats it, with a number of decimals.
func (s Spread) in(decimals int) string {
	return fmt.Sprintf("%.*f  [%.*f .. %.*f]", decimals, s.Median, decimals, s.Min, decimals, s.Max)
}

// WayReport is one way for trajectories from producers to a batch.
type WayReport struct {
	Name string `json:"name"`
	// Rate is in trajectories a second, CPU in microseconds of the processor for one, of this process: clients, and
	// the broker where it is embedded. 0 where the system does not say.
	Rate Spread `json:"trajectories_per_second"`
	CPU  Spread `json:"cpu_microseconds"`
	// RateRatio is Weir's rate over this one's in the same round, CPURatio this one's processor time over Weir's:
	// 1 is as good, less than 1 is what Weir costs.
	RateRatio Spread `json:"weir_rate_ratio"`
	CPURatio  Spread `json:"weir_cpu_ratio"`

	rates, cpu []float64 // by round
}

func (w *WayReport) add(n int, wall, cpu float64) {
	w.rates, w.cpu = append(w.rates, float64(n)/wall), append(w.cpu, cpu/float64(n)*1e6)
}

// Report is what Run measured.
type Report struct {
	Config Config `json:"config"`
	// Bytes of a trajectory on the wire.
	Bytes int `json:"bytes"`
	// Ways are Weir's first, then those that it is compared with.
	Ways     []WayReport    `json:"ways"`
	Codec    CodecReport    `json:"codec"`
	Tickets  TicketReport   `json:"tickets"`
	Generate GenerateReport `json:"generate"`
}

// compare fills in what follows from the rounds.
func (r *Report) compare() {
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
		w.RateRatio, w.CPURatio = spread(rates), spread(cpu)
	}
	for i := range r.Ways {
		w := &r.Ways[i]
		w.Rate, w.CPU = spread(slices.Clone(w.rates)), spread(slices.Clone(w.cpu))
	}
}

// Print writes tables for people: each figure a median of the rounds, with the least and the most.
func (r *Report) Print(out io.Writer) {
	c := r.Config
	fmt.Fprintf(out, "%d bytes a trajectory, %d producers, batches of %d, %d rounds of %d batches; median [min .. max]\n",
		r.Bytes, c.Producers, c.Batch, c.Rounds, c.Batches)
	w := table.NewWriter()
	w.SetOutputMirror(out)
	w.SetStyle(table.StyleLight)
	w.AppendHeader(table.Row{"publish to batch", "trajectories/s", "MB/s", "CPU us each", "weir's rate to it", "its CPU to weir's"})
	for _, way := range r.Ways {
		megabytes := way.Rate.Median * float64(r.Bytes) / 1e6
		w.AppendRow(table.Row{way.Name, way.Rate.in(0), fmt.Sprintf("%.0f", megabytes), way.CPU.in(0), way.RateRatio.in(2), way.CPURatio.in(2)})
	}
	w.Render()
	w = table.NewWriter()
	w.SetOutputMirror(out)
	w.SetStyle(table.StyleLight)
	w.AppendRows([]table.Row{
		{"encode, buffers reused, in copies of the arrays", r.Codec.EncodeReused.in(2)},
		{"decode, buffers reused", r.Codec.DecodeReused.in(2)},
		{"decode into new memory", r.Codec.DecodeFresh.in(2)},
		{"tickets issued a second", r.Tickets.Issue.in(0)},
		{"tickets taken and done a second", r.Tickets.Done.in(0)},
		{"generate call alone, us", r.Generate.Alone.in(0)},
		{"generate calls together, a second", r.Generate.Together.in(0)},
	})
	w.Render()
}
