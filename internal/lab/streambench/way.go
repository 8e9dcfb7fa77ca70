package streambench

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// way is a way for trajectories from producers to a reader.
type way interface {
	// publish returns when the broker has stored a trajectory of that id. Each producer has its own goroutine.
	publishTrajectory(ctx context.Context, producer int, id string) error
	// next waits for the next trajectory. settle acks all that came since the last time, waits for the broker to
	// confirm it, and purges them. Both are of the reader's goroutine.
	nextTrajectory(ctx context.Context) error
	settleBatch(ctx context.Context) error
}

// moveRound moves a round: producers publish without waiting for the reader, which takes batch after batch.
func moveRound(ctx context.Context, config Config, w way, round string) error {
	work, ctx := errgroup.WithContext(ctx)
	total := config.Batch * config.Batches
	for p := range config.Producers {
		work.Go(func() error {
			for i := p; i < total; i += config.Producers {
				if err := w.publishTrajectory(ctx, p, fmt.Sprintf("%s-%d", round, i)); err != nil {
					return fmt.Errorf("publish: %w", err)
				}
			}
			return nil
		})
	}
	work.Go(func() error {
		for range config.Batches {
			for range config.Batch {
				if err := w.nextTrajectory(ctx); err != nil {
					return fmt.Errorf("read: %w", err)
				}
			}
			if err := w.settleBatch(ctx); err != nil {
				return fmt.Errorf("settle a batch: %w", err)
			}
		}
		return nil
	})
	return work.Wait()
}

// named is a way with its name in the report.
type named struct {
	name string
	way
}

// The names of the ways.
const (
	wayWeir  = "weir"
	wayBare  = "bare JetStream, raw bytes"
	wayCoded = "bare JetStream, same codec"
)

// openWays makes the ways, Weir's first, and returns a function that closes them.
func openWays(ctx context.Context, config Config, dial Dial, run *streams.Run, template *schemas.Trajectory) ([]named, func(), error) {
	var closers []func()
	closeAll := func() {
		for _, end := range slices.Backward(closers) {
			end()
		}
	}
	connect := func() (*streams.Conn, error) {
		c, err := dial(ctx)
		if err == nil {
			closers = append(closers, c.Close)
		}
		return c, err
	}
	var ways []named
	open := func(name string, make func() (way, func(), error)) error {
		w, end, err := make()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		closers, ways = append(closers, end), append(ways, named{name, w})
		return nil
	}
	err := open(wayWeir, func() (way, func(), error) { return openWeir(ctx, config, connect, run, template) })
	for _, bare := range []struct {
		name  string
		coded bool
	}{{wayBare, false}, {wayCoded, true}} {
		if err == nil {
			err = open(bare.name, func() (way, func(), error) { return openBare(ctx, config, connect, run, template, bare.coded) })
		}
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return ways, closeAll, nil
}
