// Package distances compares what several runs have trained on: lengths, times of tools and durations of their trajectories, as distances
// from the trajectories of a reference, such as the synchronous run.
package distances

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/bias"
	"github.com/weir-rl/weir/trainer/checkpoint"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Run is a run and what it has trained on.
type Run struct {
	Name string `json:"name"`
	// Trained counts the trajectories, Seconds is the time of the steps. Refused counts trajectories that were too old, CutOff
	// the samples that were cut off for it.
	Trained int     `json:"trained"`
	Seconds float64 `json:"seconds"`
	Refused int     `json:"refused"`
	CutOff  int     `json:"cut_off"`
	// Greedy and Sampled are the test scores; 0 before the end.
	Greedy  float64 `json:"greedy"`
	Sampled float64 `json:"sampled"`
	// Measures are the lengths in sampled tokens, the seconds of tools, the slow calls of tools, and the seconds from start to end.
	Measures []Measure `json:"measures"`

	values [][]float64
}

// Measure is a measure of the trained trajectories: its mean, and its Kolmogorov-Smirnov distance from the reference, with the
// probability of a distance as great by chance. Prompts, not trajectories, are the size of the sample.
type Measure struct {
	Name     string  `json:"name"`
	Mean     float64 `json:"mean"`
	Distance float64 `json:"distance"`
	P        float64 `json:"p"`
}

// names are the names of the measures, in the order of values.
var names = []string{"length", "tools", "slow calls", "duration"}

// slow is how long a slow call of a tool takes at least. Clock times of short calls move with the load of the machine; which calls are slow
// does not.
const slow = time.Second

// Compare reads the runs in a folder whose messages are kept, and holds each against the run named reference. Runs that have done no step
// are passed over.
func Compare(dir, reference string) ([]*Run, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of the runs: %w", err)
	}
	var all []*Run
	prompts := map[string]int{}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "checkpoints")); !e.IsDir() || err != nil {
			continue
		}
		run, groups, err := readRun(filepath.Join(dir, e.Name()))
		if errors.Is(err, errNoStep) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", e.Name(), err)
		}
		all, prompts[run.Name] = append(all, run), groups
	}
	at := slices.IndexFunc(all, func(r *Run) bool { return r.Name == reference })
	if at < 0 {
		return nil, fmt.Errorf("reference %q: no run of that name in %s", reference, dir)
	}
	for _, r := range all {
		for i, name := range names {
			own, other := bias.NewSample(r.values[i], prompts[r.Name]), bias.NewSample(all[at].values[i], prompts[reference])
			m := Measure{Name: name, P: 1}
			if len(own.Values) > 0 && len(other.Values) > 0 {
				m.Mean, m.Distance, m.P = meanOf(own.Values), bias.Distance(own.Values, other.Values), bias.Compare(own, other).P
			}
			r.Measures = append(r.Measures, m)
		}
	}
	return all, nil
}

func meanOf(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	return mean
}

// readRun reads a run's folder. groups counts the groups that were trained on.
func readRun(dir string) (run *Run, groups int, err error) {
	run = &Run{Name: filepath.Base(dir), values: make([][]float64, len(names))}
	checkpoints := filepath.Join(dir, "checkpoints")
	trained := map[string]bool{}
	for r, err := range checkpoint.Records(checkpoints) {
		if err != nil {
			return nil, 0, err
		}
		groups += len(r.Groups)
		for _, g := range r.Groups {
			for _, m := range g.Members {
				trained[m.ID] = true
			}
		}
	}
	for m, err := range messages.All(archive.DefaultConfig().MessagesFolder(checkpoints)) {
		if err != nil {
			return nil, 0, err
		}
		if m.ID == "" || !trained[m.ID] {
			continue
		}
		t := new(schemas.Trajectory)
		if err := schemas.Unmarshal(m.Data, t); err != nil {
			return nil, 0, fmt.Errorf("message %d: %w", m.Sequence, err)
		}
		trained[m.ID] = false // a message that came twice
		run.addTrajectory(t)
	}
	return run, groups, run.readMetrics(filepath.Join(dir, "metrics.jsonl"))
}

func (r *Run) addTrajectory(t *schemas.Trajectory) {
	tools, slowCalls := 0.0, 0.0
	for i := range t.Turns {
		tools += t.Turns[i].Duration().Seconds()
		for _, call := range t.Turns[i].Calls {
			if call.Duration >= slow {
				slowCalls++
			}
		}
	}
	for i, v := range []float64{float64(t.ActionTokens()), tools, slowCalls, t.FinishedAt.Sub(t.StartedAt).Seconds()} {
		r.values[i] = append(r.values[i], v)
	}
	r.Trained++
}

var errNoStep = errors.New("no step is recorded in metrics.jsonl")

func (r *Run) readMetrics(path string) error {
	records, err := report.ReadMetrics(path)
	if err != nil {
		return err
	}
	for _, rec := range records {
		switch rec.Type {
		case string(schemas.EventStepDone):
			r.Seconds += metrics.TimeStep.In(rec.Metrics)
			r.Refused += int(rec.Metrics[metrics.Rejected.Of(string(schemas.ReasonStale))])
			r.CutOff += int(metrics.CancelledSamples.In(rec.Metrics))
		case report.Tested:
			r.Greedy = metrics.TestExactMatchGreedy.In(rec.Metrics)
			r.Sampled = metrics.TestExactMatchSampled.In(rec.Metrics)
		}
	}
	if len(records) == 0 {
		return errNoStep
	}
	return nil
}

// Print writes a table of the runs.
func Print(out io.Writer, runs []*Run) {
	header := []any{"run", "trained", "seconds", "refused", "cut off", "greedy", "temperature 1"}
	for _, name := range names {
		header = append(header, name, "KS", "p")
	}
	t := harness.NewTable(out, header...)
	for _, r := range runs {
		row := []any{
			r.Name, r.Trained, fmt.Sprintf("%.1f", r.Seconds), r.Refused, r.CutOff,
			fmt.Sprintf("%.3f", r.Greedy), fmt.Sprintf("%.3f", r.Sampled),
		}
		for _, m := range r.Measures {
			row = append(row, fmt.Sprintf("%.3g", m.Mean), fmt.Sprintf("%.3f", m.Distance), fmt.Sprintf("%.2g", m.P))
		}
		t.AppendRow(row)
	}
	t.Render()
}
