package cli

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/streams"
)

// role is one part of a run as a process of its own.
type role struct {
	name streams.Role
	// waits names what the process is not ready without.
	waits string
	// allowed refuses a process before it reaches for the broker; nil refuses none.
	allowed func(*session) error
	// reach opens the run, or waits for it.
	reach func(*session, context.Context, *streams.Conn) (*streams.Run, error)
	// calls is whether the role calls tools, which may be placed on workers.
	calls bool
	// work does the role's work until it is done or its context ends.
	work func(*session, context.Context, *streams.Run, *course) error
}

// runRole connects to the run's broker and does the role's work, its metrics and health beside it.
func (a *app) runRole(cmd *cobra.Command, r role) error {
	s, err := a.session(cmd, r.waits)
	if err != nil {
		return err
	}
	if r.allowed != nil {
		if err := r.allowed(s); err != nil {
			return err
		}
	}
	c, err := a.openCourse(cmd.Context(), s.cfg, s.log)
	if err != nil {
		return err
	}
	defer c.spaces.Close()
	defer c.apart.Close()
	if err := s.fits(c, r.name); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(cmd.Context())
	group.Go(func() error { return s.server.Run(ctx, s.log) })
	group.Go(func() error {
		conn, err := s.connect(ctx, nil, r.name)
		if err != nil {
			return err
		}
		defer conn.Close()
		run, err := r.reach(s, ctx, conn)
		if err != nil {
			return err
		}
		if r.calls {
			defer s.callWorkers(ctx, run, c)()
		}
		return endOf(ctx, r.work(s, ctx, run, c))
	})
	return ended(cmd.Context(), group.Wait())
}
