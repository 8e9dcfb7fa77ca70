package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Runs are the names of the runs that the broker holds streams of, sorted; none is nil. It fails with [ErrDenied] where the broker has
// keys and this connection's is not the admin's: a role may not see other runs.
func (c *Conn) Runs(ctx context.Context) (runs []string, err error) {
	if !c.listsStreams() {
		return nil, fmt.Errorf("list the runs: %w: role %s", ErrDenied, c.role)
	}
	const needle = ".STREAM.NAMES"
	err = retryCall(ctx, c.log, "list the runs", IsTransient, func(ctx context.Context) error {
		runs = nil
		return c.guardCall(ctx, needle, func(ctx context.Context) error {
			names := c.js.StreamNames(ctx)
			for name := range names.Name() {
				if run, ok := runOfTickets(name); ok {
					runs = append(runs, run)
				}
			}
			return names.Err()
		})
	})
	slices.Sort(runs)
	return runs, err
}

// listsStreams says whether this connection may ask for streams beside its run's.
func (c *Conn) listsStreams() bool { return c.seed == "" || c.role == RoleAdmin }

// runOfTickets is the run whose stream of tickets has this name.
func runOfTickets(stream string) (run string, ok bool) {
	run, ok = strings.CutPrefix(stream, "WEIR_")
	if ok {
		run, ok = strings.CutSuffix(run, "_TICKETS")
	}
	return run, ok && CheckRunName(run) == nil && namesOfRun(run).tickets == stream
}
