package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/batch"
)

// OverStreams is the Stream of a run's JetStream streams. Weights are published as weights is configured.
func OverStreams(run *streams.Run, weights streams.WeightsConfig) (Stream, error) {
	w, err := run.Weights(weights)
	if err != nil {
		return nil, err
	}
	return &overStreams{run: run, weights: w, config: weights}, nil
}

// ErrFenced is returned, wrapped, by a trainer whose run another trainer has taken over.
var ErrFenced = streams.ErrFenced

// overStreams works in the run as anybody until it has taken it, and then as its trainer.
type overStreams struct {
	run     *streams.Run
	weights *streams.Weights
	config  streams.WeightsConfig
	seat    *streams.Seat
}

func (s *overStreams) Take(ctx context.Context, from *Position) error {
	if err := s.run.Await(ctx); err != nil {
		return err
	}
	if s.seat != nil {
		return s.seat.Renew(ctx)
	}
	var position *streams.Position
	if from != nil {
		position = &streams.Position{Stream: from.Stream, Created: from.Created, Sequence: from.Sequence}
	}
	seat, err := s.run.TakeSeat(ctx, position)
	if err != nil {
		return err
	}
	weights, err := seat.Run().Weights(s.config)
	if err != nil {
		return err
	}
	s.seat, s.run, s.weights = seat, seat.Run(), weights
	return nil
}

func (s *overStreams) Check(ctx context.Context) error { return s.seat.Check(ctx) }

func (s *overStreams) Watch(ctx context.Context) error { return s.seat.Watch(ctx) }

func (s *overStreams) Run() string { return s.run.Name() }

func (s *overStreams) Issue(ctx context.Context, tickets ...*schemas.Ticket) error {
	return s.run.Issue(ctx, tickets...)
}

func (s *overStreams) OutstandingTickets(ctx context.Context) (int, error) {
	return s.run.OutstandingTickets(ctx)
}

func (s *overStreams) WaitingTickets(ctx context.Context) (int, error) {
	c, err := s.run.TicketCounts(ctx)
	return c.Waiting, err
}

func (s *overStreams) UpdateControl(ctx context.Context, change func(*schemas.Control) *schemas.Control) error {
	return s.run.UpdateControl(ctx, change)
}

func (s *overStreams) FollowControl(ctx context.Context, changed func(*schemas.Control)) error {
	return s.run.FollowControl(ctx, changed)
}

func (s *overStreams) PublishWeights(ctx context.Context, m *schemas.Manifest, shards streams.ShardSource) error {
	return s.weights.PublishFrom(ctx, m, shards)
}

// ManifestFits fails where the broker takes no message as large as a manifest.
func (s *overStreams) ManifestFits(m *schemas.Manifest) error { return s.run.ManifestFits(m) }

func (s *overStreams) Control(ctx context.Context) (*schemas.Control, error) {
	c, err := s.run.Control(ctx)
	switch {
	case errors.Is(err, streams.ErrNoControl):
		return nil, nil
	case unreadable(err):
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return c, err
}

// unreadable is whether an error is about a message, and not about how it travels.
func unreadable(err error) bool {
	for _, fault := range []error{schemas.ErrVersion, schemas.ErrKind, schemas.ErrMalformed, schemas.ErrInvalid} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

func (s *overStreams) Published(ctx context.Context) (int64, error) {
	m, err := s.run.LatestManifest(ctx)
	if errors.Is(err, streams.ErrNoWeights) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Version, nil
}

// idle is how long the trainer waits for a message before it looks whether the stream is full.
const idle = 2 * time.Second

// Feed opens the trainer's durable reader. From the beginning means the first message that the stream still
// holds, whatever an earlier trainer acked.
func (s *overStreams) Feed(ctx context.Context, from *Position, maxPending int) (Feed, error) {
	options := streams.FeedOptions{MaxPending: maxPending, Idle: idle}
	if from == nil {
		f, err := s.run.Feed(ctx, options)
		if err != nil {
			return nil, err
		}
		identity := f.Identity()
		f.Close()
		options.From = &streams.Position{Stream: identity.Stream, Created: identity.Created}
	} else {
		options.From = &streams.Position{Stream: from.Stream, Created: from.Created, Sequence: from.Sequence}
		options.Known = streams.Mark{Sequence: from.Known, Stored: from.Stored}
	}
	f, err := s.run.Feed(ctx, options)
	if err != nil {
		return nil, recreated(err)
	}
	return brokerFeed{f}, nil
}

// recreated marks the errors after which the ledger no longer holds. A broker without the stream lost its store. A stream that ends before a position has
// lost messages and will use their sequences again: it is as good as a new one.
func recreated(err error) error {
	if !errors.Is(err, ErrRecreated) && streams.IsLost(err) {
		return fmt.Errorf("%w: %w", ErrRecreated, err)
	}
	return err
}

// brokerFeed is a Feed over JetStream.
type brokerFeed struct{ *streams.Feed }

func (f brokerFeed) Next(ctx context.Context) (*Delivery, error) {
	d, err := f.Feed.Next(ctx)
	if errors.Is(err, streams.ErrIdle) {
		return nil, fmt.Errorf("%w: %w", ErrIdle, err)
	}
	if err != nil {
		return nil, recreated(err)
	}
	return &Delivery{
		Delivery: batch.Delivery{Sequence: d.Sequence, Trajectory: d.Trajectory, Closed: d.Closed},
		Origin:   d,
	}, nil
}

func (f brokerFeed) Reject(ctx context.Context, d *Delivery, reason batch.Reason, detail string) error {
	origin, ok := d.Origin.(*streams.Delivery)
	if !ok {
		return recreated(f.Feed.RejectCarried(ctx, d.Sequence, d.Trajectory, streams.Reason(reason), detail))
	}
	return recreated(f.Feed.Reject(ctx, origin, streams.Reason(reason), detail))
}

func (f brokerFeed) Ack(ctx context.Context, sequences ...uint64) error {
	return recreated(f.Feed.Ack(ctx, sequences...))
}

func (f brokerFeed) Purge(ctx context.Context, upTo uint64) error {
	return recreated(f.Feed.Purge(ctx, upTo))
}

func (f brokerFeed) Refused() map[batch.Reason]int {
	refused := map[batch.Reason]int{}
	for reason, n := range f.Feed.Refused() {
		refused[batch.Reason(reason)] = n
	}
	return refused
}

func (f brokerFeed) Identity() Position {
	p := f.Feed.Identity()
	known := f.Known()
	return Position{Stream: p.Stream, Created: p.Created, Sequence: p.Sequence, Known: known.Sequence, Stored: known.Stored}
}

func (f brokerFeed) Close() error {
	f.Feed.Close()
	return nil
}
