package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
)

// OverStreams is the Stream of a run's JetStream streams. Weights are published as configured.
func OverStreams(run *streams.Run, config weights.Config) (Stream, error) {
	p, err := weights.NewPublisher(run, config)
	if err != nil {
		return nil, err
	}
	return &runStream{Run: run, weights: p, config: config}, nil
}

// runStream works in the run without rights until it has taken the run's seat, and then as its trainer.
type runStream struct {
	*streams.Run
	weights *weights.Publisher
	config  weights.Config
	seat    *streams.Seat
	spool   string
}

func (s *runStream) Take(ctx context.Context, from *streams.Position) error {
	if err := s.Await(ctx); err != nil {
		return err
	}
	if s.seat != nil {
		return s.seat.Renew(ctx)
	}
	seat, err := s.TakeSeat(ctx, from)
	if err != nil {
		return err
	}
	p, err := weights.NewPublisher(seat.Run(), s.config)
	if err != nil {
		return err
	}
	s.seat, s.Run, s.weights = seat, seat.Run(), p
	return nil
}

func (s *runStream) Check(ctx context.Context) error { return s.seat.Check(ctx) }

func (s *runStream) Watch(ctx context.Context) error { return s.seat.Watch(ctx) }

func (s *runStream) PublishWeights(ctx context.Context, m *schemas.Manifest, shards weights.ShardSource) (*schemas.Manifest, error) {
	s.weights.SpoolIn(s.spool)
	return s.weights.PublishFrom(ctx, m, shards)
}

func (s *runStream) SpoolIn(dir string) { s.spool = dir }

func (s *runStream) Deltas() bool { return s.config.BaseEvery > 1 }

func (s *runStream) Published(ctx context.Context) (int64, error) {
	m, err := s.LatestManifest(ctx)
	if errors.Is(err, streams.ErrNoWeights) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Version, nil
}

func (s *runStream) BringNewest(ctx context.Context, dir string) ([]string, error) {
	m, err := s.LatestManifest(ctx)
	if err != nil {
		return nil, err
	}
	if m.Adapter != nil {
		return nil, fmt.Errorf("version %d was published as adapters: set torch.deterministic again for this start", m.Version)
	}
	loader, err := weights.NewLoader(s.Run, s.config)
	if err != nil {
		return nil, err
	}
	return loader.Files(ctx, m, dir)
}

// idleWait is how long the trainer waits for a message before it looks whether the stream is full.
const idleWait = 2 * time.Second

// Feed opens the trainer's durable reader. A nil position means the first message that the stream still holds, also where an earlier
// trainer acked it.
func (s *runStream) Feed(ctx context.Context, from *streams.Position, known streams.Mark, maxPending int) (Feed, error) {
	options := streams.FeedOptions{MaxPending: maxPending, Idle: idleWait, From: from, Known: known}
	if from == nil {
		f, err := s.Run.Feed(ctx, options)
		if err != nil {
			return nil, err
		}
		identity := f.Identity()
		f.Close()
		options.From = &streams.Position{Stream: identity.Stream, Created: identity.Created}
	}
	f, err := s.Run.Feed(ctx, options)
	if err != nil {
		return nil, err
	}
	return f, nil
}
