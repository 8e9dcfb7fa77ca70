package producers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
)

// Deps are what a producer works with.
type Deps struct {
	Stream      Stream
	Environment Environment
	Log         *slog.Logger
}

// Run produces trajectories until ctx ends or the run's control says to drain, and then returns nil once no
// ticket is left in its hands. It fails only where nothing more can be produced: a wrong configuration, or
// streams that are gone for good.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if err := errors.Join(cfg.Validate(), deps.Environment.validate()); err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	w := newWorker(cfg, deps)

	// Taking ends with ctx, with the control's drain or with a slot's error. Episodes outlive it by the grace, and
	// giving tickets back outlives them by a while.
	ctx, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	group, taking := errgroup.WithContext(ctx)
	working, stopWorking := outlive(taking, cfg.Grace, errDraining)
	defer stopWorking()
	settling, stopSettling := outlive(working, cfg.Settle, errDraining)
	defer stopSettling()

	group.Go(func() error {
		err := deps.Stream.FollowControl(taking, func(control *schemas.Control) {
			w.running.follow(control)
			if control.Draining {
				stopTaking()
			}
		})
		return unlessEnded(taking, "follow the control", err)
	})
	for range cfg.Concurrency {
		group.Go(func() error {
			for {
				lease, err := w.take(taking)
				if err != nil {
					return unlessEnded(taking, "take a ticket", err)
				}
				w.serve(working, settling, lease)
			}
		})
	}
	if err := group.Wait(); err != nil {
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
