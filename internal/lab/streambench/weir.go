package streambench

import (
	"context"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// weirWay is the work of producers and the trainer: the reader holds the run's seat.
type weirWay struct {
	runs     []*streams.Run
	outgoing []schemas.Trajectory
	feed     *streams.Feed
	batch    []*streams.Delivery
}

func openWeir(ctx context.Context, config Config, connect func() (*streams.Conn, error), run *streams.Run, template *schemas.Trajectory) (way, func(), error) {
	w := &weirWay{}
	attach := func() (*streams.Run, error) {
		conn, err := connect()
		if err != nil {
			return nil, err
		}
		return conn.Attach(ctx, run.Name())
	}
	for range config.Producers {
		own, err := attach()
		if err != nil {
			return nil, nil, err
		}
		w.runs, w.outgoing = append(w.runs, own), append(w.outgoing, *template)
	}
	own, err := attach()
	if err != nil {
		return nil, nil, err
	}
	seat, err := own.TakeSeat(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if w.feed, err = seat.Run().Feed(ctx, feedOptions(config)); err != nil {
		return nil, nil, err
	}
	return w, w.feed.Close, nil
}

// reader names the durable of every way.
const reader = "bench"

// feedOptions let a batch wait for its ack while the next batch comes.
func feedOptions(config Config) streams.FeedOptions {
	return streams.FeedOptions{Durable: reader, MaxPending: 4 * config.Batch}
}

func (w *weirWay) publishTrajectory(ctx context.Context, producer int, id string) error {
	t := &w.outgoing[producer]
	t.ID = id
	return w.runs[producer].Publish(ctx, t)
}

func (w *weirWay) nextTrajectory(ctx context.Context) error {
	d, err := w.feed.Next(ctx)
	if err == nil {
		w.batch = append(w.batch, d)
	}
	return err
}

func (w *weirWay) settleBatch(ctx context.Context) error {
	sequences := make([]uint64, 0, len(w.batch))
	for _, d := range w.batch {
		sequences = append(sequences, d.Sequence)
	}
	w.batch = w.batch[:0]
	if err := w.feed.Ack(ctx, sequences...); err != nil {
		return err
	}
	return w.feed.Purge(ctx, sequences[len(sequences)-1])
}
