package episodes

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/bias"
)

// Report compares episodes whose producers were killed with the same tickets left alone.
type Report struct {
	Config Config  `json:"config"`
	Alone  *Played `json:"alone"`
	Killed *Played `json:"killed"`
	// LengthP and DurationP are the probabilities of a Kolmogorov-Smirnov distance as great as that of the trained trajectories' sampled
	// tokens, and seconds, from those of the episodes left alone.
	LengthP   float64 `json:"length_p"`
	DurationP float64 `json:"duration_p"`
	// Other counts trajectories that are not the undisturbed one of their ticket, where both came.
	Other int `json:"other"`
	// AgainShare is the share of sampled tokens that had been sampled before, Effective the share of the wall-clock that was not lost,
	// LostSeconds the wall-clock lost for each kill.
	AgainShare  float64 `json:"sampled_again_share"`
	Effective   float64 `json:"effective_time"`
	LostSeconds float64 `json:"lost_seconds_per_kill"`
}

// Compare makes a report of two plays of the same tickets.
func Compare(c Config, alone, killed *Played) *Report {
	r := &Report{Config: c, Alone: alone, Killed: killed, LengthP: 1, DurationP: 1, Effective: min(1, alone.Seconds/killed.Seconds)}
	if killed.Sampled > 0 {
		r.AgainShare = float64(killed.SampledAgain) / float64(killed.Sampled)
	}
	if killed.Kills > 0 {
		r.LostSeconds = max(0, killed.Seconds-alone.Seconds) / float64(killed.Kills)
	}
	length := func(t *schemas.Trajectory) float64 { return float64(t.ActionTokens()) }
	duration := func(t *schemas.Trajectory) float64 { return t.FinishedAt.Sub(t.StartedAt).Seconds() }
	r.LengthP = bias.Compare(killed.sampleOf(length), alone.sampleOf(length)).P
	r.DurationP = bias.Compare(killed.sampleOf(duration), alone.sampleOf(duration)).P
	r.Other = countOther(alone, killed)
	return r
}

// sampleOf is the trajectories' values of a measure.
func (p *Played) sampleOf(measure func(*schemas.Trajectory) float64) bias.Sample {
	var values []float64
	for _, t := range p.trajectories {
		values = append(values, measure(t))
	}
	return bias.NewSample(values, len(values))
}

// plainTrajectory is a trajectory without its producer and its times.
func plainTrajectory(t *schemas.Trajectory) schemas.Trajectory {
	out := *t
	out.Producer, out.StartedAt, out.FinishedAt, out.Turns = "", time.Time{}, time.Time{}, nil
	for _, turn := range t.Turns {
		calls := turn.Calls
		turn.Calls = nil
		for _, call := range calls {
			call.Duration = 0
			turn.Calls = append(turn.Calls, call)
		}
		out.Turns = append(out.Turns, turn)
	}
	return out
}

// Err is nil where every promise of the journal was kept: lengths and durations as undisturbed, no call with an effect made twice, and
// fewer than one token in a hundred sampled again.
func (r *Report) Err() error {
	var errs []error
	if n := r.Killed.OutsideTwice; n > 0 {
		errs = append(errs, fmt.Errorf("%d calls with an effect outside were made twice", n))
	}
	if r.LengthP <= 0.05 || r.DurationP <= 0.05 {
		errs = append(errs, fmt.Errorf(
			"what is trained on differs from the undisturbed episodes: p %.2g of lengths, %.2g of durations", r.LengthP, r.DurationP,
		))
	}
	if r.Other > 0 {
		errs = append(errs, fmt.Errorf("%d trajectories are not the undisturbed ones of their tickets", r.Other))
	}
	if r.AgainShare >= 0.01 {
		errs = append(errs, fmt.Errorf("%.2g %% of the tokens were sampled again", 100*r.AgainShare))
	}
	return errors.Join(errs...)
}

// Print writes the report.
func (r *Report) Print(out io.Writer) {
	t := harness.NewTable(out, "", "left alone", "producers killed")
	both := func(name, format string, of func(*Played) any) {
		t.AppendRow([]any{name, fmt.Sprintf(format, of(r.Alone)), fmt.Sprintf(format, of(r.Killed))})
	}
	killed := func(name, format string, values ...any) { t.AppendRow([]any{name, "", fmt.Sprintf(format, values...)}) }
	both("seconds", "%.0f", func(p *Played) any { return p.Seconds })
	both("kills", "%d", func(p *Played) any { return p.Kills })
	both("episodes taken up", "%d", func(p *Played) any { return p.TakenUp })
	both("trained on", "%d", func(p *Played) any { return p.Trained })
	both("samples closed", "%d", func(p *Played) any {
		n := 0
		for _, k := range p.Closed {
			n += k
		}
		return n
	})
	both("tokens sampled", "%d", func(p *Played) any { return p.Sampled })
	both("sampled again", "%d", func(p *Played) any { return p.SampledAgain })
	both("calls with an effect made twice", "%d", func(p *Played) any { return p.OutsideTwice })
	both("other calls that ended twice", "%d", func(p *Played) any { return p.AnsweredTwice })
	both("records of journals", "%d", func(p *Played) any { return p.JournalRecords })
	both("bytes of journals", "%d", func(p *Played) any { return p.JournalBytes })
	both("processor time of producers a trajectory, ms", "%.2f", func(p *Played) any {
		return 1e3 * p.ProcessorSeconds / float64(max(1, p.Trained))
	})
	killed("share sampled again", "%.2f %%", 100*r.AgainShare)
	killed("trajectories unlike the undisturbed", "%d", r.Other)
	killed("p of lengths", "%.3g", r.LengthP)
	killed("p of durations", "%.3g", r.DurationP)
	killed("seconds lost a kill", "%.2f", r.LostSeconds)
	killed("effective training time", "%.1f %%", 100*r.Effective)
	t.Render()
	for why, n := range r.Killed.Closed {
		fmt.Fprintf(out, "closed %d: %s\n", n, why)
	}
}
