package streams

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Run is a handle on the streams of a run. It is safe for concurrent use and needs no closing: it works as long as its [Conn].
type Run struct {
	conn     *Conn
	nc       *nats.Conn
	js       jetstream.JetStream
	run      string
	names    names
	topology Topology
	log      *slog.Logger
	// vacancy is this process's view of the space in TRAJECTORIES.
	vacancy *freeSpace
	// endedFences are the fences of journals that this process has ended.
	endedFences *endedFences
	// seat is that of the run's trainer, nil for every other handle.
	seat *Seat
}

func (c *Conn) newRun(run string, topology Topology) (*Run, error) {
	n, err := newNames(run)
	if err != nil {
		return nil, err
	}
	return &Run{
		conn: c, nc: c.nc, js: c.js, run: run, names: n, topology: topology, log: c.log,
		vacancy: newFreeSpace(), endedFences: &endedFences{kept: fenceKept},
	}, nil
}

// Name is the run's name.
func (r *Run) Name() string { return r.run }

// GenerateSubject begins the subjects of the run's generate calls: see package generate.
func (r *Run) GenerateSubject() string { return r.names.generateSubject() }

// ToolsSubject begins the subjects of the run's tool workers: see package toolworker.
func (r *Run) ToolsSubject() string { return r.names.toolsSubject() }

// EvaluationsSubject begins the subjects of the run's evaluation tickets: see package evaluation.
func (r *Run) EvaluationsSubject() string { return r.names.evaluationsSubject() }

// NATS is the run's connection without JetStream, for requests that no stream stores.
func (r *Run) NATS() *nats.Conn { return r.nc }

// Log is where the run's connection logs.
func (r *Run) Log() *slog.Logger { return r.log }

// Topology is the topology that the run was last opened with.
func (r *Run) Topology() Topology { return r.topology }

// checkSeat fails with [ErrFenced] where this handle has a seat that another trainer has taken.
func (r *Run) checkSeat(ctx context.Context) error {
	if r.seat == nil {
		return nil
	}
	return r.seat.Check(ctx)
}

// seatEpoch is that of the seat, 0 without a seat.
func (r *Run) seatEpoch() uint64 {
	if r.seat == nil {
		return 0
	}
	return r.seat.epoch
}

// Await returns when the broker has every stream of the run. A broker whose store was lost lacks them until its own process, or an
// operator, has made them anew.
func (r *Run) Await(ctx context.Context) error {
	absent := func(err error) bool { return IsTransient(err) || errors.Is(err, jetstream.ErrStreamNotFound) }
	for _, name := range []string{
		r.names.tickets, r.names.trajectories, r.names.rejected, r.names.events,
		"KV_" + r.names.control, "KV_" + r.names.weights, "OBJ_" + r.names.shards,
	} {
		err := retryCall(ctx, r.log, "wait for stream "+name, absent, func(ctx context.Context) error {
			return r.conn.guardCall(ctx, name, func(ctx context.Context) error {
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

// callBroker makes attempts at a call to the broker until an attempt succeeds or fails for good, or ctx ends: see retry. The denial of a
// subject that contains needle is a failure for good.
func (r *Run) callBroker(ctx context.Context, what, needle string, attempt func(context.Context) error) error {
	return retryCall(ctx, r.log, what, IsTransient, func(ctx context.Context) error {
		return r.conn.guardCall(ctx, needle, attempt)
	})
}
