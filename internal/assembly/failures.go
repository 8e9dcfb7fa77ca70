package assembly

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// reportsAhead bounds the reports of failures that wait for the broker; further ones are dropped, as a later report has their counts.
const reportsAhead = 64

// reportFailures returns the function by which a producer reports episodes that fail: each report is a line of the log and an event of
// the run. stop waits for the reports that were made.
func reportFailures(
	ctx context.Context, log *slog.Logger, run *streams.Run, worker string,
) (reportFailing func(schemas.Failing), stop func()) {
	ctx = context.WithoutCancel(ctx)
	reports := make(chan schemas.Failing, reportsAhead)
	var sending sync.WaitGroup
	sending.Go(func() {
		for f := range reports {
			emitFailing(ctx, log, run, worker, f)
		}
	})
	reportFailing = func(f schemas.Failing) {
		if f.Over {
			log.Info("episodes succeed again", "task", f.Task, "failed", f.Failed, "succeeded", f.Succeeded)
		} else {
			log.Error("episodes fail", "task", f.Task, "failed", f.Failed, "succeeded", f.Succeeded, "by_cause", f.ByCause, "last", f.Last)
		}
		select {
		case reports <- f:
		default:
		}
	}
	return reportFailing, func() {
		close(reports)
		sending.Wait()
	}
}

// emitFailing stores a report as an event. Nothing depends on it.
func emitFailing(ctx context.Context, log *slog.Logger, run *streams.Run, worker string, f schemas.Failing) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := run.Emit(ctx, f.Event(run.Name(), worker, time.Now())); err != nil {
		log.Debug("emit an event", "type", schemas.EventFailing, "err", err)
	}
}

// showFailures shows the tasks whose episodes fail, by the events of the producers, until ctx ends.
func (t *trainerRole) showFailures(ctx context.Context) {
	var failures report.Failures
	err := t.run.FollowEvents(ctx, streams.EventsFromNow, func(e *schemas.Event) {
		if failures.AddEvent(e) {
			t.view.Failing(failures.List())
		}
	})
	if err != nil {
		t.log.Warn("the live view does not show episodes that fail: the log of the producers and weir status have them", "err", err)
	}
}
