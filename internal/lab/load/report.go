package load

import (
	"fmt"
	"io"
)

// Report is a measurement.
type Report struct {
	Config  Config  `json:"config"`
	Seconds float64 `json:"seconds"`
	// Rates are a second; messages and bytes are counted by the broker's server, of every client, both ways.
	MessagesIn  float64 `json:"messages_in"`
	MessagesOut float64 `json:"messages_out"`
	BytesIn     float64 `json:"bytes_in"`
	BytesOut    float64 `json:"bytes_out"`
	// Lease is a call of Take, Done the confirmed end of a lease, Lag from a trajectory's end to the reader.
	Lease    latency `json:"lease"`
	Generate latency `json:"generate"`
	Tool     latency `json:"tool"`
	Publish  latency `json:"publish"`
	Done     latency `json:"done"`
	Episode  latency `json:"episode"`
	Lag      latency `json:"lag"`
	// Cores are processors in use; MachineBusy is the share of the machine that everybody used, other programs too.
	BrokerCores float64 `json:"broker_cores"`
	ClientCores float64 `json:"client_cores"`
	MachineBusy float64 `json:"machine_busy"`
	BrokerBytes int64   `json:"broker_resident_bytes"`
	// EngineBusy is the share of the engines' slots in use.
	EngineBusy float64 `json:"engine_busy"`
	Limit      string  `json:"limit"`
}

// findLimit names the part of which more would help, by which was full.
func (r *Report) findLimit() string {
	slots := float64(r.Config.Producers*r.Config.Slots) * r.Seconds
	switch {
	case r.EngineBusy >= 0.9:
		return "engines"
	case r.MachineBusy >= 0.9 && (r.Lease.TotalSec+r.Publish.TotalSec+r.Done.TotalSec)/slots >= 0.1:
		return "processors"
	case (r.Publish.TotalSec+r.Done.TotalSec)/slots >= 0.25:
		return "broker"
	case r.Lease.TotalSec/slots >= 0.25:
		return "tickets"
	default:
		return "producers"
	}
}

// Print writes the report for people.
func (r *Report) Print(out io.Writer) {
	c := r.Config
	fmt.Fprintf(out, "%d producers of %d slots, %d engines of %d slots; trajectories of %d tokens, %d turns; %.1f s\n",
		c.Producers, c.Slots, c.Engines, c.EngineSlots, c.Tokens, c.Turns, r.Seconds)
	n := float64(r.Episode.Count) / r.Seconds
	fmt.Fprintf(out, "episodes     %.1f/s, %.0f tokens/s, %.0f sampled tokens/s\n", n, n*float64(c.Tokens), n*float64(c.Turns*c.TurnTokens))
	fmt.Fprintf(out, "messages     in %.0f/s %.2f MB/s, out %.0f/s %.2f MB/s\n", r.MessagesIn, r.BytesIn/1e6, r.MessagesOut, r.BytesOut/1e6)
	for _, l := range []struct {
		name string
		v    latency
	}{{"lease", r.Lease}, {"generate", r.Generate}, {"publish", r.Publish}, {"done", r.Done}, {"episode", r.Episode}, {"to reader", r.Lag}} {
		fmt.Fprintf(out, "%-12s p50 %.1f ms, p99 %.1f ms, %d\n", l.name, l.v.P50, l.v.P99, l.v.Count)
	}
	fmt.Fprintf(out, "processors   broker %.2f, clients %.2f, machine %.0f %%\n", r.BrokerCores, r.ClientCores, 100*r.MachineBusy)
	fmt.Fprintf(out, "broker       %d MB resident\nengines      %.0f %% of their slots\nlimit        %s\n", r.BrokerBytes/1e6, 100*r.EngineBusy, r.Limit)
}
