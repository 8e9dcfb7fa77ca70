package producers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// worker serves tickets; its slots share it.
type worker struct {
	cfg     Config
	stream  Stream
	envs    map[string]Environment // by task
	metrics *Metrics
	served  func(Served)
	failing func(schemas.Failing)
	log     *slog.Logger
	running *running
	// failures has a watch for each task.
	failures map[string]*failureWatch
	// endings has the watches of a task's episodes that end, or do not, for each task.
	endings map[string]*endingWatch
	// closing closes the sessions of episodes, off the path of the tickets.
	closing errgroup.Group
	// claims has the episodes that are not yet closed.
	claims *Claims
}

func newWorker(cfg Config, deps Deps) *worker {
	w := &worker{
		cfg: cfg, stream: deps.Stream, envs: map[string]Environment{}, metrics: deps.Metrics, served: deps.Served, failing: deps.Failing,
		running: newRunning(), failures: map[string]*failureWatch{}, endings: map[string]*endingWatch{}, log: deps.Log.With("producer", cfg.Name),
		claims: cmp.Or(deps.Claims, new(Claims)),
	}
	w.closing.SetLimit(cfg.Concurrency)
	for task, env := range deps.Environments {
		env.metrics = deps.Metrics
		if env.Recording == nil {
			env.stops = newStopTokens(env.Tokenizer)
		}
		env.late = &lateWatch{task: task, report: deps.Failing, metrics: deps.Metrics, now: time.Now}
		w.envs[task] = env
		w.failures[task] = new(failureWatch)
		w.endings[task] = newEndingWatch(task, env.AgentName, deps.Failing)
	}
	return w
}

// extendContext returns a context that ends, with this cause, so long after ctx does. The returned function ends it at once and waits until
// nothing is left of it.
func extendContext(ctx context.Context, by time.Duration, cause error) (context.Context, func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-stop:
			return
		}
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(cause)
		case <-stop:
		}
	}()
	return longer, func() {
		close(stop)
		<-stopped
		cancel(nil)
	}
}

// takeTicket waits for a ticket. While the control pauses, none is taken.
func (w *worker) takeTicket(ctx context.Context) (Lease, error) {
	for ctx.Err() == nil {
		lease, err := w.takeUnlessPaused(ctx)
		if lease != nil || err != nil {
			return lease, err
		}
	}
	return nil, ctx.Err()
}

// takeUnlessPaused returns neither a lease nor an error when a pause came or went while it waited.
func (w *worker) takeUnlessPaused(ctx context.Context) (Lease, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	paused, leave := w.running.enterTaking(cancel)
	defer leave()
	if paused != nil {
		select {
		case <-paused:
		case <-ctx.Done():
		}
		return nil, nil
	}
	lease, err := w.stream.Take(waiting)
	if err != nil && waiting.Err() != nil {
		return nil, nil
	}
	return lease, err
}

// serveTicket runs the episode of a ticket and ends its lease. Working bounds the episode, settling the end of the lease. It returns the
// error that the producer ends with; nil where it goes on.
func (w *worker) serveTicket(working, settling context.Context, lease Lease) error {
	ticket := lease.Ticket()
	log := w.log.With("ticket", ticket.ID, "delivery", lease.Delivery())
	w.metrics.episodeRunning(1)
	defer w.metrics.episodeRunning(-1)

	story := Served{Ticket: ticket, Delivery: lease.Delivery(), Producer: w.cfg.Name, Leased: time.Now()}
	trajectory, journal, err := w.playTicket(working, lease, false, &story)
	for range mostStands {
		if !errors.Is(err, errJournalStands) {
			break
		}
		journal.close()
		trajectory, journal, err = w.playTicket(working, lease, true, &story)
	}
	defer journal.close()
	if err == nil {
		// A lease that is lost now ends nothing: the work is done, and where another producer does it again only the first counts.
		err = w.publishTrajectory(working, trajectory, &story)
	}
	if cause := context.Cause(working); err != nil && cause != nil {
		err = cause
	}
	if w.served != nil {
		story.Ended, story.Err = time.Now(), err
		w.served(story)
	}
	if errors.Is(err, ErrStops) {
		w.releaseTicket(settling, lease, 0, log)
		return err
	}
	w.endTicket(settling, lease, journal, err, log)
	return nil
}

// mostStands bounds how often a producer begins an episode again because its journal, which seemed empty, is not.
const mostStands = 3

