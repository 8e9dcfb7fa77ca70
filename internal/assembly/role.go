package assembly

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/streams"
)

// role is a role of a run as a process of its own.
type role struct {
	name streams.Role
	// waits names the condition without which the process is not ready.
	waits string
	// allowed refuses a process before it reaches for the broker; nil refuses none.
	allowed func() error
	// reach opens the run, or waits for it.
	reach func(*Connector, context.Context, *streams.Conn) (*streams.Run, error)
	// calls is whether the role calls tools, which may be placed on workers.
	calls bool
	// bare is whether the role has nothing to do with the run's tasks: work gets no Course.
	bare bool
	// work does the role's work until it is done or its context ends.
	work func(context.Context, *streams.Run, *Course) error
}

// runRole connects to the run's broker and does the role's work, its metrics and health beside it.
func (s *Run) runRole(ctx context.Context, r role) error {
	if r.allowed != nil {
		if err := r.allowed(); err != nil {
			return err
		}
	}
	var c *Course
	if !r.bare {
		var err error
		if c, err = s.openCourse(ctx); err != nil {
			return err
		}
		defer c.Close()
		if err := s.checkMemory(c, r.name); err != nil {
			return err
		}
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return s.server.Run(running, s.Log) })
	group.Go(func() error {
		to := s.Connector()
		conn, err := to.connectBroker(running, nil, r.name)
		if err != nil {
			return err
		}
		defer conn.Close()
		run, err := r.reach(to, running, conn)
		if err != nil {
			return err
		}
		if r.calls {
			defer callWorkers(running, s.Config, run, c)()
		}
		return endOf(running, r.work(running, run, c))
	})
	return endedInOrder(ctx, group.Wait())
}

// errEnded ends the other parts of a process when the role's own work is done.
var errEnded = errors.New("done")

// endOf turns the end of a role's work into the end of the process's other parts.
func endOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil {
		return err
	}
	return errEnded
}

// endedInOrder is nil when a process stopped because it was asked to or had finished.
func endedInOrder(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
