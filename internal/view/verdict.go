package view

import (
	"fmt"
	"sync"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
)

// judged is the newest verdict on a run and the records that it is about, so that a request for which nothing is new reads no record.
type judged struct {
	mu sync.Mutex
	// generation is that of the numbers, known reports that the records are of it.
	generation    uint64
	known         bool
	steps, scores []report.Record
	tested        *report.Record
	// about is all else that verdict is about; "" is no verdict yet.
	about   string
	verdict report.Verdict
}

// judgeRun is the verdict on a run.
func (f *shownRun) judgeRun(o *Overview) report.Verdict {
	j := &f.judged
	j.mu.Lock()
	defer j.mu.Unlock()
	c := f.courseOf(o)
	about := fmt.Sprintf("%d %t %t %q %q %q", j.generation, c.Ended, c.Stopped, c.Quiet, c.Spoiled, fmt.Sprint(c.Failures))
	if about != j.about {
		j.about, j.verdict = about, report.Judge(c)
	}
	return j.verdict
}

// courseOf is what the verdict on a run is about. The caller holds the lock of judged.
func (f *shownRun) courseOf(o *Overview) report.Course {
	j, numbers := &f.judged, f.folder.Metrics
	if generation := numbers.Generation(); !j.known || generation != j.generation { // before the records: newer records are read again
		j.generation, j.known, j.tested = generation, true, nil
		j.steps, j.scores = numbers.All(schemas.EventStepDone), numbers.All(schemas.EventEvaluated)
		if tested := numbers.Newest(report.Tested, 1); len(tested) > 0 {
			j.tested = &tested[0]
		}
	}
	c := report.Course{Steps: j.steps, Scores: j.scores, Tested: j.tested, Failures: o.Failures}
	switch o.Summary.State {
	case runfolder.StateFinished:
		c.Ended = true
	case runfolder.StateStopped, runfolder.StateLeft:
		c.Stopped = true
	case runfolder.StateWaiting:
		c.Quiet = "no step is done: " + o.Summary.Detail
	}
	if n := len(c.Steps); n > 0 {
		c.Spoiled = spoiledBy(&c.Steps[n-1])
	}
	return c
}