// playTicket runs the episode of a ticket, from where its journal ends where stands says that it has a journal, or its deliveries do. The
// caller closes the journal.
func (w *worker) playTicket(working context.Context, lease Lease, stands bool, story *Served) (*schemas.Trajectory, *journal, error) {
	ctx, cancel := context.WithCancelCause(working)
	defer cancel(nil)
	unwatch := watchLease(ctx, lease, cancel)
	defer unwatch()
	var trajectory *schemas.Trajectory
	journal, err := w.openJournal(ctx, lease, stands, cancel)
	if err == nil {
		trajectory, err = w.produceTrajectory(ctx, lease.Ticket(), cancel, journal, story)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return trajectory, journal, err
}

// endTicket ends the lease of a ticket whose work ended with an error, nil where its trajectory is stored.
func (w *worker) endTicket(settling context.Context, lease Lease, journal *journal, err error, log *slog.Logger) {
	ticket := lease.Ticket()
	switch {
	case err == nil:
		w.noteOutcome(ticket.Task, nil)
		w.acknowledge(settling, lease, log)
		journal.end(settling)
	case errors.Is(err, errEpisodeOver):
		w.metrics.episodeDropped("over", "")
		log.Debug("the ticket is acknowledged once more: its episode is over")
		w.acknowledge(settling, lease, log)
	case errors.Is(err, ErrNotRecorded):
		w.metrics.episodeDropped("not_recorded", "")
		log.Debug("the sample is closed", "err", err)
		w.closeSample(settling, lease, nil, err, log)
	case errors.Is(err, errLeaseLost):
		w.metrics.episodeDropped("lease_lost", "")
		log.Warn("lease lost: the ticket is somebody else's now")
		select {
		case <-lease.Lost():
		default: // its journal is of an earlier issue of the ticket: the next delivery may take it up
			w.releaseTicket(settling, lease, w.cfg.RetryDelay, log)
		}
	case errors.Is(err, errStale), errors.Is(err, errCancelled):
		w.metrics.episodeDropped("cancelled", "")
		w.closeSample(settling, lease, journal, err, log)
	case endsForTools(err):
		w.metrics.episodeDropped(dropReason(err, ""), "")
		log.Warn("an episode of another producer cannot go on: its sample is closed", "err", err)
		w.closeSample(settling, lease, journal, err, log)
	case errors.Is(err, errDraining):
		w.metrics.episodeDropped("drained", "")
		journal.keep(settling)
		w.releaseTicket(settling, lease, 0, log)
	case Unserved(err):
		w.metrics.episodeDropped("unserved", "")
		log.Info("the engines are full or away: the ticket goes back", "err", err)
		journal.keep(settling)
		w.releaseTicket(settling, lease, w.cfg.RetryDelay, log)
	case errors.Is(err, ErrNotBegun):
		w.metrics.episodeDropped("not_begun", "")
		level, delay := slog.LevelDebug, w.cfg.RetryDelay
		if errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNoRoom) { // this producer can begin none
			delay = w.cfg.retryDelay(countDeliveries(lease))
			if w.noteOutcome(ticket.Task, err) {
				level = slog.LevelWarn
			}
		}
		log.Log(settling, level, "the ticket goes back", "err", err, "delay", delay)
		journal.keep(settling)
		w.releaseTicket(settling, lease, delay, log)
	case errors.Is(err, ErrNoRoom):
		w.metrics.episodeDropped("no_room", "")
		log.Info("nobody has room for a call of the episode, or for its reward: the ticket goes back", "err", err)
		journal.keep(settling)
		w.releaseTicket(settling, lease, w.cfg.RetryDelay, log)
	case lease.Delivery() >= w.cfg.MaxDeliver, isUnretryable(err):
		w.metrics.episodeDropped(dropReason(err, "failed"), causeLabel(err))
		level := slog.LevelError
		if !w.noteOutcome(ticket.Task, err) {
			level = slog.LevelDebug
		}
		log.Log(settling, level, "episode failed for the last time: its sample is closed", "err", err)
		w.closeSample(settling, lease, journal, err, log)
	default:
		w.metrics.episodeDropped(dropReason(err, "returned"), causeLabel(err))
		delay := w.cfg.retryDelay(lease.Delivery())
		level := slog.LevelWarn
		if !w.noteOutcome(ticket.Task, err) {
			level = slog.LevelDebug
		}
		log.Log(settling, level, "episode failed: the ticket goes back", "err", err, "delay", delay)
		if errors.Is(err, ErrUnavailable) {
			journal.keep(settling) // nothing was wrong with what it has done
		} else {
			journal.empty(settling)
		}
		w.giveBack(settling, lease, delay, log)
	}
}

// noteOutcome takes the end of an attempt at a ticket, nil for a success, and reports a spell of failures where a report is due. It returns
// whether the log is to have the failure itself: the first few of a spell, and each doubling.
func (w *worker) noteOutcome(task string, err error) (logged bool) {
	watch := w.failures[task]
	if watch == nil {
		return true // no environment of this producer
	}
	w.envs[task].late.endSpell()
	report, due := watch.addOutcome(task, err, time.Now())
	if due && w.failing != nil {
		w.failing(report)
	}
	return watch.isLogged()
}

// dropReason returns the label that an episode without a trajectory is counted under.
func dropReason(err error, otherwise string) string {
	switch {
	case errors.Is(err, errUncertainCall), errors.Is(err, errRecordLost):
		return "uncertain_call"
	case errors.Is(err, errSessionLost):
		return "session_lost"
	case errors.Is(err, errUnknownTask):
		return "unknown_task"
	case findPanic(err) != nil:
		return "panicked"
	}
	return otherwise
}

