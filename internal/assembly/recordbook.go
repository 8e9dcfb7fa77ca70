package assembly

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// View shows a run to people as it goes on. A *report.Progress implements it.
type View interface {
	// History takes the records of earlier processes of the run, Add the records that come.
	History(records []report.Record)
	Add(r report.Record)
	// ColdStart takes the numbers of the cold start, Dropped takes how many groups were dropped and kept for a step, and the trouble that
	// keeps the step from being made; "" where there is none.
	ColdStart(numbers map[string]float64)
	Dropped(step int64, dropped, kept int, trouble string)
	// Failing takes the tasks whose episodes fail, when that changes; none where all succeed again.
	Failing(failures []report.Failure)
	// Note shows a line or several.
	Note(text string)
	// Rollout shows a rollout of a version.
	Rollout(version int64, r *report.Rollout)
}

// recordBook writes down the events of a run: in metrics.jsonl, on the view, and as events for others to see.
type recordBook struct {
	log   *slog.Logger
	run   *streams.Run
	file  *report.Recorder
	view  View
	watch watch
}

func (b *recordBook) addEvent(ctx context.Context, e schemas.Event) {
	switch {
	case e.Type == schemas.EventColdStart:
		b.view.ColdStart(e.Metrics)
	case e.Type == schemas.EventDropped:
		b.view.Dropped(e.Step, int(e.Metrics[metrics.GatherDropped.Name]), int(e.Metrics[metrics.GatherKept.Name]), e.Message)
		if e.Message == "" {
			return
		}
	case len(e.Metrics) > 0:
		rec := report.Record{At: e.At, Type: string(e.Type), Step: e.Step, PolicyVersion: e.PolicyVersion, Metrics: e.Metrics}
		if err := b.file.Append(rec); err != nil {
			b.log.Warn("write down a step", "err", err)
		}
		b.view.Add(rec)
		if told := b.watch.addEvent(e); told != "" {
			b.view.Note(told)
			b.log.Warn("far fewer held-out answers are right than in training: the questions are learnt by heart", "policy_version", e.PolicyVersion)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := b.run.Emit(ctx, &e); err != nil {
		b.log.Debug("emit an event", "type", e.Type, "err", err)
	}
}
