package runfolder

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// Remains is what a run's folder shows of the run by itself, without its streams.
type Remains struct {
	// Noted is the broker that the folder names, "" for none: a run takes the note back when it ends in order. Up reports that it answers.
	Noted string
	Up    bool
	// Dir is the folder, There reports whether it is a run's.
	Dir   string
	There bool
	// Wrote is when the run last wrote to the file LastFile; the zero time where it has written none.
	Wrote    time.Time
	LastFile string
	// Step is the last step that was done and At its end; -1 and the zero time where there is none. Steps is the configured number, 0 where
	// the folder does not have it.
	Step, Steps int64
	At          time.Time
	// Checkpoint is the newest checkpoint's step, -1 where there is none.
	Checkpoint int64
	// Error is the newest error in the log; "" where there is none.
	Error string
}

// ReadRemains reads the folder of a run. A file that cannot be read counts as a missing file.
func ReadRemains(r Run) Remains {
	f := Open(r)
	defer f.Close()
	out := Remains{Dir: r.Dir, There: Is(r.Dir), Step: -1, Checkpoint: -1}
	_ = f.Metrics.refreshLines()
	out.Steps = int64(f.Int(0, "trainer", "steps"))
	if newest := f.Metrics.Newest(schemas.EventStepDone, 1); len(newest) > 0 {
		out.Step, out.At = newest[0].Step, newest[0].At
	}
	if steps, err := checkpoint.Steps(f.Checkpoints); err == nil {
		for _, step := range steps {
			out.Checkpoint = max(out.Checkpoint, step)
		}
	}
	for _, file := range []string{
		filepath.Join(r.Dir, ConfigFile), filepath.Join(r.Dir, LogFile), filepath.Join(r.Dir, MetricsFile),
		filepath.Join(f.Checkpoints, checkpoint.RecordFile),
	} {
		if info, err := os.Stat(file); err == nil && info.ModTime().After(out.Wrote) {
			out.Wrote, out.LastFile = info.ModTime(), file
		}
	}
	if lines, err := f.Log(1, true); err == nil && len(lines) > 0 && lines[0].Level == "ERROR" {
		out.Error = strings.TrimSpace(lines[0].Text + " " + lines[0].Rest)
	}
	return out
}

// Finished reports whether all configured steps are done.
func (r *Remains) Finished() bool { return r.Steps > 0 && r.Step >= r.Steps }

// startsWithin is how long after its newest line a run without a step may still be starting.
const startsWithin = 2 * time.Minute

// Lines tells at an instant what the folder shows, a sentence a line.
func (r *Remains) Lines(now time.Time) []string {
	if !r.There {
		return []string{fmt.Sprintf("the run has not begun on this machine: %s is no folder of a run", r.Dir)}
	}
	lines := []string{fmt.Sprintf("%s was last written to %s", cmp.Or(r.LastFile, r.Dir), Ago(r.Wrote, now))}
	if r.Wrote.IsZero() {
		lines[0] = r.Dir + " has no configuration, log or numbers"
	}
	lines = append(lines, r.describeSteps(now))
	switch {
	case r.Finished():
		lines = append(lines, "the run finished: all its steps are done")
	case r.Up:
		lines = append(lines, "the run is up: its broker answers at "+r.Noted)
	case r.Noted != "":
		lines = append(lines, fmt.Sprintf("the run was killed, or its machine stopped: its folder still names the broker at %s, which does not answer", r.Noted))
	case r.Step < 0 && now.Sub(r.Wrote) < startsWithin:
		lines = append(lines, "the run may be starting: ask again in a moment")
	case r.Step < 0:
		lines = append(lines, "the run ended before its first step")
	default:
		lines = append(lines, "the run ended before its last step")
	}
	if r.Error != "" && !r.Finished() {
		lines = append(lines, "the newest error in "+filepath.Join(r.Dir, LogFile)+": "+report.Plain(r.Error))
	}
	return lines
}

// describeSteps says how far the run came.
func (r *Remains) describeSteps(now time.Time) string {
	saved := "there is no checkpoint"
	if r.Checkpoint >= 0 {
		saved = fmt.Sprintf("the newest checkpoint is of step %d", r.Checkpoint)
	}
	switch {
	case r.Step < 0:
		return "no step is done; " + saved
	case r.Steps > 0:
		return fmt.Sprintf("step %d of %d is done, %s; %s", r.Step, r.Steps, Ago(r.At, now), saved)
	}
	return fmt.Sprintf("step %d is done, %s; %s", r.Step, Ago(r.At, now), saved)
}
