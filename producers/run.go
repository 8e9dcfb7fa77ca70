package producers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
)

// Deps are the parts that a producer works with.
type Deps struct {
	Stream Stream
	// Environments are the episodes' environments by the name of the ticket's task; at least one. A ticket of a task that is not
	// among them goes back for another producer, and when it was delivered Config.MaxDeliver times its sample is closed, the
	// task named in the marker's Why and in the log.
	Environments map[string]Environment
	// Claims are those of the producers of this process that share Environments; nil where no other producer does.
	Claims *Claims
	// Metrics count the episodes of all tasks; nil counts nothing.
	Metrics *Metrics
	// Served is told of every ticket when the work on it has ended, by many goroutines at once, and must not wait; nil is told of
	// none.
	Served func(Served)
	// Failing is told when many episodes of a task fail, do not end, or are ended by a limit, at each doubling of their number, and when that
	// is over; by many goroutines at once. It must not wait. nil is told of none.
	Failing func(schemas.Failing)
	// Log defaults to none.
	Log *slog.Logger
}

// checkEnvironments reports every fault of every environment.
func (d Deps) checkEnvironments() error {
	var faults []error
	if d.Stream == nil {
		faults = append(faults, errors.New("producer needs Stream"))
	}
	if len(d.Environments) == 0 {
		faults = append(faults, errors.New("producer needs Environments: one for each task"))
	}
	for _, task := range slices.Sorted(maps.Keys(d.Environments)) {
		if task == "" {
			faults = append(faults, errors.New(`task "": an environment needs the name of its task`))
		}
		if err := d.Environments[task].checkParts(); err != nil {
			faults = append(faults, fmt.Errorf("task %q: %w", task, err))
		}
	}
	return errors.Join(faults...)
}

// Run produces trajectories until ctx ends or the run's control says to drain, and then returns nil once no
// ticket is left in its hands. It fails only where nothing more can be produced: a wrong configuration, or
// streams that are gone for good.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if err := errors.Join(cfg.Validate(), deps.checkEnvironments()); err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	w := newWorker(cfg, deps)

	// Taking ends with ctx, with the control's drain or with a slot's error. Episodes outlive it by the grace, and
	// giving tickets back outlives them by a while.
	ctx, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	group, taking := errgroup.WithContext(ctx)
	working, stopWorking := extendContext(taking, cfg.Grace, errDraining)
	defer stopWorking()
	settling, stopSettling := extendContext(working, cfg.Settle, errDraining)
	defer stopSettling()

	group.Go(func() error {
		err := deps.Stream.FollowControl(taking, func(control *schemas.Control) {
			w.running.followControl(control)
			if control.Draining {
				stopTaking()
			}
		})
		return unlessEnded(taking, "follow the control", err)
	})
	group.Go(func() error {
		w.watchEndings(taking)
		return nil
	})
	w.stayReachable(taking)
	group.Go(func() error {
		w.keepReachable(taking)
		return nil
	})
	for range cfg.Concurrency {
		group.Go(func() error {
			for {
				lease, err := w.takeTicket(taking)
				if err != nil {
					return unlessEnded(taking, "take a ticket", err)
				}
				if err := w.serveTicket(working, settling, lease); err != nil {
					return err
				}
			}
		})
	}
	err := group.Wait()
	_ = w.closing.Wait() // it never fails
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	return nil
}

// unlessEnded is nil when an error only says that ctx has ended.
func unlessEnded(ctx context.Context, doing string, err error) error {
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
