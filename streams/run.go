package streams

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Run is a handle on the resources of one run. It is safe for concurrent use and needs no closing: it lives
// as long as its [Conn].
type Run struct {
	conn     *Conn
	nc       *nats.Conn
	js       jetstream.JetStream
	run      string
	names    names
	topology Topology
	log      *slog.Logger
	// seat is the trainer's, nil for everybody else.
	seat *Seat
}

func (c *Conn) newRun(run string, topology Topology) (*Run, error) {
	n, err := newNames(run)
	if err != nil {
		return nil, err
	}
	return &Run{conn: c, nc: c.nc, js: c.js, run: run, names: n, topology: topology, log: c.log}, nil
}

// Name is the run's name.
func (r *Run) Name() string { return r.run }

// GenerateSubject begins the subjects of the run's generate calls: see package generate.
func (r *Run) GenerateSubject() string { return r.names.generateSubject() }

// NATS is the run's connection without JetStream, for requests that no stream stores.
func (r *Run) NATS() *nats.Conn { return r.nc }

// Log is where the run's connection logs.
func (r *Run) Log() *slog.Logger { return r.log }

// Topology is what the run was opened with, by whoever did.
func (r *Run) Topology() Topology { return r.topology }

// held fails with [ErrFenced] where this handle is that of a trainer that was overtaken.
func (r *Run) held(ctx context.Context) error {
	if r.seat == nil {
		return nil
	}
	return r.seat.Check(ctx)
}

// epoch is that of the seat, 0 without one.
func (r *Run) epoch() uint64 {
	if r.seat == nil {
		return 0
	}
	return r.seat.epoch
}

// Await returns when the broker has every stream of the run. A broker whose store was lost is without them until its own process, or
// an operator, has made them anew.
func (r *Run) Await(ctx context.Context) error {
	absent := func(err error) bool { return IsTransient(err) || errors.Is(err, jetstream.ErrStreamNotFound) }
	for _, name := range []string{
		r.names.tickets, r.names.trajectories, r.names.rejected, r.names.events,
		"KV_" + r.names.control, "KV_" + r.names.weights, "OBJ_" + r.names.shards,
	} {
		err := retry(ctx, r.log, "wait for stream "+name, absent, func(ctx context.Context) error {
			return r.conn.guard(ctx, name, func(ctx context.Context) error {
				_, err := r.js.Stream(ctx, name)
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// call makes attempts at a broker call until one succeeds, ctx ends, or it fails for good: see retry. A denial
// of a subject that contains needle is such an end.
func (r *Run) call(ctx context.Context, what, needle string, attempt func(context.Context) error) error {
	return retry(ctx, r.log, what, IsTransient, func(ctx context.Context) error {
		return r.conn.guard(ctx, needle, attempt)
	})
}