// causeLabel returns the cause of a failure as a label; "" where the label of dropReason says it.
func causeLabel(err error) string {
	if dropReason(err, "") != "" {
		return ""
	}
	return failureCause(err)
}

// quoteNames lists the names of tasks, sorted.
func quoteNames(envs map[string]Environment) string {
	names := slices.Sorted(maps.Keys(envs))
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return strings.Join(names, ", ")
}

// isUnretryable reports whether another try, with the same seed, would fail in the same way.
func isUnretryable(err error) bool {
	return findPanic(err) != nil || errors.Is(err, errNothingSampled) || errors.Is(err, ErrPrompt) || errors.Is(err, streams.ErrTooLarge) || errors.Is(err, schemas.ErrInvalid)
}

// produceTrajectory runs the episode and cancels it where the control no longer allows it.
func (w *worker) produceTrajectory(
	ctx context.Context, ticket *schemas.Ticket, cancel context.CancelCauseFunc, journal *journal, story *Served,
) (*schemas.Trajectory, error) {
	env, known := w.envs[ticket.Task]
	if !known {
		return nil, fmt.Errorf("%w %q: this producer has %s", errUnknownTask, ticket.Task, quoteNames(w.envs))
	}
	if env.Recording != nil {
		trajectory, err := recallTrajectory(ctx, ticket, env.Recording)
		if err != nil {
			logBroken(w.log.With("ticket", ticket.ID), err)
			return nil, err
		}
		trajectory.Producer = w.cfg.Name
		return trajectory, nil
	}
	closed, err := w.claims.Claim(ctx, ticket.ID)
	if err != nil {
		return nil, err
	}
	entry := w.running.addEpisode(ticket, env, cancel)
	defer w.running.removeEpisode(entry)
	entry.episode.keepJournal(journal)
	closeSessions := sync.OnceFunc(func() { entry.episode.closeSessions(ctx) })
	defer w.closing.Go(func() error {
		defer closed()
		closeSessions()
		return nil
	})
	trajectory, _, err := runRollout(ctx, entry.episode)
	if w.served != nil {
		story.Turns = entry.episode.turnTimes()
	}
	if err != nil {
		logBroken(w.log.With("ticket", ticket.ID), err)
		return nil, err
	}
	trajectory.Producer = w.cfg.Name
	if w.cfg.Values.Samples > 0 {
		closeSessions() // the episodes that go on from its states may need its place
	}
	if err := w.estimateValues(ctx, entry.episode, trajectory); err != nil {
		return nil, err
	}
	w.endings[ticket.Task].addEnded(entry.episode, trajectory.Stop)
	return trajectory, nil
}

// publishTrajectory stores the trajectory. The ticket is acknowledged after it: a crash in between can only duplicate the trajectory, never
// lose it.
func (w *worker) publishTrajectory(ctx context.Context, trajectory *schemas.Trajectory, story *Served) error {
	start := time.Now()
	story.Publishing = start
	if err := w.stream.Publish(ctx, trajectory); err != nil {
		return err
	}
	story.Stored, story.Trajectory = time.Now(), trajectory
	w.metrics.observePublished(trajectory, time.Since(start))
	return nil
}

// acknowledge acknowledges a ticket whose trajectory is stored.
func (w *worker) acknowledge(ctx context.Context, lease Lease, log *slog.Logger) {
	if err := lease.Done(ctx); err != nil {
		log.Warn("could not mark the ticket done: it will be served again and its trajectory counted once", "err", err)
	}
}

// closeSample publishes that the sample will not come, then ends the ticket; where that fails, the ticket goes back, so that another
// producer closes the sample.
func (w *worker) closeSample(ctx context.Context, lease Lease, journal *journal, why error, log *slog.Logger) {
	t := lease.Ticket()
	err := w.stream.CloseGroup(ctx, &schemas.GroupClosed{
		Run: t.Run, Group: t.Group, Cancelled: []int{t.Sample}, Why: why.Error(), Producer: w.cfg.Name, ClosedAt: time.Now().UTC(),
	})
	if err != nil {
		log.Warn("could not close the sample: the ticket goes back", "err", err)
		w.giveBack(ctx, lease, w.cfg.RetryDelay, log)
		return
	}
	w.acknowledge(ctx, lease, log)
	journal.end(ctx)
}

func (w *worker) giveBack(ctx context.Context, lease Lease, delay time.Duration, log *slog.Logger) {
	if err := lease.Return(ctx, delay); err != nil {
		log.Warn("could not return the ticket: its lease will lapse", "err", err)
	}
}

// releaseTicket gives back a ticket that has not failed.
func (w *worker) releaseTicket(ctx context.Context, lease Lease, delay time.Duration, log *slog.Logger) {
	if err := lease.Release(ctx, delay); err != nil {
		log.Warn("could not return the ticket: its lease will lapse", "err", err)
	}
}

// watchLease cancels when the lease lapses, until the returned function is called.
func watchLease(ctx context.Context, lease Lease, cancel context.CancelCauseFunc) func() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-lease.Lost():
			cancel(errLeaseLost)
		case <-ctx.Done():
		case <-stop:
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
