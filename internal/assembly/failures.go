package assembly

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// resendEvery is how long a report waits that the broker did not take, until it is sent again.
const resendEvery = 5 * time.Second

// failureReports sends the newest report of each kind and task. An older report that was not sent is left out, as a later report has its
// counts. The newest is sent until it is stored: else a spell of failures whose end was lost would stand for as long as the producer lives.
type failureReports struct {
	send   func(context.Context, schemas.Failing) error
	resend time.Duration
	wake   chan struct{}

	mu     sync.Mutex
	unsent map[reportKey]schemas.Failing
}

// reportKey names what a report is about.
type reportKey struct {
	task string
	kind schemas.FailingKind
}

// newFailureReports makes the reports that send stores.
func newFailureReports(send func(context.Context, schemas.Failing) error, resend time.Duration) *failureReports {
	return &failureReports{send: send, resend: resend, wake: make(chan struct{}, 1), unsent: map[reportKey]schemas.Failing{}}
}

// addReport has a report sent in the place of an older one of its kind and task. It does not wait.
func (r *failureReports) addReport(f schemas.Failing) {
	r.mu.Lock()
	r.unsent[reportKey{f.Task, f.Kind()}] = f
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// sendReports tries each unsent report once. It returns whether the broker has stored all of them.
func (r *failureReports) sendReports(ctx context.Context) bool {
	r.mu.Lock()
	pending := r.unsent
	r.unsent = map[reportKey]schemas.Failing{}
	r.mu.Unlock()
	for key, f := range pending {
		if r.send(ctx, f) == nil {
			delete(pending, key)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	newer := r.unsent
	r.unsent = pending
	maps.Copy(r.unsent, newer)
	return len(pending) == 0
}

// lastWithin bounds the sending of the reports that are unsent at the end: with the broker away each would take its time.
const lastWithin = 2 * time.Second

// runReports sends reports until ctx ends. The reports that are unsent then are tried once more.
func (r *failureReports) runReports(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWithin, cancel) })()
	for {
		var late <-chan time.Time
		if !r.sendReports(sending) {
			late = time.After(r.resend)
		}
		select {
		case <-r.wake:
		case <-late:
		case <-ctx.Done():
			r.sendReports(sending)
			return
		}
	}
}

// The messages of the log about failures, which the lines of a run's progress have too.
const (
	logFailing = "episodes fail"
	logLate    = "the agent goes on asking after its episode ended"
	logOverdue = "an episode does not end"
	logLimited = "a limit ends nearly every episode"
)

// ShownByProgress reports whether a message of the log is an alarm that a [View] shows by itself.
func ShownByProgress(message string) bool {
	return slices.Contains([]string{logFailing, logLate, logOverdue, logLimited}, message)
}

// reportFailures returns the function by which a producer reports episodes that fail: each report is a line of the log and an event of
// the run. stop sends the reports that were made.
func reportFailures(
	ctx context.Context, log *slog.Logger, run *streams.Run, worker string,
) (reportFailing func(schemas.Failing), stop func()) {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	reports := newFailureReports(func(ctx context.Context, f schemas.Failing) error {
		return emitFailing(ctx, log, run, worker, f)
	}, resendEvery)
	var sending sync.WaitGroup
	sending.Go(func() { reports.runReports(ctx) })
	reportFailing = func(f schemas.Failing) {
		logReport(log, &f)
		reports.addReport(f)
	}
	return reportFailing, func() {
		end()
		sending.Wait()
	}
}

// logReport writes a report into the log.
func logReport(log *slog.Logger, f *schemas.Failing) {
	log = log.With("task", f.Task)
	switch kind := f.Kind(); {
	case kind == schemas.FailingLate && f.Over:
		log.Info("no agent asks any more after its episode ended", "requests", f.Late)
	case kind == schemas.FailingLate:
		log.Warn(logLate, "requests", f.Late, "last", f.Last)
	case kind == schemas.FailingOverdue && f.Over:
		log.Info("each episode ends again")
	case kind == schemas.FailingOverdue:
		log.Warn(logOverdue, "episodes", f.Overdue, "oldest", f.Last)
	case kind == schemas.FailingLimited && f.Over:
		log.Info("episodes end by themselves again", "limited", f.Limited, "of", f.Ended)
	case kind == schemas.FailingLimited:
		log.Warn(logLimited, "limited", f.Limited, "of", f.Ended, "by", f.Last)
	case f.Over:
		log.Info("episodes succeed again", "failed", f.Failed, "succeeded", f.Succeeded)
	default:
		log.Error(logFailing, "failed", f.Failed, "succeeded", f.Succeeded, "by_cause", f.ByCause, "last", f.Last)
	}
}

// emitFailing stores a report as an event.
func emitFailing(ctx context.Context, log *slog.Logger, run *streams.Run, worker string, f schemas.Failing) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := run.Emit(ctx, f.Event(run.Name(), worker, time.Now()))
	if err != nil {
		log.Debug("emit an event", "type", schemas.EventFailing, "err", err)
	}
	return err
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
